"""The verifiers after the stages find what a stage could do wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.errors import InternalError
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.placement.partition import partition
from anabranch.placement.placer import Placement, apply
from anabranch.placement.verify_devices import verify_partitioned, verify_placed
from anabranch.xla.islands import Grouping, Island, group
from anabranch.xla.verify_items import verify_items

DEVICES = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1")


def _step() -> StepGraph:
    """An island, a host operation that takes its result, and an island that takes the host operation's."""
    with Graph().as_default():
        x = raw.Placeholder(dtype="float32", shape=[2], name="x")
        first = raw.Exp(raw.Neg(x, name="neg"), name="first")
        between = tf.py_func(np.negative, [first], tf.float32, name="between")
        last = raw.AddV2(tf.reshape(between, [2]), first, name="last")
        return prune([last], [], [x])


def _grouped() -> tuple[Grouping, StepGraph]:
    step = _step()
    grouping = group(step)
    verify_items(grouping, step, "islands")
    return grouping, step


def _out_of_order(grouping: Grouping) -> Grouping:
    return replace(grouping, items=grouping.items[::-1])


def _without_item(grouping: Grouping) -> Grouping:
    return replace(grouping, items=grouping.items[1:])


def _twice(grouping: Grouping) -> Grouping:
    return replace(grouping, items=[*grouping.items, grouping.items[0]])


def _changed(grouping: Grouping, change: Callable[[Island], None]) -> Grouping:
    change(next(item for item in grouping.items if isinstance(item, Island)))
    return grouping


def _without_inputs(grouping: Grouping) -> Grouping:
    return _changed(grouping, lambda island: island.inputs.clear())


def _without_outputs(grouping: Grouping) -> Grouping:
    return _changed(grouping, lambda island: island.outputs.clear())


def _with_own_result_as_input(grouping: Grouping) -> Grouping:
    return _changed(grouping, lambda island: island.inputs.append(island.operations[0].outputs[0]))


def _reversed_inside(grouping: Grouping) -> Grouping:
    return _changed(grouping, lambda island: island.operations.reverse())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_out_of_order, "does not run after"),
        (_without_item, "is in no item"),
        (_twice, "is in two items"),
        (_without_inputs, "does not come into its island"),
        (_without_outputs, "inside of its island"),
        (_with_own_result_as_input, "to its own island from outside"),
        (_reversed_inside, "does not run after 'neg'"),
    ],
)
def test_damaged_items_are_found(damage: Callable[[Grouping], Grouping], message: str) -> None:
    grouping, step = _grouped()
    with pytest.raises(InternalError, match=message):
        verify_items(damage(grouping), step, "islands")


def _placed() -> StepGraph:
    step = _step()
    devices = {op.name: DEVICES[op.name == "last"] for op in step.operations}
    placed = apply(step, Placement(devices))
    verify_placed(placed, DEVICES, "place")
    return placed


def test_devices_that_do_not_exist_are_found() -> None:
    with pytest.raises(InternalError, match="no device of the session"):
        verify_placed(_placed(), DEVICES[:1], "place")


def test_edges_between_devices_are_found() -> None:
    placed = _placed()
    with pytest.raises(InternalError, match="'last'.*takes 'first:0'|'last'.*takes 'Reshape:0'"):
        verify_partitioned(placed, "partition")
    verify_partitioned(partition(placed), "partition")


@pytest.mark.parametrize("what", ["the name", "the Send"])
def test_pairs_that_do_not_match_are_found(what: str) -> None:
    parts = partition(_placed())
    recv: Any = next(op for op in parts.operations if op.type == "_Recv")
    if what == "the name":
        recv.attrs = {**recv.attrs, "tensor_name": b"another"}
    else:
        parts.operations.remove(parts.transfers[recv].send)
    with pytest.raises(InternalError, match="receives another tensor than|receives what nothing sends"):
        verify_partitioned(parts, "partition")
