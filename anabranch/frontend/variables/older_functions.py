"""Older forms of `variable_scope` and of partitioned variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from anabranch.core.dtypes import DTypeLike, float32
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import DeviceLike, InitializerLike, Partitioner
from anabranch.frontend.variables.scope import (
    Regularizer,
    VariableScope,
    default_variable_store,
    get_variable_scope,
    variable_scope,
)
from anabranch.frontend.variables.store import Reuse
from anabranch.graph.conversion import convert_to_tensor


@contextlib.contextmanager
def variable_op_scope(
    values: Iterable[TensorLike] | None,
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    initializer: InitializerLike | None = None,
    regularizer: Regularizer | None = None,
    caching_device: DeviceLike | None = None,
    partitioner: Partitioner | None = None,
    custom_getter: Callable[..., Any] | None = None,
    reuse: Reuse = None,
    dtype: DTypeLike | None = None,
    use_resource: bool | None = None,
    constraint: Callable[..., Any] | None = None,
) -> Iterator[VariableScope]:
    """The old form of `variable_scope`, with `values` first."""
    settings = (initializer, regularizer, caching_device, partitioner, custom_getter, reuse, dtype, use_resource)
    with variable_scope(name_or_scope, default_name, values, *settings, constraint=constraint) as scope:
        yield scope


def create_partitioned_variables(
    shape: TensorShape | Sequence[int],
    slicing: list[int],
    initializer: InitializerLike | None,
    dtype: DTypeLike = float32,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    name: str | None = None,
    reuse: Reuse = None,
) -> list[Any]:
    """The parts of a partitioned variable; `slicing` gives the number of parts along each dimension.

    Where the initializer is a value, its dtype is that of the variable, whatever `dtype` says.

    Raises:
        ValueError: the number of dimensions differs, or several dimensions are cut.
    """
    if len(slicing) != len(shape):
        raise ValueError(f"the shape {shape} and the slicing {slicing} must have the same length")
    if min(slicing, default=1) < 1:
        raise ValueError(f"the number of parts along each dimension must be positive, got {slicing}")
    if initializer is not None and not callable(initializer):
        initializer = convert_to_tensor(initializer)
        dtype = initializer.dtype.base_dtype
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        whole = get_variable_scope().get_variable(
            default_variable_store(),
            None,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=trainable,
            partitioner=lambda **_: slicing,
            collections=collections,
        )
        return list(whole)
