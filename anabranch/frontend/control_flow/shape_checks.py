"""`assert_shapes`: relations between the shapes of several tensors, checked at once or in every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_ANY_RANK = (Ellipsis, "*")

#: a size, the name of one, or a sign for any
Symbol: TypeAlias = int | str | EllipsisType | None
#: a symbol for each dimension of a tensor; None says nothing of its shape
SymbolicShape: TypeAlias = Iterable[Symbol] | None
#: tensors, each with its symbols
SymbolicShapes: TypeAlias = "Mapping[Any, SymbolicShape] | Iterable[tuple[TensorLike, SymbolicShape]]"


def assert_shapes(
    shapes: SymbolicShapes,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts that dimensions which are given the same symbol have the same size.

    ``assert_shapes([(x, ("N", 2)), (y, ("N",)), (z, ("...", "N"))])``: a number is a size, a name is a size that is
    the same wherever the name stands, None or `.` is any size, and ``*`` or an ellipsis at the front is any number of
    dimensions. A scalar counts as a vector of one element where one symbol is given.

    Args:
        shapes: pairs of a tensor and its symbols, or a dictionary of them.
        data: tensors shown when the step fails; default: the shape that is wrong.

    Raises:
        ValueError: a shape is known to be wrong.
    """
    pairs = list(shapes.items() if isinstance(shapes, Mapping) else shapes)
    text = message or ""
    with name_scope(name, "assert_shapes", None):
        checks = _Checks(data, summarize, text)
        for value, symbols in pairs:
            checks.add(convert_to_tensor(value), symbols)
        return group(*checks.assertions) if checks.assertions else no_op(name="static_checks_determined_all_ok")


class _Checks:
    """The sizes that symbols have been given so far, and what remains to be asserted in the step."""

    def __init__(self, data: Iterable[TensorLike] | None, summarize: int | None, text: str) -> None:
        self.data, self.summarize, self.text = data, summarize, text
        self.assertions: list[Operation] = []
        self.sizes: dict[Any, tuple[Any, str]] = {}  # symbol -> (size, known or a tensor; where it comes from)

    def add(self, tensor: Tensor, symbols: SymbolicShape) -> None:
        """Checks one tensor.

        Raises:
            ValueError: its rank or a size is known to be wrong, or the symbols are not a sequence of symbols.
        """
        if symbols is None:
            return
        wanted = self._symbols(tensor, symbols)
        open_rank = bool(wanted) and _is_open(wanted[0])
        named = wanted[1:] if open_rank else wanted
        rank = tensor.shape.ndims
        shape: Any = raw.Shape(tensor)
        known: list[int | None] = [None] * len(named)
        if len(named) <= 1 and not open_rank and rank in (0, 1, None):
            named, known = named or [1], [1] if rank == 0 else tensor.shape.as_list() if rank == 1 else [None]
            shape = raw.Reshape(shape, [-1]) if rank else raw.Fill([1], 1)
        elif rank is not None:
            self._check_rank(tensor, rank, len(named), open_rank)
            known = tensor.shape.as_list()[rank - len(named) :]
        for i, symbol in enumerate(named):
            place = i - len(named) if open_rank else i
            self._check_size(tensor, place, symbol, known[i], shape)

    def _symbols(self, tensor: Tensor, symbols: SymbolicShape) -> list[Any]:
        if not isinstance(symbols, Iterable):
            raise ValueError(
                f"{self.text}.  Tensor {tensor.name}.  Specified shape must be an iterable.  An iterable has the "
                f"attribute `__iter__` or `__getitem__`.  Received specified shape: {symbols}"
            )
        wanted = [_symbol(s.item() if isinstance(s, np.generic) else s) for s in symbols]
        for i, symbol in enumerate(wanted):
            if i and _is_open(symbol):
                raise ValueError(
                    f"{self.text}.  Tensor {tensor.name} specified shape index {i}.  Symbol `...` or `*` for a "
                    "variable number of unspecified dimensions is only allowed as the first entry"
                )
        return wanted

    def _check_rank(self, tensor: Tensor, rank: int, wanted: int, open_rank: bool) -> None:
        if rank == wanted or (open_rank and rank > wanted):
            return
        least = "at least " if open_rank else ""
        raise ValueError(
            f"{self.text}.  Tensor {tensor.name} must have rank {least}{wanted}.  "
            f"Received rank {rank}, shape {tensor.shape}"
        )

    def _check_size(self, tensor: Tensor, place: int, symbol: Symbol, known: int | None, shape: Tensor) -> None:
        if symbol is None:
            return
        actual: Any = (
            known if known is not None else raw.StridedSlice(shape, [place], _after(place), [1], **_one(place))
        )
        explicit = isinstance(symbol, int)
        if not explicit and symbol not in self.sizes:
            self.sizes[symbol] = (actual, f"Specified by tensor {tensor.name} dimension {place}")
            return
        size, origin = (symbol, "Specified explicitly") if explicit else self.sizes[symbol]
        if isinstance(size, int) and isinstance(actual, int):
            if size != actual:
                raise ValueError(
                    f"{self.text}.  {origin}.  Tensor {tensor.name} dimension {place} must have size {size}.  "
                    f"Received size {actual}, shape {tensor.shape}"
                )
            return
        words = [origin, f"Tensor {tensor.name} dimension", place, "must have size", size, "Received shape: ", shape]
        shown = [self.text, *words] if self.data is None else self.data
        self.assertions.append(Assert(raw.Equal(actual, size), shown, self.summarize))


def _symbol(written: Symbol) -> Any:
    """A symbol as it is compared: sizes may be written as text, and `.` stands for any size."""
    if isinstance(written, str):
        return None if written == "." else int(written) if written.isdigit() else written
    return written


def _is_open(symbol: Symbol) -> bool:
    return any(symbol is s for s in _ANY_RANK) or (isinstance(symbol, str) and symbol == "*")


def _after(place: int) -> list[int]:
    return [place + 1]


def _one(place: int) -> dict[str, Any]:
    """The masks of a slice of one element, which for the last one has no end."""
    return {"shrink_axis_mask": 1, "end_mask": int(place == -1)}
