"""Writes tests/fixtures/tensorflow/public_functions.json.gz and autograph.json.gz: what TensorFlow gives for the cases.

Run in an environment that has TensorFlow (`make bench-env`), from this folder; the arguments say which fixtures. The
cases are those of `public_function_cases.py` and `autograph_cases.py`. An entry is, for each value that the case
fetches, its dtype, its shape and its elements: strings in Latin-1, complex numbers as pairs.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import autograph_cases
import numpy as np
import public_function_cases
import tensorflow.compat.v1 as tf

FOLDER = Path(__file__).parents[1] / "fixtures" / "tensorflow"
CASES = {"public_functions": public_function_cases.CASES, "autograph": autograph_cases.CASES}


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
    for fixture in sys.argv[1:] or CASES:
        recorded = {name: result(build) for name, build in CASES[fixture].items()}
        file = FOLDER / f"{fixture}.json.gz"
        with open(file, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
            packed.write(json.dumps(recorded).encode())
        print(file.name, len(recorded), "cases,", sum(map(len, recorded.values())), "values")


if __name__ == "__main__":
    main()
