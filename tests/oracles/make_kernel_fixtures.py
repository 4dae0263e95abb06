"""Writes quantised.json.gz and nn.json.gz in tests/fixtures/tensorflow: what TensorFlow gives for the cases of kernels.

Run in an environment that has TensorFlow (`make bench-env`), from this folder. An entry is, for each random seed and
each value that the case fetches, its dtype, its shape and its elements. The cases of either group run in a process of
their own, since oneDNN, which computes what TensorFlow fuses, would also compute some of the others, with other last
bits.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tensorflow"
SEEDS = range(3)
#: fixture -> the cases: module, group in it, whether oneDNN computes
GROUPS = {
    "quantised": (("quantised_cases", "CASES", False), ("quantised_cases", "FUSED", True)),
    "nn": (("nn_cases", "CASES", False),),
}


def plain(value: Any) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.fields:
        (field,) = array.dtype.fields
        array = array[field]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "elements": array.reshape(-1).tolist()}


def record(module: str, group: str) -> None:
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    recorded: dict[str, Any] = {}
    for name, build in getattr(importlib.import_module(module), group).items():
        recorded[name] = []
        for seed in SEEDS:
            with tf.Graph().as_default(), tf.Session() as session:
                fetched = list(build(tf, np.random.RandomState(seed)))
                recorded[name].append([plain(value) for value in session.run(fetched)])
    print(json.dumps(recorded))


def main() -> None:
    for fixture, groups in GROUPS.items():
        recorded: dict[str, Any] = {}
        for module, group, one_dnn in groups:
            environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(one_dnn))}
            command = [sys.executable, __file__, module, group]
            lines = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
            recorded |= json.loads(lines.splitlines()[-1])
        with (
            open(FIXTURES / f"{fixture}.json.gz", "wb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed,
        ):
            packed.write(json.dumps(recorded).encode())
        print(fixture, len(recorded), "cases")


if __name__ == "__main__":
    record(*sys.argv[1:]) if len(sys.argv) > 1 else main()
