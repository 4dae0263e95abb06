"""Writes tests/fixtures/tensorflow/quantised.json.gz: what TensorFlow gives for `quantised_cases.py`.

Run in an environment that has TensorFlow (`make bench-env`), from this folder. An entry is, for each random seed and
each value that the case fetches, its dtype, its shape and its elements. The cases of either group run in a process of
their own, since oneDNN, which computes what TensorFlow fuses, would also compute some of the others, with other last
bits.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "quantised.json.gz"
SEEDS = range(3)


def plain(value: Any) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.fields:
        (field,) = array.dtype.fields
        array = array[field]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "elements": array.reshape(-1).tolist()}


def record(group: str) -> None:
    import quantised_cases
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    recorded: dict[str, Any] = {}
    for name, build in getattr(quantised_cases, group).items():
        recorded[name] = []
        for seed in SEEDS:
            with tf.Graph().as_default(), tf.Session() as session:
                fetched = list(build(tf, np.random.RandomState(seed)))
                recorded[name].append([plain(value) for value in session.run(fetched)])
    print(json.dumps(recorded))


def main() -> None:
    recorded: dict[str, Any] = {}
    for group, one_dnn in (("CASES", "0"), ("FUSED", "1")):
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": one_dnn}
        lines = subprocess.run(
            [sys.executable, __file__, group], env=environment, check=True, stdout=subprocess.PIPE
        ).stdout
        recorded |= json.loads(lines.splitlines()[-1])
    with open(FIXTURE, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(json.dumps(recorded).encode())
    print(len(recorded), "cases")


if __name__ == "__main__":
    record(sys.argv[1]) if len(sys.argv) > 1 else main()
