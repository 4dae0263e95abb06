"""Classes and modules that stand for names of TensorFlow that are refused.

Programs ask more of a class than to make an object of it: whether something is one (`isinstance(strategy,
tf.distribute.MirroredStrategy)`), or they derive from it. Nothing is an instance of a class that is refused, so both
can be answered; the reason for which there is none is told where one is called, or an attribute of it is asked for.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from types import ModuleType
from typing import Any, Final

from anabranch.core import absent_names
from anabranch.core.refused_names import refusal_of
from anabranch.core.values import PassedOn

#: modules whose names with capitals are no classes
_OF_CONSTANTS: Final = frozenset(["lite.constants"])
_OF_FUNCTIONS: Final = "raw_ops"
#: what of `tf.contrib`, which never had a list, is a module
_CONTRIBUTED: Final = frozenset(["contrib.distribute", "contrib.lite"])


class StandInClass(ABCMeta):
    """The type of classes that stand for absent ones, and of those that programs derive from them.

    It is a type of abstract classes, so that a class may derive from such a one as well.

    Attributes:
        _why: said of the class that stands for an absent one; others find it among their bases.
    """

    _why: str

    def __call__(cls, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Says why there is no such class.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(cls._told())

    def __getattr__(cls, name: str) -> Any:
        """Says why there is no such class, where Python would say that it has no such attribute.

        Raises:
            AttributeError: always.
        """
        if name == "_why" or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise AttributeError(cls._told(), name=name)

    def _told(cls) -> str:
        absent = next(base for base in cls.__mro__ if "_why" in vars(base))
        return cls._why if absent is cls else f"{cls._why} ({cls.__qualname__} derives from it)"


class StandInModule(ModuleType):
    """A module of refused names: the classes among them are there, the others say why they are not."""

    def __init__(self, path: str) -> None:
        super().__init__(f"tf.{path}", f"Stands for `tf.{path}`.")
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = stand_in(self._path, name)
        if value is None:
            raise AttributeError(absent_names.absence(self._path, name, dir(self)), name=name)
        return value

    def __dir__(self) -> list[str]:
        return [name for name in absent_names.names().get(self._path, ()) if stand_in(self._path, name) is not None]


@functools.cache
def stand_in(module: str, name: str) -> StandInClass | StandInModule | None:
    """What stands for a refused name, always the same object; None where the name is not refused, or is a function.

    Args:
        module: the public module, such as "distribute"; "" for the package.
        name: the name in it. One with a capital counts as a class, since calling it is all that programs do with a
            function of such a name.
    """
    path = f"{module}.{name}" if module else name
    if not absent_names.is_tensorflows(module, name) or refusal_of(path) is None or module == _OF_FUNCTIONS:
        return None
    if path in absent_names.names() or path in _CONTRIBUTED:
        return StandInModule(path)
    if not name[0].isupper() or module in _OF_CONSTANTS:
        return None
    why = absent_names.absence(module, name)
    return StandInClass(name, (), {"_why": why, "__doc__": f"Stands for `tf.{path}`.", "__module__": f"tf.{module}"})


def stands_in(value: object) -> bool:
    """Whether a value is what `stand_in` gives."""
    return isinstance(value, StandInModule) or (type(value) is StandInClass and "_why" in vars(value))
