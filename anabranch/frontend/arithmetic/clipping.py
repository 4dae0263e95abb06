"""Clipping by value and by norm; norms of lists of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, overload

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.reduction import reduce_sum
from anabranch.frontend.arrays.joining import stack
from anabranch.frontend.arrays.shapes import size
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import logic, math as arithmetic


def _values(t: TensorLike | IndexedSlices) -> Tensor:
    return t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t, name="t")


def _like(t: TensorLike | IndexedSlices, values: Tensor) -> Tensor | IndexedSlices:
    return IndexedSlices(values, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else values


@overload
def clip_by_value(
    t: IndexedSlices, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = ...
) -> IndexedSlices: ...
@overload
def clip_by_value(
    t: TensorLike | IndexedSlices, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = ...
) -> Tensor: ...
@dispatched
def clip_by_value(
    t: TensorLike | IndexedSlices, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = None
) -> Tensor | IndexedSlices:
    """The elements of a tensor or `IndexedSlices`, moved into [clip_value_min, clip_value_max].

    Args:
        t: a tensor of real numbers of any shape, or an `IndexedSlices`.
        clip_value_min, clip_value_max: scalars, or tensors that broadcast to the shape of `t`.
        name: of the operation.

    Returns:
        A tensor (or `IndexedSlices`) of the shape and dtype of `t`.

    Raises:
        ValueError: the bounds have a shape that would make the result's shape differ from that of `t`.

    Example:
        >>> sess.run(tf.clip_by_value([-2.0, 0.5, 3.0], 0.0, 1.0))
        array([0. , 0.5, 1. ], dtype=float32)
    """
    with name_scope(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as scope:
        values = _values(t)
        lowered = arithmetic.Minimum(values, clip_value_max)
        values.shape.assert_is_compatible_with(lowered.shape)
        raised = arithmetic.Maximum(lowered, clip_value_min, name=scope)
        values.shape.assert_is_compatible_with(raised.shape)
        return _like(t, raised)


@overload
def clip_by_norm(
    t: IndexedSlices, clip_norm: TensorLike, axes: TensorLike = ..., name: str | None = ...
) -> IndexedSlices: ...
@overload
def clip_by_norm(
    t: TensorLike | IndexedSlices, clip_norm: TensorLike, axes: TensorLike = ..., name: str | None = ...
) -> Tensor: ...
def clip_by_norm(
    t: TensorLike | IndexedSlices, clip_norm: TensorLike, axes: TensorLike | None = None, name: str | None = None
) -> Tensor | IndexedSlices:
    """`t`, scaled down so that its L2 norm along `axes` (default: all) is at most `clip_norm`.

    Args:
        t: a tensor or `IndexedSlices`.
        clip_norm: a positive scalar.
        axes: the dimensions over which each norm is taken.
        name: of the operation.

    Returns:
        A tensor (or `IndexedSlices`) of the shape and dtype of `t`.

    Raises:
        ValueError: `clip_norm` has a shape that would change that of `t`.

    Example:
        >>> sess.run(tf.clip_by_norm([3.0, 4.0], 1.0))
        array([0.6, 0.8], dtype=float32)
    """
    with name_scope(name, "clip_by_norm", [t, clip_norm]) as scope:
        values = _values(t)
        squares = reduce_sum(arithmetic.Mul(values, values), axes, keepdims=True)
        positive = logic.Greater(squares, raw.ZerosLike(squares))
        # sqrt has no gradient at 0
        safe = raw.Select(positive, squares, raw.OnesLike(squares))
        norm = raw.Select(positive, arithmetic.Sqrt(safe), squares)
        scaled = arithmetic.Mul(values, clip_norm)
        values.shape.assert_is_compatible_with(scaled.shape)
        clipped = arithmetic.RealDiv(scaled, arithmetic.Maximum(norm, clip_norm))
        return _like(t, raw.Identity(clipped, name=scope))


def _checked_list(t_list: Iterable[TensorLike | IndexedSlices]) -> list[Any]:
    if isinstance(t_list, list | tuple):
        return list(t_list)
    raise TypeError(f"t_list should be a sequence of tensors, got {t_list!r}")


def global_norm(t_list: Iterable[TensorLike | IndexedSlices], name: str | None = None) -> Tensor | None:
    """The L2 norm of all elements of a list of tensors and `IndexedSlices`; None elements are left out.

    Args:
        t_list: a list of floating tensors of any shapes, `IndexedSlices` and None.
        name: of the operation.

    Returns:
        A scalar; None if nothing but None is in the list.

    Raises:
        TypeError: `t_list` is not a sequence.

    Example:
        >>> sess.run(tf.global_norm([[3.0], [4.0]]))
        np.float32(5.0)
    """
    present = [t for t in _checked_list(t_list) if t is not None]
    with name_scope(name, "global_norm", present) as scope:
        sums = [reduce_sum(arithmetic.Square(_values(t))) for t in present]
        if not sums:
            return None
        norm: Tensor = arithmetic.Sqrt(reduce_sum(stack(sums)), name=scope)
        return norm


def clip_by_global_norm(
    t_list: Iterable[TensorLike | IndexedSlices],
    clip_norm: TensorLike,
    use_norm: TensorLike | None = None,
    name: str | None = None,
) -> tuple[list[Any], Any]:
    """A list of tensors, all scaled down by one factor so that their global norm is at most `clip_norm`.

    Args:
        t_list: tensors and `IndexedSlices`; None elements stay None.
        clip_norm: a positive scalar.
        use_norm: the global norm, where it is known already.
        name: of the operation.

    Returns:
        The scaled list, and the global norm before. Where that is not finite, the scaled tensors are NaN.

    Raises:
        TypeError: `t_list` is not a sequence.

    Example:
        >>> clipped, norm = tf.clip_by_global_norm([tf.constant([3.0]), tf.constant([4.0])], 1.0)
        >>> sess.run([clipped, norm])
        [[array([0.6], dtype=float32), array([0.8], dtype=float32)], np.float32(5.0)]
    """
    tensors = _checked_list(t_list)
    norm = global_norm(tensors, name) if use_norm is None else convert_to_tensor(use_norm)
    if norm is None:
        return tensors, norm
    present = [t for t in tensors if t is not None]
    with name_scope(name, "clip_by_global_norm", [*present, clip_norm]) as scope:
        one = np.ones((), norm.dtype.as_numpy_dtype)
        smaller = arithmetic.Minimum(arithmetic.RealDiv(one, norm), arithmetic.RealDiv(one, clip_norm))
        # inf - inf and nan - nan are NaN, any other difference 0
        scale = arithmetic.AddV2(arithmetic.Mul(clip_norm, smaller), arithmetic.Sub(norm, norm))
        clipped = [
            None if t is None else _like(t, _scaled(_values(t), scale, f"{scope}_{i}")) for i, t in enumerate(tensors)
        ]
    return clipped, norm


def _scaled(values: Tensor, scale: Tensor, name: str) -> Tensor:
    factor = scale if scale.dtype is values.dtype else arithmetic.Cast(scale, DstT=values.dtype)
    result: Tensor = raw.Identity(arithmetic.Mul(values, factor), name=name)
    return result


def clip_by_average_norm(t: TensorLike | IndexedSlices, clip_norm: TensorLike, name: str | None = None) -> Tensor:
    """`t`, scaled down so that its L2 norm over the number of its elements is at most `clip_norm`."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        count = arithmetic.Cast(size(t), DstT=t.dtype)
        squares = reduce_sum(arithmetic.Mul(t, t))
        inverse = arithmetic.Mul(arithmetic.Rsqrt(squares), count)
        bound = arithmetic.RealDiv(raw.OnesLike(inverse), clip_norm)
        clipped = arithmetic.Mul(arithmetic.Mul(t, clip_norm), arithmetic.Minimum(inverse, bound))
        result: Tensor = raw.Identity(clipped, name=scope)
        return result
