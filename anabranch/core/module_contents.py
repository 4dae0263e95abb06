"""The `__dict__` of a module that looks its names up when they are asked for: all of them, with their values.

Programs go through ``tf.contrib.rnn.__dict__`` for the classes of cells, or take an optimizer from ``vars(tf.train)``.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any, Final

_HELD: Final = vars(ModuleType)["__dict__"]


def held(module: ModuleType) -> dict[str, Any]:
    """What a module holds by now: the dictionary that is its `__dict__` where its class has no other."""
    names: dict[str, Any] = _HELD.__get__(module)
    return names


class ModuleContents(MutableMapping[str, Any]):
    """A module's names with their values, each looked up when it is asked for.

    It is no dictionary, and going through it is safe while names are looked up.

    Args:
        module: `dir` of it lists the names.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getitem__(self, name: str) -> Any:
        """The value of a name.

        Raises:
            KeyError: the module has none such.
        """
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in dir(self._module) if hasattr(self._module, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)
