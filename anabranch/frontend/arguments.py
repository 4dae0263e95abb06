"""What arguments may be, by a name for each kind; and arguments that have a deprecated second name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeAlias

from anabranch.core.device import DeviceSpec
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.scopes import DeviceFunction

#: one number for all axes, or one for each
PerAxis: TypeAlias = int | Iterable[SupportsIndex]
#: how far an input is padded: as a rule of that name says, or by a pair of numbers for each axis
Padding: TypeAlias = str | bytes | Iterable[Iterable[SupportsIndex]]
#: the collections that a variable or a result is added to
CollectionNames: TypeAlias = str | Iterable[str]
#: what says where an operation or a copy of a variable is to be
DeviceLike: TypeAlias = DeviceSpec | DeviceFunction | str
#: the types of several components, or that of the only one
DTypes: TypeAlias = "DTypeLike | Iterable[DTypeLike]"
#: the shapes of several components, or that of the only one
Shapes: TypeAlias = "ShapeLike | Iterable[ShapeLike]"
#: the names of several components, or that of the only one
Names: TypeAlias = str | Iterable[str]
#: what a layer applies to its outputs: a function of a tensor, or the name of one
Activation: TypeAlias = Callable[..., Any] | str
#: what gives a variable its first value: a function of a shape, a class of such functions, a name of one, or the value
InitializerLike: TypeAlias = "Callable[..., Any] | str | TensorLike"
#: a function of a shape and a dtype that says how many parts a variable has along each axis
Partitioner: TypeAlias = Callable[..., Any]


def one_of(name: str, value: PassedOn, old_name: str, old_value: PassedOn) -> Any:
    """The value of an argument that has a second, mostly deprecated, name.

    Raises:
        ValueError: both are given.
    """
    if old_value is None:
        return value
    if value is not None:
        raise ValueError(f"Cannot specify both {old_name!r} and {name!r}: they are two names of one argument")
    return old_value
