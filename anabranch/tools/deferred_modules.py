"""Private modules that libraries import at their start, and use in parts that programs seldom come to.

Any name of such a module is a class there, from which others may be derived: that anabranch has nothing of the kind is
said when one is called.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from anabranch.core.values import PassedOn

#: of TensorFlow, each with what is in it; TensorFlow Probability imports both
_DEFERRED: Final = ("python.autograph", "python.ops.linalg")


class _Absent(type):
    """The type of classes that stand for absent names."""

    def __call__(cls, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Says that there is no such thing.

        Raises:
            NotImplementedError: always.
        """
        absent = next(base for base in cls.__mro__ if "_path" in vars(base))
        raise NotImplementedError(f"anabranch has no tensorflow.{vars(absent)['_path']}, which {cls.__name__} needs")


class DeferredModule(ModuleType):
    """Has every name, as a class that cannot be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        path = f"{self.__name__}.{name}"
        value = self.__dict__[name] = _Absent(name, (), {"_path": path, "__doc__": f"Stands for `{path}`."})
        return value


def find_module(path: str) -> ModuleType | None:
    """The module for a path below `tensorflow`; None where it is not deferred."""
    if any(path == one or path.startswith(f"{one}.") for one in _DEFERRED):
        return DeferredModule(path)
    return None
