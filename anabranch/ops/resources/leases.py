"""Leases that tasks share: who is chief, who is there, who has which range of input. The objects: `state.leases`."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.compat import as_text
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object
from anabranch.state.leases import Attendance, Lease, Membership, RangeLeases

_NAMES: Final = "container: string = '', shared_name: string = ''"
_LEASE, _MEMBERS, _ATTENDANCE, _RANGES = "lease", "members", "attendance", "ranges"


def _text(value: Array) -> str:
    return as_text(np.asarray(value, np.object_).reshape(())[()])


def _scalars(*_: TensorShape, ctx: ShapeContext) -> list[TensorShape]:
    return [TensorShape([])] * ctx.output_count


def _life() -> int:
    return secrets.randbits(30)


OpenLease = define_op("_Lease", "-> handle: resource", _NAMES, stateful=True)
OpenLease.shape(shape_rules.scalar)
OpenLease.not_differentiable()


@OpenLease.host_kernel
def _(*, container: bytes, shared_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        return {}, Lease

    return open_object(ctx, _LEASE, plan)


AskForLease = define_op(
    "_AskForLease",
    "handle: resource, who: string, seconds: float64 -> holder: string, term: int64, remaining: float64",
    stateful=True,
    ranks={"who": 0, "seconds": 0},
)
AskForLease.shape(_scalars)
AskForLease.not_differentiable()


@AskForLease.host_kernel
def _(handle: ResourceHandle, who: Array, seconds: Array, *, ctx: StepHostContext) -> Any:
    lease: Lease = object_behind(ctx, handle, _LEASE)
    held = lease.ask(_text(who), float(seconds), time.monotonic())
    return held.holder.encode(), np.int64(held.term), np.float64(held.seconds)


OpenMembership = define_op("_Membership", "-> handle: resource", _NAMES, stateful=True)
OpenMembership.shape(shape_rules.scalar)
OpenMembership.not_differentiable()


@OpenMembership.host_kernel
def _(*, container: bytes, shared_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        return {}, Membership

    return open_object(ctx, _MEMBERS, plan)


RenewMembership = define_op(
    "_RenewMembership",
    "handle: resource, who: string, seconds: float64 -> members: string, changes: int64",
    stateful=True,
    ranks={"who": 0, "seconds": 0},
)
RenewMembership.not_differentiable()


@RenewMembership.shape
def _(*_: TensorShape) -> list[TensorShape]:
    return [TensorShape([None]), TensorShape([])]


@RenewMembership.host_kernel
def _(handle: ResourceHandle, who: Array, seconds: Array, *, ctx: StepHostContext) -> Any:
    membership: Membership = object_behind(ctx, handle, _MEMBERS)
    members, changes = membership.renew(_text(who), float(seconds), time.monotonic())
    return np.array([name.encode() for name in members], np.object_), np.int64(changes)


OpenAttendance = define_op("_Attendance", "-> handle: resource", _NAMES, stateful=True)
OpenAttendance.shape(shape_rules.scalar)
OpenAttendance.not_differentiable()


@OpenAttendance.host_kernel
def _(*, container: bytes, shared_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        return {}, lambda: Attendance(_life())

    return open_object(ctx, _ATTENDANCE, plan)


Attend = define_op(
    "_Attend",
    "handle: resource, seconds: float64, anew: bool -> expected: int32, version: int64",
    "worker: int >= 0, workers: int >= 1",
    stateful=True,
    ranks={"seconds": 0, "anew": 0},
)
Attend.shape(_scalars)
Attend.not_differentiable()


@Attend.host_kernel
def _(handle: ResourceHandle, seconds: Array, anew: Array, *, worker: int, workers: int, ctx: StepHostContext) -> Any:
    attendance: Attendance = object_behind(ctx, handle, _ATTENDANCE)
    expected, version = attendance.attend(worker, workers, float(seconds), bool(anew), time.monotonic())
    return np.int32(expected), np.int64(version)


OpenRanges = define_op(
    "_RangeLeases",
    "-> handle: resource",
    f"examples: int >= 1, size: int >= 1, epochs: int >= 1, {_NAMES}",
    stateful=True,
)
OpenRanges.shape(shape_rules.scalar)
OpenRanges.not_differentiable()


@OpenRanges.host_kernel
def _(
    *, examples: int, size: int, epochs: int, container: bytes, shared_name: bytes, ctx: StepHostContext
) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        return {"examples": examples, "size": size, "epochs": epochs}, lambda: RangeLeases(
            examples, size, epochs, _life()
        )

    return open_object(ctx, _RANGES, plan)


AskForRange = define_op(
    "_AskForRange",
    "handle: resource, who: string, done: int64, seconds: float64 "
    "-> epoch: int64, ticket: int64, begin: int64, end: int64",
    stateful=True,
    ranks={"who": 0, "done": 1, "seconds": 0},
)
AskForRange.shape(_scalars)
AskForRange.not_differentiable()


@AskForRange.host_kernel
def _(handle: ResourceHandle, who: Array, done: Array, seconds: Array, *, ctx: StepHostContext) -> Any:
    ranges: RangeLeases = object_behind(ctx, handle, _RANGES)
    if np.size(done) not in (0, 2):
        raise InvalidArgumentError(
            None, ctx.op, f"done is empty, or the ticket and the begin of a range, got {np.size(done)} numbers"
        )
    finished = (int(done[0]), int(done[1])) if np.size(done) else None
    given = ranges.ask(_text(who), finished, float(seconds), time.monotonic())
    return [np.int64(number) for number in given]


ExportRanges = define_op("_ExportRanges", "handle: resource -> state: int64", stateful=True)
ExportRanges.not_differentiable()


@ExportRanges.shape
def _(handle: TensorShape) -> TensorShape:
    return TensorShape([None])


@ExportRanges.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    ranges: RangeLeases = object_behind(ctx, handle, _RANGES)
    return np.array(ranges.export(), np.int64)


ImportRanges = define_op("_ImportRanges", "handle: resource, state: int64 ->", stateful=True, ranks={"state": 1})
ImportRanges.shape(shape_rules.no_outputs)
ImportRanges.not_differentiable()


@ImportRanges.host_kernel
def _(handle: ResourceHandle, state: Array, *, ctx: StepHostContext) -> None:
    ranges: RangeLeases = object_behind(ctx, handle, _RANGES)
    try:
        ranges.restore([int(number) for number in state], _life())
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, str(error)) from error
