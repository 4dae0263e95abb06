"""What is asked of the equations of a traced program, whose JAX types leave open what every value here has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var

#: a traced program, with its constants or without them
Program: TypeAlias = ClosedJaxpr | Jaxpr
#: an argument or a result of an equation
Atom: TypeAlias = Var | Literal


class Equation(Protocol):
    """One equation: what it computes from what. The `aval` of each argument and result has a shape and a dtype."""

    @property
    def primitive(self) -> Primitive: ...
    @property
    def invars(self) -> Sequence[Any]: ...
    @property
    def outvars(self) -> Sequence[Any]: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
