"""Sums of products over named or numbered dimensions: `einsum` and `tensordot`."""

from __future__ import annotations

import re
import string
from typing import Any

import numpy as np

from anabranch.frontend.framework import convert_to_tensor, name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.operation import Tensor
from anabranch.ops import matmul as products

__all__ = ["einsum", "tensordot"]

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """The sum of products that an equation describes, such as ``"ij,jk->ik"``.

    Args:
        equation: one term of letters per input, one letter per dimension; behind ``->`` those of the result. Letters
            that the result lacks are summed over. Without ``->`` the result has, in alphabetic order, the letters that
            stand once. ``...`` stands for further dimensions, which broadcast.
        inputs: tensors of one dtype.
        name: the operation's name, by keyword.

    Raises:
        ValueError: the equation cannot be read, or does not fit the inputs.
        TypeError: an unknown keyword.
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


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """The sum of products over some dimensions of `a` and as many of `b`.

    Args:
        a, b: tensors of one dtype and known ranks.
        axes: how many of the last dimensions of `a` and the first of `b`; or a pair of lists of dimensions.

    Returns:
        The other dimensions of `a`, then those of `b`.

    Raises:
        ValueError: `axes` does not fit, or a rank is not known.
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, a.dtype.base_dtype, name="b")
        if a.shape.ndims is None or b.shape.ndims is None:
            raise ValueError(
                f"the ranks of {a.name} and {b.name} must be known, their shapes are {a.shape} and {b.shape}"
            )
        of_a, of_b = _axis_lists(a.shape.ndims, b.shape.ndims, axes)
        letters = iter(string.ascii_letters)
        term_a = [next(letters) for _ in range(a.shape.ndims)]
        term_b = [next(letters) for _ in range(b.shape.ndims)]
        for i, j in zip(of_a, of_b, strict=True):
            term_b[j] = term_a[i]
        result = [c for i, c in enumerate(term_a) if i not in of_a] + [c for j, c in enumerate(term_b) if j not in of_b]
        equation = f"{''.join(term_a)},{''.join(term_b)}->{''.join(result)}"
        product: Tensor = products.Einsum([a, b], equation=equation, name=scope)
        return product


def _axis_lists(rank_a: int, rank_b: int, axes: Any) -> tuple[list[int], list[int]]:
    known = constant_value(axes) if isinstance(axes, Tensor) else axes
    if known is None:
        raise ValueError(f"the value of axes {axes!r} must be known while the graph is built")
    if np.ndim(known) == 0 and not isinstance(known, list | tuple):
        count = int(known)
        if not 0 <= count <= min(rank_a, rank_b):
            raise ValueError(f"axes = {count} must be between 0 and the ranks {rank_a} and {rank_b}")
        return list(range(rank_a - count, rank_a)), list(range(count))
    if len(known) != 2:
        raise ValueError(f"'axes' must be an integer or have length 2, got {known!r}")
    of_a, of_b = ([int(i) for i in np.reshape(part, -1)] for part in known)
    if len(of_a) != len(of_b):
        raise ValueError(f"different number of contraction axes: {of_a} and {of_b}")
    for found, rank in ((of_a, rank_a), (of_b, rank_b)):
        if any(not -rank <= i < rank for i in found):
            raise ValueError(f"the axes {found} are not in [{-rank}, {rank})")
    return [i % rank_a for i in of_a], [j % rank_b for j in of_b]
