"""Transposing, tiling and padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def transpose(
    a: TensorLike, perm: TensorLike | None = None, name: str = "transpose", conjugate: bool = False
) -> Tensor:
    """Permutes the dimensions: dimension i of the result is dimension `perm[i]` of `a`; by default reversed.

    Args:
        a: a tensor of any dtype and shape.
        perm: a permutation of the dimensions, an integer vector; default: the last dimension first.
        name: of the operation.
        conjugate: whether to conjugate complex elements as well.

    Returns:
        A tensor of the dtype of `a`, of shape ``[a.shape[p] for p in perm]``.

    Raises:
        ValueError: `perm` is known to be no permutation of the dimensions.

    Example:
        >>> sess.run(tf.transpose([[1, 2, 3], [4, 5, 6]]))
        array([[1, 4],
               [2, 5],
               [3, 6]], dtype=int32)
    """
    with name_scope(name, "transpose", [a] if isinstance(a, Tensor) else None) as scope:
        tensor = convert_to_tensor(a, name="a")
        op = raw.ConjugateTranspose if conjugate and tensor.dtype.is_complex else raw.Transpose
        if perm is None:
            known = tensor.shape.ndims
            perm = np.arange(known - 1, -1, -1, dtype=np.int32) if known is not None else _reversed_axes(tensor)
        result: Tensor = op(tensor, perm, name=scope)
        return result


def _reversed_axes(tensor: Tensor) -> Tensor:
    count = raw.Rank(tensor)
    result: Tensor = raw.Range(raw.Sub(count, 1), -1, -1)
    return result


def matrix_transpose(a: TensorLike, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Swaps the last two dimensions.

    Raises:
        ValueError: the rank is known and smaller than 2.
    """
    with name_scope(name, values=[a] if isinstance(a, Tensor) else None):
        tensor = convert_to_tensor(a, name="a")
        known = tensor.shape.ndims
        if known is not None and known < 2:
            raise ValueError(f"Argument 'a' should be a (batch) matrix, with rank >= 2. Found: {tensor.shape}")
        if known is not None:
            perm: Any = np.array([*range(known - 2), known - 1, known - 2], np.int32)
        else:
            count = raw.Rank(tensor)
            last = raw.Pack([raw.Sub(count, 1), raw.Sub(count, 2)])
            perm = raw.ConcatV2([raw.Range(0, raw.Sub(count, 2), 1), last], 0)
        return transpose(tensor, perm, conjugate=conjugate)


@dispatched
def tile(input: TensorLike, multiples: TensorLike, name: str | None = None) -> Tensor:
    """Repeats a tensor `multiples[i]` times along dimension i.

    Args:
        input: a tensor of any dtype and shape.
        multiples: an integer vector with one number per dimension.
        name: of the operation.

    Returns:
        A tensor of shape ``input.shape * multiples``.

    Raises:
        ValueError: the lengths of `multiples` and of the shape are known to differ.

    Example:
        >>> sess.run(tf.tile([1, 2], [2]))
        array([1, 2, 1, 2], dtype=int32)
    """
    result: Tensor = raw.Tile(input, multiples, name=name)
    return result


def pad(
    tensor: TensorLike,
    paddings: TensorLike,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: TensorLike = 0,
) -> Tensor:
    """Pads a tensor.

    Args:
        tensor: a tensor of any dtype and shape.
        paddings: [rank, 2]: how much goes before and after each dimension.
        mode: "CONSTANT"; "REFLECT" mirrors without the edge, "SYMMETRIC" with it.
        name: of the operation.
        constant_values: the scalar to pad with.

    Returns:
        A tensor of the dtype of `tensor`, larger by the paddings in each dimension.

    Raises:
        ValueError: unknown mode, or paddings that do not fit.

    Example:
        >>> sess.run(tf.pad([1, 2], [[1, 2]]))
        array([0, 1, 2, 0, 0], dtype=int32)
        >>> sess.run(tf.pad([1, 2, 3], [[2, 0]], mode="REFLECT"))
        array([3, 2, 1, 2, 3], dtype=int32)
    """
    kind = mode.upper()
    result: Tensor
    if kind in {"REFLECT", "SYMMETRIC"}:
        result = raw.MirrorPad(tensor, paddings, mode=kind, name=name)
    elif kind != "CONSTANT":
        raise ValueError(f"Unknown padding mode: {mode}")
    elif isinstance(constant_values, Tensor) or np.any(constant_values != 0):
        result = raw.PadV2(tensor, paddings, constant_values, name=name)
    else:
        result = raw.Pad(tensor, paddings, name=name)
    return result
