"""Writes tests/fixtures/tensorflow/steps.json.gz: what TensorFlow gives for the steps of `*_step_cases.py`.

Run in an environment that has TensorFlow (`make bench-env`), with the repository's root in PYTHONPATH. An entry is, for
each step, its values as `make_public_function_fixture` writes them, or the class of the error. Beside the cases stand
the operation types of their graphs, and those that have kernels there: what `tests.oracles.covered` counts by.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import tensorflow.compat.v1 as tf
from make_public_function_fixture import FOLDER, plain

from tests.oracles.genuine import RawOperations
from tests.oracles.step_cases import cases, results, types_of


def main() -> None:
    tf.disable_eager_execution()
    recorded: dict[str, Any] = {}
    for name, case in cases().items():
        with tf.Graph().as_default() as graph:
            steps = [[v if isinstance(v, str) else plain(v) for v in step] for step in results(tf, case)]
            recorded[name] = {"steps": steps, "types": sorted(types_of(graph.as_graph_def()))}
    kernels = sorted(name for name, found in RawOperations().kernels().items() if found)
    with (
        open(FOLDER / "steps.json.gz", "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed,
    ):
        packed.write(json.dumps({"cases": recorded, "kernels": kernels}).encode())
    print("steps", len(recorded), "cases,", sum(len(case["steps"]) for case in recorded.values()), "steps")


if __name__ == "__main__":
    main()
