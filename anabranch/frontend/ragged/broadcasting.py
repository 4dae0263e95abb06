"""Elementwise functions of ragged tensors: of one, of two that broadcast, of several of one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.values import PassedOn, TensorLike, TensorOrRagged
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged, match_row_splits_dtypes, splits_dtype_of
from anabranch.frontend.ragged.levels import operand, picked, stretched
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor


def of_flat_values(function: Callable[..., Any], x: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> TensorOrRagged:
    """The function of the innermost values, in the partition of `x`."""
    ragged = convert_to_ragged(x)
    return ragged.with_flat_values(function(ragged.flat_values, *args, **kwargs))


def of_lists(
    function: Callable[..., Any], values: Sequence[TensorLike], *args: PassedOn, **kwargs: PassedOn
) -> TensorOrRagged:
    """A function of a list of ragged tensors of one partition, and of tensors that it takes as they are."""
    tensors = match_row_splits_dtypes(*map(convert_to_ragged, values))
    nested = [tensor.nested_row_splits for tensor in tensors if is_ragged(tensor)]
    checks = partitions.require_same_splits(nested)
    flat = [tensor.flat_values if is_ragged(tensor) else tensor for tensor in tensors]
    with get_default_graph().control_dependencies(checks):
        result = function(flat, *args, **kwargs)
    return RaggedTensor.from_nested_row_splits(result, nested[0], validate=False)


def of_two(
    function: Callable[..., Any], x: TensorLike, y: TensorLike, *args: PassedOn, **kwargs: PassedOn
) -> TensorOrRagged:
    """A function of two values, at least one of them ragged, that broadcast.

    Raises:
        ValueError: a rank is not known, or the splits have different dtypes.

    Raises (in the step):
        InvalidArgumentError: the shapes do not broadcast.
    """
    a, b = _both(x, y)
    if is_ragged(a) and not is_ragged(b) and _lies_within(b, a):
        return a.with_flat_values(function(a.flat_values, b, *args, **kwargs))
    if is_ragged(b) and not is_ragged(a) and _lies_within(a, b):
        return b.with_flat_values(function(a, b.flat_values, *args, **kwargs))
    with name_scope(None, "RaggedBroadcast"):
        of_a, of_b, nested = _broadcast(a, b)
    result = function(of_a, of_b, *args, **kwargs)
    return RaggedTensor.from_nested_row_splits(result, nested, validate=False)


def _both(x: TensorLike, y: TensorLike) -> tuple[Any, Any]:
    """Both as tensors or ragged tensors; a plain value takes the dtype of the other where it can."""
    if is_ragged(x):
        a = convert_to_ragged(x)
        b = convert_to_ragged(y, preferred_dtype=a.dtype)
    else:
        b = convert_to_ragged(y)
        a = convert_to_ragged(x, preferred_dtype=b.dtype)
    a, b = match_row_splits_dtypes(a, b)
    return a, b


def _lies_within(dense: Tensor, ragged: RaggedTensor) -> bool:
    """Whether a tensor broadcasts against the inner dimensions of a ragged one alone."""
    rank, inner = dense.shape.ndims, ragged.flat_values.shape.ndims
    return rank == 0 or (rank is not None and inner is not None and rank < inner)


def _broadcast(a: TensorLike, b: TensorLike) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The innermost values of both in their common partition, whose splits come third."""
    rank_a, rank_b = a.shape.ndims, b.shape.ndims
    if rank_a is None or rank_b is None:
        raise ValueError("Unable to broadcast: unknown rank; give the tensors shapes of known rank")
    if _one_partition(a, b):
        same = partitions.require_same_splits([a.nested_row_splits, b.nested_row_splits], _MISMATCH)
        return partitions.after(same, a.flat_values), b.flat_values, list(a.nested_row_splits)
    rank, dtype = max(rank_a, rank_b), splits_dtype_of(a, b)
    leading = [rank - rank_a, rank - rank_b]
    depth = max(ahead + t.ragged_rank + 1 for ahead, t in zip(leading, (a, b), strict=True) if is_ragged(t))
    x, y = (operand(t, ahead, depth, dtype) for ahead, t in zip(leading, (a, b), strict=True))
    checks: list[Operation] = []
    nested: list[Tensor] = []
    for axis in range(depth):
        x, y, lengths, more = stretched(x, y, axis)
        checks += more
        if axis:
            nested.append(partitions.splits_of_lengths(lengths))
    return partitions.after(checks, picked(x.values, x.at)), picked(y.values, y.at), nested


_MISMATCH = "Unable to broadcast: dimension size mismatch"


def _one_partition(a: TensorLike, b: TensorLike) -> bool:
    """Whether two ragged tensors can only have one partition: as many dimensions, and a known number of rows not 1."""
    if not (is_ragged(a) and is_ragged(b)) or a.ragged_rank != b.ragged_rank or a.shape.ndims != b.shape.ndims:
        return False
    if all(s is t for s, t in zip(a.nested_row_splits, b.nested_row_splits, strict=True)):
        return True
    rows = [t.shape.as_list()[0] for t in (a, b)]
    return None not in rows and rows[0] == rows[1]


def map_flat_values(op: Callable[..., Any], *args: PassedOn, **kwargs: PassedOn) -> TensorOrRagged:
    """`op` of the innermost values of ragged tensors, in their partition.

    Args:
        op: a function of tensors that keeps the first dimension.
        args, kwargs: its arguments; ragged tensors among them, and in lists among them, are of one partition.

    Returns:
        A RaggedTensor; what `op` gives where no argument is ragged.

    Raises (in the step):
        InvalidArgumentError: the partitions differ.

    Example:
        >>> ragged = tf.ragged.constant([[1, 2], [3]])
        >>> sess.run(tf.ragged.map_flat_values(tf.multiply, ragged, 10)).to_list()
        [[10, 20], [30]]
    """
    found: list[Any] = []
    flat_args = [_flattened(arg, found) for arg in args]
    flat_kwargs = {key: _flattened(value, found) for key, value in kwargs.items()}
    if not found:
        return op(*args, **kwargs)
    match_row_splits_dtypes(*found)
    nested = [tensor.nested_row_splits for tensor in found]
    with get_default_graph().control_dependencies(partitions.require_same_splits(nested)):
        result = op(*flat_args, **flat_kwargs)
    return RaggedTensor.from_nested_row_splits(result, nested[0], validate=False)


def _flattened(value: PassedOn, found: list[Any]) -> Any:
    """An argument with innermost values in place of ragged tensors, which are added to `found`."""
    if is_ragged(value):
        ragged = convert_to_ragged(value)
        found.append(ragged)
        return ragged.flat_values
    if isinstance(value, list | tuple):
        return type(value)([_flattened(element, found) for element in value])
    if isinstance(value, dict):
        return {key: _flattened(element, found) for key, element in value.items()}
    return value
