"""Modules that other packages, and Python, have under another name by now: `sklearn.cross_validation` is one.

They are looked for last, so that a module that is still there is what a program gets.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

#: by the former name: what the module is called now; "" if it is no more, and its names are restored one by one
MOVED: Final = {
    "scipy.misc": "",
    "sklearn.cross_validation": "sklearn.model_selection",
    "sklearn.externals.joblib": "joblib",
    "sklearn.externals.six": "six",
    "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve": "sklearn.model_selection",
}


class _MovedModule(ModuleType):
    """Gives the names of the module that took its place."""

    def __init__(self, name: str, now: ModuleType) -> None:
        super().__init__(name, f"Stands for `{name}`, which is `{now.__name__}` now.")
        self._now = now
        self.__all__ = list(getattr(now, "__all__", None) or [one for one in dir(now) if one[0] != "_"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)

    def __dir__(self) -> list[str]:
        return dir(self._now)


class _FormerNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        now = MOVED.get(fullname)
        if now is None or (now and importlib.util.find_spec(now) is None):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        now = MOVED[spec.name]
        if not now:
            return None
        self._tell(spec.name)
        return _MovedModule(spec.name, importlib.import_module(now))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def restore(tell: Callable[[str], None]) -> Callable[[], None]:
    """Lets programs import modules under their former names; returns the function that undoes it.

    Args:
        tell: is called with the name of a module that the program imports so.
    """
    finder = _FormerNames(tell)
    sys.meta_path.append(finder)

    def undo() -> None:
        sys.meta_path.remove(finder)
        for name in MOVED:
            if isinstance(sys.modules.get(name), _MovedModule):
                del sys.modules[name]

    return undo
