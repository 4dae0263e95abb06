"""A file of tests is held to the operations that it is said to run (`tests/operations_run.py`)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.registry import all_op_defs
from anabranch.ops import raw
from anabranch.pipeline import plan_listeners
from tests.operations_run import Notes, Tally

CLAIMS = {"Exp": "test_a.py", "Log": "test_a.py", "Sin": "test_b.py"}


def missing(*reports: tuple[str, list[str]], partly: str = "") -> list[str]:
    tally = Tally()
    tally.collect(["test_a.py::one", "test_a.py::two[x::y]", "test_b.py::one"])
    for test, operations in reports:
        tally.report(test, operations)
    lines = tally.missing(CLAIMS, lambda path: path == partly)
    return [re.findall(r"run (\w+),", line)[0] for line in lines]


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        ([("test_a.py::one", ["Exp"]), ("test_a.py::two[x::y]", ["Log", "Cos"])], []),
        ([("test_a.py::one", ["Exp"]), ("test_a.py::two[x::y]", ["Exp"])], ["Log"]),
        ([("test_a.py::one", []), ("test_a.py::two[x::y]", [])], ["Exp", "Log"]),
        ([("test_a.py::one", ["Sin"])], []),  # the other test failed, or was not reached
        ([("test_b.py::one", ["Exp"])], ["Sin"]),  # another file's operation
        ([], []),
    ],
)
def test_what_no_test_of_a_whole_file_ran_is_missing(reports: list[Any], wanted: list[str]) -> None:
    assert missing(*reports) == wanted


def test_a_part_of_a_file_is_held_to_nothing() -> None:
    assert missing(("test_b.py::one", []), partly="test_b.py") == []


@pytest.fixture
def notes() -> Any:
    """Notes that watch one operation of each kind: compiled, host, and of the executor."""
    defs = {name: all_op_defs()[name] for name in ("Tanh", "AsString", "Switch")}
    rules = {name: (op.compiled_rule, op.host_rule) for name, op in defs.items()}
    listeners = list(plan_listeners)
    made = Notes()
    made.watch(defs)
    yield made
    for name, (compiled, host) in rules.items():
        defs[name].compiled_rule, defs[name].host_rule = compiled, host
    plan_listeners[:] = listeners


def test_what_runs_is_noted_and_what_is_only_built_is_not(notes: Notes) -> None:
    x = tf.placeholder(tf.float32, [])
    hyperbolic, text, side = tf.tanh(x), tf.as_string(x), raw.Switch(x, x > 0)
    assert notes.operations == set()
    with tf.Session() as session:
        for fetch, name in ((hyperbolic, "Tanh"), (text, "AsString"), (side.output_true, "Switch")):
            notes.operations.clear()
            session.run(fetch, {x: np.float32(1)})
            assert notes.operations == {name}
