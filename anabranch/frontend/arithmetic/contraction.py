"""Sums of products over named or numbered dimensions: `einsum` and `tensordot`."""

from __future__ import annotations

import re
import string
from typing import Any

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import matmul as products

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def einsum(equation: str, *inputs: TensorLike, **kwargs: str | None) -> Tensor:
    """The sum of products that an equation describes, such as ``"ij,jk->ik"``.

    Args:
        equation: one term of letters per input, one letter per dimension; behind ``->`` those of the result. Letters
            that the result lacks are summed over. Without ``->`` the result has, in alphabetic order, the letters that
            stand once. ``...`` stands for further dimensions, which broadcast.
        inputs: tensors of one dtype.
        name: the operation's name, by keyword.

    Returns:
        A tensor of the inputs' dtype, with the dimensions that the equation names behind ``->``.

    Raises:
        ValueError: the equation cannot be read, or does not fit the inputs.
        TypeError: an unknown keyword.

    Example:
        >>> matrix, vector = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([1.0, 10.0])
        >>> sess.run(tf.einsum("ij,j->i", matrix, vector))
        array([21., 43.], dtype=float32)
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"invalid keyword arguments for this function: {', '.join(sorted(kwargs))}")
    full = _completed(equation, len(inputs))
    with name_scope(name, "einsum", list(inputs)) as scope:
        tensors = [convert_to_tensor(t) for t in inputs]
        result: Tensor = products.Einsum(tensors, equation=full, name=scope)
        return result


def _completed(equation: str, count: int) -> str:
    """The equation without blanks, and with its result.

    Raises:
        ValueError: it cannot be read, or has another number of terms than `count`.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        if _TERM.fullmatch(term) is None:
            raise ValueError(
                f"cannot read the term {term!r} of the equation {equation!r}; terms are letters and one '...'"
            )
    if len(terms) != count:
        raise ValueError(f"the equation {equation!r} has {len(terms)} terms, got {count} inputs")
    letters = "".join(terms).replace(".", "")
    if not arrow:
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    unknown = set(right.replace(".", "")) - set(letters)
    if unknown:
        raise ValueError(
            f"the result of the equation {equation!r} has the letters {sorted(unknown)}, which no term has"
        )
    return f"{left}->{right}"


def tensordot(a: TensorLike, b: TensorLike, axes: TensorLike, name: str | None = None) -> Tensor:
    """The sum of products over some dimensions of `a` and as many of `b`.

    Args:
        a, b: tensors of one dtype.
        axes: how many of the last dimensions of `a` and the first of `b`; or a pair of lists of dimensions.
        name: of the operation.

    Returns:
        The other dimensions of `a`, then those of `b`.

    Raises:
        ValueError: `axes` does not fit.
        IndexError: an axis is out of range.

    Example:
        >>> sess.run(tf.tensordot([[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0], axes=1))
        array([21., 43.], dtype=float32)
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, dtype_hint=a.dtype.base_dtype, name="b")
        known = constant_value(axes) if isinstance(axes, Tensor) else axes
        if known is None or a.shape.ndims is None or b.shape.ndims is None:
            return _by_matrices(a, b, axes if known is None else known, scope)
        of_a, of_b = _axis_lists(a.shape.ndims, b.shape.ndims, known)
        letters = iter(string.ascii_letters)
        term_a = [next(letters) for _ in range(a.shape.ndims)]
        term_b = [next(letters) for _ in range(b.shape.ndims)]
        for i, j in zip(of_a, of_b, strict=True):
            term_b[j] = term_a[i]
        result = [c for i, c in enumerate(term_a) if i not in of_a] + [c for j, c in enumerate(term_b) if j not in of_b]
        equation = f"{''.join(term_a)},{''.join(term_b)}->{''.join(result)}"
        product: Tensor = products.Einsum([a, b], equation=equation, name=scope)
        return product


def _axis_lists(rank_a: int, rank_b: int, axes: TensorLike) -> tuple[list[int], list[int]]:
    if _is_count(axes):
        count = int(axes)
        if not 0 <= count <= min(rank_a, rank_b):
            raise ValueError(f"axes = {count} must be between 0 and the ranks {rank_a} and {rank_b}")
        return list(range(rank_a - count, rank_a)), list(range(count))
    of_a, of_b = _axis_pair(axes)
    for axes_of_one, rank in ((of_a, rank_a), (of_b, rank_b)):
        if any(not -rank <= i < rank for i in axes_of_one):
            raise IndexError(f"the axes {axes_of_one} are not in [{-rank}, {rank})")
    return [i % rank_a for i in of_a], [j % rank_b for j in of_b]


def _is_count(axes: TensorLike) -> bool:
    return not isinstance(axes, list | tuple) and np.ndim(axes) == 0


def _axis_pair(axes: TensorLike) -> tuple[list[int], list[int]]:
    if len(axes) != 2:
        raise ValueError(f"'axes' must be an integer or have length 2, got {axes!r}")
    of_a, of_b = ([int(i) for i in np.reshape(part, -1)] for part in axes)
    if len(of_a) != len(of_b):
        raise ValueError(f"different number of contraction axes: {of_a} and {of_b}")
    return of_a, of_b


# ---------------------------------------------------------------------- of tensors of unknown rank
def _by_matrices(a: Tensor, b: Tensor, axes: TensorLike, name: str) -> Tensor:
    """The product of two matrices, whose dimensions are the free ones and the summed ones, each flattened."""
    of_a: Any
    of_b: Any
    if isinstance(axes, Tensor):
        of_a, of_b = raw.Unpack(axes, num=2)
    elif _is_count(axes):
        rank = raw.Rank(a)
        of_a, of_b = raw.Range(raw.Sub(rank, int(axes)), rank, 1), np.arange(int(axes), dtype=np.int32)
    else:
        of_a, of_b = (np.array(part, np.int32) for part in _axis_pair(axes))
    rows, free_a = _as_matrix(a, of_a, True)
    columns, free_b = _as_matrix(b, of_b, False)
    return raw.Reshape(products.MatMul(rows, columns), raw.ConcatV2([free_a, free_b], 0), name=name)  # type: ignore[no-any-return]


def _as_matrix(x: Tensor, axes: TensorLike, free_first: bool) -> tuple[Tensor, Tensor]:
    """`x` as a matrix [free, summed] or [summed, free], and its free dimensions."""
    shape, rank = raw.Shape(x), raw.Rank(x)
    summed = raw.SelectV2(raw.Less(axes, 0), raw.AddV2(axes, rank), axes)
    free = raw.ListDiff(raw.Range(0, rank, 1), summed).out
    parts = [free, summed] if free_first else [summed, free]
    sizes = [raw.Prod(raw.GatherV2(shape, part, 0), [0]) for part in parts]
    matrix = raw.Reshape(raw.Transpose(x, raw.ConcatV2(parts, 0)), raw.Pack(sizes))
    return matrix, raw.GatherV2(shape, free, 0)
