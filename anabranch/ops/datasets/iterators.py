"""Iterators over datasets, and optional elements (WP4.5).

The value of an iterator handle names a `state.iterators.IteratorResource` in the task's containers; so iterators, like
variables, outlive steps.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, boxed
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, NotFoundError, OpError, OutOfRangeError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.arrays.filling import zero_of
from anabranch.ops.datasets.sources import TYPED, dataset_of
from anabranch.state.datasets import Element
from anabranch.state.iterators import IteratorResource

_KIND = "iterator"
_MAYBE_TYPED = "output_types: list(type) >= 0 = [], output_shapes: list(shape) >= 0 = []"
_anonymous = itertools.count()


def _handle_op(name: str, attrs: str) -> OpFunction:
    op = define_op(name, "-> handle: resource", attrs, stateful=True, defers_bodies=True, obeys_requests=True)
    op.shape(shape_rules.scalar)
    return op.not_differentiable()


def _named_handle(*, container: bytes, shared_name: bytes, ctx: OperationContext, xp: ArrayLibrary) -> ResourceHandle:
    return ResourceHandle(container.decode(), shared_name.decode() or ctx.op.name, _KIND, task=ctx.task)


for _name in ("Iterator", "IteratorV2"):
    _handle_op(_name, f"shared_name: string, container: string, {TYPED}").kernel(_named_handle)


def _new_handle(ctx: StepHostContext) -> ResourceHandle:
    handle = ResourceHandle("", f"_anonymous_iterator_{next(_anonymous)}", _KIND, task=ctx.task)
    ctx.containers.object(handle, IteratorResource)
    return handle


AnonymousIterator = _handle_op("AnonymousIterator", TYPED)
AnonymousIteratorV2 = define_op(
    "AnonymousIteratorV2", "-> handle: resource, deleter: variant", TYPED, stateful=True, obeys_requests=True
)
AnonymousIteratorV2.not_differentiable()


@AnonymousIterator.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return _new_handle(ctx)


@AnonymousIteratorV2.shape
def _() -> list[TensorShape]:
    return [shape_rules.SCALAR, shape_rules.SCALAR]


@AnonymousIteratorV2.host_kernel
def _(*, ctx: StepHostContext) -> Any:
    handle = _new_handle(ctx)
    return handle, boxed(handle)


DeleteIterator = define_op(
    "DeleteIterator", "handle: resource, deleter: variant ->", stateful=True, obeys_requests=True
)
DeleteIterator.shape(shape_rules.no_outputs)
DeleteIterator.not_differentiable()


@DeleteIterator.host_kernel
def _(handle: ResourceHandle, deleter: Array, *, ctx: StepHostContext) -> None:
    resource = ctx.containers.find_object(handle)
    if resource is not None:
        resource.close()
        ctx.containers.remove_object(handle)


OneShotIterator = _handle_op(
    "OneShotIterator", f"dataset_factory: func, {TYPED}, container: string = '', shared_name: string = ''"
)


@OneShotIterator.host_kernel
def _(*, dataset_factory: FuncAttr, container: bytes, shared_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    handle = ResourceHandle(container.decode(), shared_name.decode() or ctx.op.name, _KIND, task=ctx.task)
    resource: IteratorResource = ctx.containers.object(handle, IteratorResource)
    body = ctx.op.function(dataset_factory.name)
    resource.initialize_once(lambda: dataset_of(ctx.call(body, [])[0], ctx))
    return handle


MakeIterator = define_op("MakeIterator", "dataset: variant, iterator: resource ->", stateful=True, obeys_requests=True)
MakeIterator.shape(shape_rules.no_outputs)
MakeIterator.not_differentiable()


@MakeIterator.host_kernel
def _(dataset: Array, iterator: ResourceHandle, *, ctx: StepHostContext) -> None:
    ctx.containers.object(iterator, IteratorResource).initialize(dataset_of(dataset, ctx))


# ---------------------------------------------------------------------- elements
def _resource(handle: Array, ctx: StepHostContext) -> IteratorResource:
    """The object behind a handle; a fresh one, which says that it is not initialised, where there is none yet."""
    if not isinstance(handle, ResourceHandle) or handle.kind != _KIND:
        raise InvalidArgumentError(None, ctx.op, f"{ctx.op.type} takes the handle of an iterator, got {handle}")
    resource: IteratorResource = ctx.containers.object(handle, IteratorResource)
    return resource


def checked_element(element: Element, ctx: OperationContext) -> list[Any]:
    """The element as the operation's outputs.

    Raises:
        InvalidArgumentError: it has other types, or shapes that do not fit.
    """
    types, shapes = ctx.op.attrs["output_types"], ctx.op.attrs["output_shapes"]
    if len(element) != len(types):
        message = f"Expected {len(types)} components but the dataset's elements have {len(element)}"
        raise InvalidArgumentError(None, ctx.op, message)
    for i, (value, dtype, shape) in enumerate(zip(element, types, shapes, strict=True)):
        if value.dtype != dtype.as_numpy_dtype:
            message = f"Data type mismatch at component {i}: expected {dtype.name} but got {value.dtype}."
            raise InvalidArgumentError(None, ctx.op, message)
        dims = shape.dims_tuple
        if dims is not None and value.shape != dims and not shape.is_compatible_with(value.shape):
            message = f"Incompatible shapes at component {i}: expected {shape} but got {list(value.shape)}."
            raise InvalidArgumentError(None, ctx.op, message)
    return list(element)


def _get_next(iterator: Array, *, ctx: StepHostContext) -> list[Any]:
    element = _resource(iterator, ctx).next()
    if element is None:
        raise OutOfRangeError(None, ctx.op, "End of sequence")
    return checked_element(element, ctx)


def _element_shapes(iterator: TensorShape, *, output_shapes: list[TensorShape]) -> list[TensorShape]:
    return output_shapes


for _name in ("IteratorGetNext", "IteratorGetNextSync"):
    _op = define_op(_name, "iterator: resource -> components: output_types", TYPED, stateful=True, obeys_requests=True)
    _op.shape(_element_shapes)
    _op.host_kernel(_get_next)
    _op.not_differentiable()


# ---------------------------------------------------------------------- handles as strings
IteratorToStringHandle = define_op(
    "IteratorToStringHandle", "resource_handle: resource -> string_handle: string", stateful=True, obeys_requests=True
)
IteratorToStringHandle.shape(shape_rules.scalar)
IteratorToStringHandle.not_differentiable()


@IteratorToStringHandle.host_kernel
def _(resource_handle: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    _resource(resource_handle, ctx)
    return json.dumps([_KIND, resource_handle.container, resource_handle.name]).encode()


def _from_string(string_handle: Array, *, ctx: StepHostContext) -> ResourceHandle:
    try:
        kind, container, name = json.loads(string_handle.item())
    except (ValueError, TypeError):
        kind = None
    if kind != _KIND:
        raise InvalidArgumentError(
            None, ctx.op, f"{string_handle.item()!r} is no string handle of an iterator; fetch iterator.string_handle()"
        )
    handle = ResourceHandle(container, name, _KIND, task=ctx.task)
    if ctx.containers.find_object(handle) is None:
        raise NotFoundError(None, ctx.op, f"the iterator {name!r} of the string handle does not exist in this session")
    return handle


for _name in ("IteratorFromStringHandle", "IteratorFromStringHandleV2"):
    _op = define_op(
        _name, "string_handle: string -> resource_handle: resource", _MAYBE_TYPED, stateful=True, obeys_requests=True
    )
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_from_string)
    _op.not_differentiable()


def _device(resource: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    """Iterators are in the memory of the host."""
    _resource(resource, ctx)
    return f"{resource.task or '/job:localhost/replica:0/task:0'}/device:CPU:0".encode()


for _name in ("IteratorGetDevice", "ExperimentalIteratorGetDevice"):
    _op = define_op(_name, "resource: resource -> device: string", stateful=True, obeys_requests=True)
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_device)
    _op.not_differentiable()

# ---------------------------------------------------------------------- positions
SerializeIterator = define_op(
    "SerializeIterator",
    "resource_handle: resource -> serialized: variant",
    "external_state_policy: int = 0",
    stateful=True,
    obeys_requests=True,
)
SerializeIterator.shape(lambda resource_handle: shape_rules.SCALAR)
DeserializeIterator = define_op(
    "DeserializeIterator", "resource_handle: resource, serialized: variant ->", stateful=True, obeys_requests=True
)
DeserializeIterator.shape(shape_rules.no_outputs)
_IteratorPosition = define_op(
    "_IteratorPosition", "iterator: resource -> position: string", stateful=True, obeys_requests=True
)
_IteratorPosition.shape(shape_rules.scalar)
_RestoreIterator = define_op(
    "_RestoreIterator",
    "iterator: resource, dataset: N * variant, position: string ->",
    "N: int >= 0",
    stateful=True,
    obeys_requests=True,
)
_RestoreIterator.shape(shape_rules.no_outputs)
for _op in (SerializeIterator, DeserializeIterator, _IteratorPosition, _RestoreIterator):
    _op.not_differentiable()


def _position(handle: Array, ctx: StepHostContext) -> bytes:
    try:
        return _resource(handle, ctx).save()
    except OpError as error:
        error.attribute_to(ctx.op)
        raise


@SerializeIterator.host_kernel
def _(resource_handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    return boxed(_position(resource_handle, ctx))


@DeserializeIterator.host_kernel
def _(resource_handle: ResourceHandle, serialized: Array, *, ctx: StepHostContext) -> None:
    _resource(resource_handle, ctx).restore(serialized.item())


@_IteratorPosition.host_kernel
def _(iterator: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    return _position(iterator, ctx)


@_RestoreIterator.host_kernel
def _(iterator: ResourceHandle, dataset: list[Any], position: Array, *, ctx: StepHostContext) -> None:
    resource = _resource(iterator, ctx)
    if dataset:
        resource.initialize(dataset_of(dataset[0], ctx))
    resource.restore(position.item())


# ---------------------------------------------------------------------- optional elements
@dataclass(frozen=True, slots=True)
class OptionalElement:
    """The value of an optional: an element, or None."""

    element: Element | None

    def zeroed(self) -> OptionalElement:
        """An optional like this one, with zeros for numbers."""
        return OptionalElement(None if self.element is None else tuple(map(_zeros_like, self.element)))


def _zeros_like(value: Array) -> Any:
    element = value.item() if value.dtype == np.object_ and value.ndim == 0 else value
    return boxed(element.zeroed()) if hasattr(element, "zeroed") else np.full_like(value, zero_of(value.dtype))


OptionalFromValue = define_op(
    "OptionalFromValue", "components: Toutput_types -> optional: variant", "Toutput_types: list(type) >= 1"
)
OptionalNone = define_op("OptionalNone", "-> optional: variant")
OptionalHasValue = define_op("OptionalHasValue", "optional: variant -> has_value: bool")
OptionalGetValue = define_op("OptionalGetValue", "optional: variant -> components: output_types", TYPED)
IteratorGetNextAsOptional = define_op(
    "IteratorGetNextAsOptional", "iterator: resource -> optional: variant", TYPED, stateful=True, obeys_requests=True
)
for _op in (OptionalFromValue, OptionalNone, OptionalHasValue, IteratorGetNextAsOptional):
    _op.shape(shape_rules.scalar)
    _op.not_differentiable()
OptionalGetValue.not_differentiable()


@OptionalFromValue.host_kernel
def _(components: list[Any]) -> OptionalElement:
    return OptionalElement(tuple(components))


@OptionalNone.host_kernel
def _() -> OptionalElement:
    return OptionalElement(None)


@OptionalHasValue.host_kernel
def _(optional: Array) -> bool:
    return optional.item().element is not None


@OptionalGetValue.shape
def _(optional: TensorShape, *, output_shapes: list[TensorShape]) -> list[TensorShape]:
    return output_shapes


@OptionalGetValue.host_kernel
def _(optional: Array, *, ctx: OperationContext) -> list[Any]:
    element = optional.item().element
    if element is None:
        raise InvalidArgumentError(None, ctx.op, "The given optional does not have a value.")
    return checked_element(element, ctx)


@IteratorGetNextAsOptional.host_kernel
def _(iterator: ResourceHandle, *, ctx: StepHostContext) -> OptionalElement:
    return OptionalElement(_resource(iterator, ctx).next())
