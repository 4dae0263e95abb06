"""Counts which operation types of `tf.raw_ops` are compared with genuine TensorFlow: `python -m tests.oracles.covered`.

A type counts as compared in random programs where the fuzzer can build it and TensorFlow has a kernel of it (what
`make fuzz` and its `--each` run); as recorded where it stands in the graph of a case of `*_step_cases.py`, of another
recording's case, or in a graph that TensorFlow wrote. A type that a case only mentions does not count.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.training_pb2 import MetaGraphDef
from tests.fuzz.op_rows import rows_by_operation
from tests.oracles.step_cases import types_of

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "tensorflow"
#: modules whose `CASES` are functions of the front end that give what is fetched
_MODULES: Final = ("generator", "image", "nn", "public_function", "quantised", "rare", "sound", "autograph")
#: files that hold a graph
_GRAPHS: Final = ("*.pb", "model_*.pb.gz")


def main() -> None:
    recorded = json.loads(gzip.decompress((FIXTURES / "steps.json.gz").read_bytes()))
    kernels = set(recorded["kernels"])
    types = {name for name in dir(tf.raw_ops) if not name.startswith("_")}
    random = set(rows_by_operation()) & kernels & types
    steps = {name for case in recorded["cases"].values() for name in case["types"]} & types
    others = set().union(*_of_cases(), *_of_graphs(), _of_updates(types)) & types
    rest = types - random - steps - others
    for what, found in (
        ("operation types", types),
        ("in random programs", random),
        ("in recorded steps", steps),
        ("in steps alone", steps - random - others),
        ("in other recordings", others),
        ("compared", types - rest),
        ("not compared, kernel there", rest & kernels),
        ("not compared, no kernel there", rest - kernels),
    ):
        print(f"{len(found):5}  {what}")
    print("not compared, kernel there:", *sorted(rest & kernels))


def _of_cases() -> Iterator[set[str]]:
    for module in _MODULES:
        found = importlib.import_module(f"tests.oracles.{module}_cases")
        cases: dict[str, Any] = found.CASES | getattr(found, "FUSED", {})
        for build in cases.values():
            with tf.Graph().as_default() as graph:
                build(tf, np.random.RandomState(0)) if len(inspect.signature(build).parameters) > 1 else build(tf)
                yield types_of(graph.as_graph_def())


def _of_graphs() -> Iterator[set[str]]:
    for pattern in _GRAPHS:
        for path in FIXTURES.glob(pattern):
            if path.stem in ("example", "sequence_example", "saved_model"):
                continue
            data = path.read_bytes()
            yield types_of(GraphDef.FromString(gzip.decompress(data) if path.suffix == ".gz" else data))
    for path in FIXTURES.glob("*.meta"):
        yield types_of(MetaGraphDef.FromString(path.read_bytes()).graph_def)
    for name in ("dataset_graphs", "random_graphs"):
        yield from _of_texts(json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes())))


def _of_updates(types: set[str]) -> set[str]:
    """The updates of training, whose records are kept by their types."""
    with np.load(FIXTURES / "training_ops.npz") as arrays:
        return {word for name in arrays.files for word in re.findall(r"[A-Za-z0-9]+", name)} & types


def _of_texts(value: Any) -> Iterator[set[str]]:
    """Of the graphs in nested values: texts in base64 under the key `graph`."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == "graph" and isinstance(inner, str):
            yield types_of(GraphDef.FromString(base64.b64decode(inner)))
        else:
            yield from _of_texts(inner)


if __name__ == "__main__":
    main()
