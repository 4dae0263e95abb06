"""Random programs, recorded with what genuine TensorFlow computes in them: `tests/fuzz` makes new ones beside it.

Each is built here, and TensorFlow's graph of it is read; both must give what TensorFlow gave.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.fuzz.comparison import difference
from tests.fuzz.sides import ROOT
from tests.fuzz.wire import decode_array
from tests.fuzz.worker import Worker

FILE = ROOT / "tests" / "fixtures" / "tensorflow" / "random_graphs.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r['program']['seed']}-{r['program']['index']}")
def test_a_random_program_computes_what_tensorflow_computes(record: dict[str, Any]) -> None:
    worker = Worker("anabranch")
    built = worker.build(record["program"])
    assert sorted(built["refusals"]) == record["refusals"]
    names = {ref: tensor["name"] for ref, tensor in built["tensors"].items() if tensor is not None}
    _check(worker, built["graph"], built["initializer"], names, record)
    read = worker.load(record["graph_def"])
    _check(worker, read["graph"], record["initializer"], record["names"], record)
    worker.close()


def _check(worker: Worker, graph: int, initializer: str, names: dict[str, str], record: dict[str, Any]) -> None:
    session = worker.open(graph)["session"]
    worker.run(session, [initializer], {})
    for feed, wanted in zip(record["program"]["feeds"], record["values"], strict=True):
        feeds = {names[f"{name}:0"]: value for name, value in feed.items() if f"{name}:0" in names}
        answer = worker.run(session, [names[ref] for ref in wanted], feeds)
        assert "error" not in answer, answer["error"]
        for ref, value in zip(wanted, answer["values"], strict=True):
            said = difference(decode_array(value), decode_array(wanted[ref]))
            assert said is None, f"{ref}: {said}"
