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

from anabranch.tools import after_import

#: by the former name: what the module is called now; "" if it is no more, and its names are restored one by one
MOVED: Final = {
    "scipy.misc": "",
    "scipy.sparse.linalg.eigen": "scipy.sparse.linalg",
    "scipy.sparse.linalg.eigen.arpack": "scipy.sparse.linalg",
    "sklearn.cross_validation": "sklearn.model_selection",
    "sklearn.datasets.base": "sklearn.datasets",
    "sklearn.datasets.samples_generator": "sklearn.datasets",
    "sklearn.externals.joblib": "joblib",
    "sklearn.externals.six": "six",
    "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve": "sklearn.model_selection",
    "sklearn.manifold.t_sne": "sklearn.manifold",
    "sklearn.metrics.classification": "sklearn.metrics",
    "sklearn.metrics.ranking": "sklearn.metrics",
    "sklearn.preprocessing.data": "sklearn.preprocessing",
    "sklearn.preprocessing.label": "sklearn.preprocessing",
    "xml.etree.cElementTree": "xml.etree.ElementTree",
}
#: packages that are plain modules by now, in which nobody would look for a module
_FORMER_PACKAGES: Final = ("scipy.sparse.linalg.eigen",)


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
        return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname in _FORMER_PACKAGES)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        now = MOVED[spec.name]
        if not now:
            return None
        self._tell(spec.name)
        return _MovedModule(spec.name, importlib.import_module(now))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def _make_package(module: ModuleType) -> Callable[[], object]:
    """Lets modules be looked for below a plain module; there are none but the former ones."""
    if hasattr(module, "__path__"):
        return lambda: None
    module.__path__ = []
    return lambda: delattr(module, "__path__")


def restore(tell: Callable[[str], None]) -> Callable[[], None]:
    """Lets programs import modules under their former names; returns the function that undoes it.

    Args:
        tell: is called with the name of a module that the program imports so.
    """
    finder = _FormerNames(tell)
    sys.meta_path.append(finder)
    undo_packages = [after_import.change(name, _make_package) for name in _FORMER_PACKAGES]

    def undo() -> None:
        for one in undo_packages:
            one()
        sys.meta_path.remove(finder)
        for name in MOVED:
            if isinstance(sys.modules.get(name), _MovedModule):
                del sys.modules[name]

    return undo
