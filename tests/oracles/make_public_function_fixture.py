"""Writes tests/fixtures/tensorflow/public_functions.json.gz: what TensorFlow gives for `public_function_cases.py`.

Run in an environment that has TensorFlow (`make bench-env`), from this folder. An entry is, for each value that the
case fetches, its dtype, its shape and its elements: strings in Latin-1, complex numbers as pairs.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from public_function_cases import CASES

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "public_functions.json.gz"


def plain(value: Any) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.fields:
        (field,) = array.dtype.fields  # a quantised dtype
        array = array[field]
    name = "bytes" if array.dtype.kind in "OS" else array.dtype.name
    elements = array.reshape(-1)
    if array.dtype.kind == "c":
        elements = np.stack([elements.real, elements.imag], -1)
    items = elements.tolist()
    if name == "bytes":
        items = [item.decode("latin-1") for item in items]
    return {"dtype": name, "shape": list(array.shape), "elements": items}


def result(build: Any) -> list[dict[str, Any]]:
    with tf.Graph().as_default(), tf.Session() as session:
        fetched = tf.nest.flatten(build(tf), expand_composites=True)
        return [plain(value) for value in session.run(fetched)]


def main() -> None:
    tf.disable_eager_execution()
    recorded = {name: result(build) for name, build in CASES.items()}
    with open(FIXTURE, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(json.dumps(recorded).encode())
    print(len(recorded), "cases,", sum(map(len, recorded.values())), "values")


if __name__ == "__main__":
    main()
