"""tf.test.StubOutForTesting: replaces attributes for the time of a test."""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any, Self


class StubOutForTesting:
    """Replaces attributes, and puts the old ones back.

    Example:
        >>> import math
        >>> with tf.test.StubOutForTesting() as stubs:
        ...     stubs.Set(math, "pi", 3)
        ...     math.pi
        3
        >>> math.pi > 3
        True
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._replaced_smartly: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.CleanUp()

    def CleanUp(self) -> None:
        """Puts everything back."""
        self.SmartUnsetAll()
        self.UnsetAll()

    def Set(self, parent: object, child_name: str, new_child: object) -> None:
        """Replaces an attribute.

        Raises:
            AttributeError: there is no such attribute.
        """
        old = getattr(parent, child_name)
        kept = vars(parent).get(child_name) if isinstance(parent, type) else None
        self._replaced.append((parent, child_name, kept if isinstance(kept, staticmethod | classmethod) else old))
        setattr(parent, child_name, new_child)

    def UnsetAll(self) -> None:
        """Puts back what `Set` replaced, the newest first."""
        _put_back(self._replaced)

    def SmartSet(self, obj: object, attr_name: str, new_attr: object) -> None:
        """Replaces an attribute where it is defined: of a class, in the base that has it.

        Raises:
            AttributeError: there is no such attribute.
        """
        owner = obj
        if inspect.isclass(obj) or attr_name not in getattr(obj, "__dict__", {}):
            bases = inspect.getmro(obj if inspect.isclass(obj) else type(obj))
            owner = next((base for base in bases if attr_name in vars(base)), None)
        if owner is None:
            raise AttributeError(f"{obj!r} has no attribute {attr_name!r} to replace")
        self._replaced_smartly.append((owner, attr_name, vars(owner)[attr_name]))
        setattr(owner, attr_name, new_attr)

    def SmartUnsetAll(self) -> None:
        """Puts back what `SmartSet` replaced, the newest first."""
        _put_back(self._replaced_smartly)


def _put_back(replaced: list[tuple[Any, str, Any]]) -> None:
    while replaced:
        setattr(*replaced.pop())
