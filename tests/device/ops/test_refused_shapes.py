"""Shapes that TensorFlow refuses are refused: the first row of every operation, with the shape of one input changed.

`tests/oracles/make_refused_shapes_fixture.py` records what TensorFlow refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import anabranch as tf
from anabranch import errors
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.testing.op_cases import OpCase
from tests.fuzz.op_rows import rows_by_operation
from tests.fuzz.perturbed_shapes import REFUSED, Inputs, perturbed_inputs

RECORDED: dict[str, list[str]] = json.loads(REFUSED.read_text())
#: the mechanism is the same for all of them
HIDDEN = sorted(RECORDED)[::12]


def _call(case: OpCase, inputs: Inputs, known: bool) -> None:
    """Adds the operation, on constants or on placeholders of unknown shape, and runs it."""
    feeds: dict[Any, Any] = {}

    def tensor(array: Any) -> Any:
        if known:
            return constant_of(array, "value")
        placeholder = raw.Placeholder(dtype=array.dtype if array.dtype.kind != "O" else "string", shape=None)
        feeds[placeholder] = array
        return placeholder

    with Graph().as_default() as graph, Session() as session:
        arguments = [[tensor(v) for v in a] if isinstance(a, list) else tensor(a) for a in inputs]
        getattr(raw, case.op)(*arguments, **case.attrs)
        operation = next(o for o in reversed(graph.get_operations()) if o.type == case.op)
        session.run(operation.outputs, feeds)


def _call_in_map(case: OpCase, inputs: Inputs) -> None:
    """Runs the operation in a function of a dataset, on tensors of unknown shape."""

    def function(_: Any) -> Any:
        def tensor(array: Any) -> Any:
            return raw.PlaceholderWithDefault(constant_of(array, "value"), shape=None)

        arguments = [[tensor(v) for v in a] if isinstance(a, list) else tensor(a) for a in inputs]
        getattr(raw, case.op)(*arguments, **case.attrs)
        operation = next(o for o in reversed(tf.get_default_graph().get_operations()) if o.type == case.op)
        with tf.control_dependencies([operation]):
            return tf.constant(0)

    with Graph().as_default(), Session() as session:
        session.run(tf.data.Dataset.range(1).map(function).make_one_shot_iterator().get_next())


def _taken(name: str, call: Callable[[OpCase, Inputs], None]) -> list[str]:
    """The calls that should be refused and are not."""
    case = rows_by_operation()[name][0]
    calls = dict(perturbed_inputs(case))
    taken = []
    for label in RECORDED[name]:
        try:
            call(case, calls[label])
        except (ValueError, errors.InvalidArgumentError):
            continue
        taken.append(label)
    return taken


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_known_shapes_are_refused(name: str) -> None:
    assert not _taken(name, partial(_call, known=True))


@pytest.mark.parametrize("name", HIDDEN)
def test_shapes_met_at_run_time_are_refused(name: str) -> None:
    assert not _taken(name, partial(_call, known=False))


@pytest.mark.parametrize("name", HIDDEN)
def test_shapes_met_in_functions_of_datasets_are_refused(name: str) -> None:
    assert not _taken(name, _call_in_map)
