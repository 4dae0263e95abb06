"""The operators of ragged tensors: functions that the versions for ragged tensors fill in (`ragged.versions`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from anabranch.core.values import TensorLike
from anabranch.graph.dispatch import load_versions
from anabranch.graph.operation import BINARY_OPERATORS


class RaggedOperators:
    """What a ragged tensor does between operators."""

    #: NumPy leaves operators to this class
    __array_priority__ = 100
    #: operator name -> function, filled in by the versions of the functions
    OPERATORS: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __neg__(self) -> Self:
        return self._operated("neg")

    def __abs__(self) -> Self:
        return self._operated("abs")

    def __invert__(self) -> Self:
        return self._operated("invert")

    def _operated(self, operator: str) -> Self:
        load_versions()
        result: Self = self.OPERATORS[operator](self)
        return result

    if TYPE_CHECKING:
        # attached below, one pair for each of BINARY_OPERATORS
        def __add__(self, other: TensorLike) -> Self: ...
        def __radd__(self, other: TensorLike) -> Self: ...
        def __sub__(self, other: TensorLike) -> Self: ...
        def __rsub__(self, other: TensorLike) -> Self: ...
        def __mul__(self, other: TensorLike) -> Self: ...
        def __rmul__(self, other: TensorLike) -> Self: ...
        def __truediv__(self, other: TensorLike) -> Self: ...
        def __rtruediv__(self, other: TensorLike) -> Self: ...
        def __floordiv__(self, other: TensorLike) -> Self: ...
        def __mod__(self, other: TensorLike) -> Self: ...
        def __pow__(self, other: TensorLike) -> Self: ...
        def __lt__(self, other: TensorLike) -> Self: ...
        def __le__(self, other: TensorLike) -> Self: ...
        def __gt__(self, other: TensorLike) -> Self: ...
        def __ge__(self, other: TensorLike) -> Self: ...


def _attach_operators() -> None:
    def operator(name: str) -> Callable[[Any, Any], Any]:
        def apply(self: RaggedOperators, other: TensorLike) -> Any:
            load_versions()
            return RaggedOperators.OPERATORS[name](self, other)

        return apply

    def reflected(name: str) -> Callable[[Any, Any], Any]:
        def apply(self: RaggedOperators, other: TensorLike) -> Any:
            load_versions()
            return RaggedOperators.OPERATORS[name](other, self)

        return apply

    for name in BINARY_OPERATORS:
        if name == "matmul":
            continue  # not of ragged tensors
        setattr(RaggedOperators, f"__{name}__", operator(name))
        if name not in ("lt", "le", "gt", "ge"):
            setattr(RaggedOperators, f"__r{name}__", reflected(name))


_attach_operators()
