"""Tensors that a session keeps between its steps, behind handles: `tf.get_session_handle` and what takes them."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.resources import ResourceHandle
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules

_KIND: Final = "session tensor"
_numbers = itertools.count()

GetSessionHandle = define_op("GetSessionHandle", "value: T -> handle: string", "T: any", stateful=True)
GetSessionHandleV2 = define_op("GetSessionHandleV2", "value: T -> handle: resource", "T: any", stateful=True)
GetSessionTensor = define_op(
    "GetSessionTensor", "handle: string -> value: dtype", "dtype: any", stateful=True, ranks={"handle": 0}
)
DeleteSessionTensor = define_op("DeleteSessionTensor", "handle: string ->", stateful=True, ranks={"handle": 0})
for _op in (GetSessionHandle, GetSessionHandleV2):
    _op.shape(shape_rules.scalar)
GetSessionTensor.shape(lambda _: shape_rules.UNKNOWN)
DeleteSessionTensor.shape(shape_rules.no_outputs)
for _op in (GetSessionHandle, GetSessionHandleV2, GetSessionTensor, DeleteSessionTensor):
    _op.not_differentiable()


def _kept(ctx: StepHostContext, value: Array) -> ResourceHandle:
    """The handle of a new tensor, whose name begins as all do that go with the session."""
    handle = ResourceHandle("", f"{ctx.private_name};{next(_numbers)}", _KIND, task=ctx.task)
    # a copy: what a kernel is given may be somebody's memory
    ctx.containers.object(handle, lambda: np.array(value))
    return handle


def _handle(ctx: StepHostContext, handle: Array) -> ResourceHandle:
    return ResourceHandle("", handle.item().decode(errors="replace"), _KIND, task=ctx.task)


@GetSessionHandle.host_kernel
def _(value: Array, *, ctx: StepHostContext) -> bytes:
    return _kept(ctx, value).name.encode()


@GetSessionHandleV2.host_kernel
def _(value: Array, *, ctx: StepHostContext) -> ResourceHandle:
    return _kept(ctx, value)


@GetSessionTensor.host_kernel
def _(handle: Array, *, dtype: DType, ctx: StepHostContext) -> Any:
    value = ctx.containers.find_object(_handle(ctx, handle))
    if value is None:
        raise _unknown(ctx, handle)
    if value.dtype != dtype.as_numpy_dtype:
        raise InvalidArgumentError(
            None, ctx.op, f"{ctx.op.name!r} asks for {dtype.name}, but {handle.item()!r} holds {value.dtype}"
        )
    return value


@DeleteSessionTensor.host_kernel
def _(handle: Array, *, ctx: StepHostContext) -> None:
    if not ctx.containers.remove_object(_handle(ctx, handle)):
        raise _unknown(ctx, handle)


def _unknown(ctx: StepHostContext, handle: Array) -> InvalidArgumentError:
    return InvalidArgumentError(
        None,
        ctx.op,
        f"The tensor with handle {handle.item()!r} is not in the session store: it was deleted, or another session "
        "keeps it; keep what is to outlive a session in a variable",
    )
