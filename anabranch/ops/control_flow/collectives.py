"""Sums, copies and rows of what several devices of a task have: collectives. The meetings: `state.collectives`.

The members of a group are operations of one task, on devices of their own or on one. Members in several tasks, which
TensorFlow lets meet through a leader, do not find each other here; they exchange tensors as any operations do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.pending import Pending
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, OpError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import outcome
from anabranch.state.collectives import Combine, Meetings

_KIND: Final = "collective"
_GROUP: Final = "group_size: int, group_key: int, instance_key: int"
_HINTS: Final = "communication_hint: string = 'auto', timeout_seconds: float = 0.0"
_NUMBERS: Final = "float, half, double, int32, int64"
_MERGE: Final[dict[bytes, Callable[..., Any]]] = {
    b"Min": np.minimum,
    b"Max": np.maximum,
    b"Mul": np.multiply,
    b"Add": np.add,
}


class _Copy(NamedTuple):
    """What a member of a broadcast brings: the value that is copied, or none."""

    value: HostArray | None


def _meet(ctx: StepHostContext, value: object, combine: Combine) -> Pending | Sequence[Any]:
    attrs: dict[str, Any] = dict(ctx.op.attrs)
    size, name = int(attrs["group_size"]), f"group {attrs['group_key']}, instance {attrs['instance_key']}"
    if size < 1:
        raise InvalidArgumentError(None, ctx.op, f"group_size must be positive, got {size}")
    handle = ResourceHandle("", f"{attrs['group_key']}.{attrs['instance_key']}", _KIND, task=ctx.task)
    meetings: Meetings = ctx.containers.object(handle, lambda: Meetings(name, size))
    try:
        return outcome(meetings.join(f"{ctx.op.placed_on} {ctx.op.name}", value, size, combine))
    except OpError as error:
        error.attribute_to(ctx.op)
        raise


def _same_shapes(values: Sequence[Any]) -> None:
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        message = f"the members of a collective bring tensors of the shapes {sorted(map(list, shapes))}"
        raise InvalidArgumentError(None, None, message)


CollectiveReduce = define_op(
    "CollectiveReduce",
    "input: T -> data: T",
    f"T: {{bfloat16, {_NUMBERS}}}, {_GROUP}, merge_op: {{'Min', 'Max', 'Mul', 'Add'}}, final_op: {{'Id', 'Div'}}, "
    f"subdiv_offsets: list(int), wait_for: list(int) = [], {_HINTS}",
    stateful=True,
    asynchronous=True,
)
CollectiveReduce.shape(shape_rules.same_as_first)
CollectiveGather = define_op(
    "CollectiveGather",
    "input: T -> data: T",
    f"T: {{{_NUMBERS}}}, {_GROUP}, shape: shape, {_HINTS}",
    stateful=True,
    asynchronous=True,
)
CollectiveBcastSend = define_op(
    "CollectiveBcastSend",
    "input: T -> data: T",
    f"T: {{bool, {_NUMBERS}}}, {_GROUP}, shape: shape, {_HINTS}",
    stateful=True,
    asynchronous=True,
)
CollectiveBcastRecv = define_op(
    "CollectiveBcastRecv",
    "-> data: T",
    f"T: {{bool, {_NUMBERS}}}, {_GROUP}, shape: shape, {_HINTS}",
    stateful=True,
    asynchronous=True,
)
for _op in (CollectiveReduce, CollectiveGather, CollectiveBcastSend, CollectiveBcastRecv):
    _op.not_differentiable()


@CollectiveReduce.host_kernel
def _(input: Array, *, merge_op: bytes, final_op: bytes, ctx: StepHostContext) -> Any:
    def combine(values: Sequence[Any]) -> Sequence[Any]:
        _same_shapes(values)
        with np.errstate(all="ignore"):
            merged = functools.reduce(_MERGE[merge_op], values)
            if final_op == b"Div":
                merged = _divided(merged, len(values))
        return [np.array(merged, input.dtype) for _ in values]

    return _meet(ctx, np.asarray(input), combine)


def _divided(merged: HostArray, count: int) -> HostArray:
    """Whole numbers towards zero, as C++ divides them."""
    if merged.dtype.kind == "i":
        divided: HostArray = np.sign(merged) * (np.abs(merged) // count)
        return divided
    quotient: HostArray = merged / np.asarray(count, merged.dtype)
    return quotient


@CollectiveGather.shape
def _(input: TensorShape, *, shape: TensorShape) -> TensorShape:
    return shape


@CollectiveGather.host_kernel
def _(input: Array, *, shape: TensorShape, ctx: StepHostContext) -> Any:
    """The rows of all members, in the order of their devices."""

    def combine(values: Sequence[Any]) -> Sequence[Any]:
        _same_shapes(values)
        joined = np.concatenate(values)
        if not shape.is_compatible_with(joined.shape):
            message = f"the members' rows make the shape {list(joined.shape)}; the attribute `shape` is {shape}"
            raise InvalidArgumentError(None, None, message)
        return [joined.copy() for _ in values]

    ctx.check(input.ndim > 0, "a scalar has no rows to gather")
    return _meet(ctx, np.asarray(input), combine)


def _explicit(*_: TensorShape, shape: TensorShape) -> TensorShape:
    return shape


CollectiveBcastSend.shape(_explicit)
CollectiveBcastRecv.shape(_explicit)


def _copied(members: Sequence[Any]) -> Sequence[Any]:
    given = [member.value for member in members if member.value is not None]
    if len(given) != 1:
        raise InvalidArgumentError(None, None, f"one member of a broadcast sends; {len(given)} of {len(members)} do")
    return [given[0].copy() for _ in members]


def _check_sent(value: HostArray, shape: TensorShape, ctx: StepHostContext) -> None:
    fits = shape.is_compatible_with(value.shape)
    ctx.check(fits, f"the attribute `shape` is {shape}, and a tensor of shape {list(value.shape)} is sent")


@CollectiveBcastSend.host_kernel
def _(input: Array, *, shape: TensorShape, ctx: StepHostContext) -> Any:
    _check_sent(np.asarray(input), shape, ctx)
    return _meet(ctx, _Copy(np.asarray(input)), _copied)


@CollectiveBcastRecv.host_kernel
def _(*, ctx: StepHostContext) -> Any:
    return _meet(ctx, _Copy(None), _copied)
