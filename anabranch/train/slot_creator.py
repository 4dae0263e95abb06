"""Slots: variables that an optimizer or a moving average keeps beside a variable, named after it.

The slot ``Momentum`` of a variable ``layer/w`` is called ``layer/w/Momentum``; a second one of that name gets ``_1``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.variables.partitioned import PartitionInfo
from anabranch.frontend.variables.scope import get_variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.growing_parts import GrowingVariable

Initializer = Callable[..., Any]


def create_slot(primary: Variable | Tensor, val: TensorLike, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot of `primary` (a variable or tensor) with the initial value `val` (a tensor, or what converts to one).

    Returns:
        A variable that is not trainable, of the dtype and shape of `val`.
    """
    validate_shape = convert_to_tensor(val).shape.is_fully_defined() if not callable(val) else True
    return _create(primary, val, name, colocate_with_primary, validate_shape=validate_shape)


def create_slot_with_initializer(
    primary: Variable | Tensor,
    initializer: Initializer,
    shape: ShapeLike,
    dtype: DTypeLike,
    name: str,
    colocate_with_primary: bool = True,
) -> Any:
    """A slot of `primary` whose initial value is ``initializer(shape, dtype=dtype)``.

    Where `shape` is not fully known, the initial value takes the shape that `primary` has when it is initialized.
    """
    known = TensorShape(shape)
    dtype = as_dtype(dtype).base_dtype

    def initial_value() -> Any:
        wanted = known.as_list() if known.is_fully_defined() else raw.Shape(_initial_value(primary))
        return initializer(wanted, dtype=dtype)

    return _create(primary, initial_value, name, colocate_with_primary, dtype, known.is_fully_defined())


def create_zeros_slot(
    primary: Variable | Tensor, name: str, dtype: DTypeLike | None = None, colocate_with_primary: bool = True
) -> Any:
    """A slot of `primary` full of zeros, of the shape of `primary` and (default) of its dtype."""
    dtype = as_dtype(primary.dtype if dtype is None else dtype).base_dtype
    return create_slot_with_initializer(primary, zeros, primary.shape, dtype, name, colocate_with_primary)


def zeros(shape: ShapeLike, dtype: DTypeLike, partition_info: PartitionInfo | None = None) -> Tensor:
    """The initializer of a slot that begins with zeros."""
    filled: Tensor = raw.Fill(shape, convert_to_tensor(0, dtype))
    return filled


def _initial_value(primary: Variable | Tensor) -> Tensor:
    return primary if isinstance(primary, Tensor) else primary.initial_value


def _create(
    primary: Variable | Tensor,
    initial_value: TensorLike,
    name: str,
    colocate: bool,
    dtype: DTypeLike | None = None,
    validate_shape: bool = True,
) -> Any:
    graph = primary.graph
    scope = get_variable_scope().name
    full_name = "/".join(part for part in (scope, primary.op.name, name) if part)
    with graph.name_scope(None), _beside(graph, primary if colocate else None):
        if isinstance(primary, GrowingVariable):
            return primary.part.slot(initial_value, full_name)
        slot = Variable(initial_value, trainable=False, name=full_name, dtype=dtype, validate_shape=validate_shape)
    # a second one of that name is another tensor of the checkpoint
    _copy_slice_info(primary, slot, name + slot.op.name.removeprefix(full_name))
    return slot


@contextlib.contextmanager
def _beside(graph: Graph, primary: Variable | Tensor | None) -> Iterator[None]:
    with contextlib.nullcontext() if primary is None else graph.colocate_with(primary):
        yield


def _copy_slice_info(primary: Variable | Tensor, slot: Variable, name: str) -> None:
    """The slot of one part of a partitioned variable is that part of a partitioned slot, for checkpoints."""
    info = getattr(primary, "_save_slice_info", None)
    if info is not None:
        part = type(info)(f"{info.full_name}/{name}", info.full_shape, info.var_offset, info.var_shape)
        slot._set_save_slice_info(part)
