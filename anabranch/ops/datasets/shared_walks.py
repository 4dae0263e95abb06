"""Iterators whose elements several devices take in turn (WP4.5). The objects: `state.shared_walks`."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

from anabranch.core.arrays import Array, boxed
from anabranch.core.dtypes import DType
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, NotFoundError, OutOfRangeError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.datasets.iterators import checked_element
from anabranch.ops.datasets.sources import TYPED, dataset_of
from anabranch.state.shared_walks import SharedWalk

_KIND: Final = "multi-device iterator"
_DEVICES: Final = "devices: list(string) >= 1"
_anonymous = itertools.count()

MultiDeviceIterator = define_op(
    "MultiDeviceIterator",
    "-> handle: resource",
    f"{_DEVICES}, shared_name: string, container: string, {TYPED}",
    stateful=True,
)
MultiDeviceIterator.shape(shape_rules.scalar)
AnonymousMultiDeviceIterator = define_op(
    "AnonymousMultiDeviceIterator", "-> handle: resource, deleter: variant", f"{_DEVICES}, {TYPED}", stateful=True
)
AnonymousMultiDeviceIterator.shape(lambda: [shape_rules.SCALAR, shape_rules.SCALAR])
DeleteMultiDeviceIterator = define_op(
    "DeleteMultiDeviceIterator",
    "multi_device_iterator: resource, iterators: N * resource, deleter: variant ->",
    "N: int >= 0",
    stateful=True,
)
DeleteMultiDeviceIterator.shape(shape_rules.no_outputs)
MultiDeviceIteratorInit = define_op(
    "MultiDeviceIteratorInit",
    "dataset: variant, multi_device_iterator: resource, max_buffer_size: int64 -> incarnation_id: int64",
    stateful=True,
    ranks={"max_buffer_size": 0},
)
MultiDeviceIteratorInit.shape(shape_rules.scalar)
MultiDeviceIteratorGetNextFromShard = define_op(
    "MultiDeviceIteratorGetNextFromShard",
    "multi_device_iterator: resource, shard_num: int32, incarnation_id: int64 -> components: output_types",
    TYPED,
    stateful=True,
    ranks={"shard_num": 0, "incarnation_id": 0},
)
MultiDeviceIteratorToStringHandle = define_op(
    "MultiDeviceIteratorToStringHandle", "multi_device_iterator: resource -> string_handle: string", stateful=True
)
MultiDeviceIteratorToStringHandle.shape(shape_rules.scalar)
MultiDeviceIteratorFromStringHandle = define_op(
    "MultiDeviceIteratorFromStringHandle",
    "string_handle: string -> multi_device_iterator: resource",
    "output_types: list(type) >= 0 = [], output_shapes: list(shape) >= 0 = []",
    stateful=True,
    ranks={"string_handle": 0},
)
MultiDeviceIteratorFromStringHandle.shape(shape_rules.scalar)
for _op in (
    MultiDeviceIterator,
    AnonymousMultiDeviceIterator,
    DeleteMultiDeviceIterator,
    MultiDeviceIteratorInit,
    MultiDeviceIteratorGetNextFromShard,
    MultiDeviceIteratorToStringHandle,
    MultiDeviceIteratorFromStringHandle,
):
    _op.not_differentiable()


@MultiDeviceIterator.host_kernel
def _(*, devices: list[bytes], shared_name: bytes, container: bytes, ctx: StepHostContext) -> ResourceHandle:
    name = shared_name.decode() or ctx.op.name
    handle = ResourceHandle(container.decode(), name, _KIND, task=ctx.task)
    walk: SharedWalk = ctx.containers.object(handle, lambda: SharedWalk(len(devices)))
    if walk.shards != len(devices):
        message = f"the shared iterator {name!r} has {walk.shards} devices, and {ctx.op.name!r} asks for {len(devices)}"
        raise InvalidArgumentError(None, ctx.op, message)
    return handle


@AnonymousMultiDeviceIterator.host_kernel
def _(*, devices: list[bytes], ctx: StepHostContext) -> Any:
    handle = ResourceHandle("", f"_anonymous_multi_device_iterator_{next(_anonymous)}", _KIND, task=ctx.task)
    ctx.containers.object(handle, lambda: SharedWalk(len(devices)))
    return handle, boxed(handle)


@DeleteMultiDeviceIterator.host_kernel
def _(multi_device_iterator: ResourceHandle, iterators: list[Any], deleter: Array, *, ctx: StepHostContext) -> None:
    walk = ctx.containers.find_object(multi_device_iterator)
    if walk is not None:
        walk.close()
        ctx.containers.remove_object(multi_device_iterator)


def _walk(handle: Array, ctx: StepHostContext) -> SharedWalk:
    if not isinstance(handle, ResourceHandle) or handle.kind != _KIND:
        raise InvalidArgumentError(None, ctx.op, f"{ctx.op.type} takes the handle of a {_KIND}, got {handle}")
    walk: SharedWalk | None = ctx.containers.find_object(handle)
    if walk is None:
        message = f"the {_KIND} {handle.name!r} does not exist (any more); get its handle in this step"
        raise NotFoundError(None, ctx.op, message)
    return walk


@MultiDeviceIteratorInit.host_kernel
def _(dataset: Array, multi_device_iterator: Array, max_buffer_size: Array, *, ctx: StepHostContext) -> int:
    return _walk(multi_device_iterator, ctx).begin(dataset_of(dataset, ctx))


@MultiDeviceIteratorGetNextFromShard.shape
def _(
    multi_device_iterator: TensorShape,
    shard_num: TensorShape,
    incarnation_id: TensorShape,
    *,
    output_shapes: list[TensorShape],
) -> list[TensorShape]:
    return output_shapes


@MultiDeviceIteratorGetNextFromShard.host_kernel
def _(
    multi_device_iterator: Array,
    shard_num: Array,
    incarnation_id: Array,
    *,
    output_types: list[DType],
    ctx: StepHostContext,
) -> list[Any]:
    element = _walk(multi_device_iterator, ctx).next(int(shard_num), int(incarnation_id))
    if element is None:
        raise OutOfRangeError(None, ctx.op, "End of sequence")
    return checked_element(element, ctx)


@MultiDeviceIteratorToStringHandle.host_kernel
def _(multi_device_iterator: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    _walk(multi_device_iterator, ctx)
    return json.dumps([_KIND, multi_device_iterator.container, multi_device_iterator.name]).encode()


@MultiDeviceIteratorFromStringHandle.host_kernel
def _(string_handle: Array, *, ctx: StepHostContext) -> ResourceHandle:
    try:
        kind, container, name = json.loads(string_handle.item())
    except (ValueError, TypeError):
        kind = None
    if kind != _KIND:
        message = f"{string_handle.item()!r} is no string handle of a {_KIND}; fetch MultiDeviceIteratorToStringHandle"
        raise InvalidArgumentError(None, ctx.op, message)
    handle = ResourceHandle(container, name, _KIND, task=ctx.task)
    _walk(handle, ctx)
    return handle
