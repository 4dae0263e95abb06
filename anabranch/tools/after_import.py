"""Changes a module once a program imports it, so that a process that never does so does not pay for it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Undo = Callable[[], object]


def change(name: str, changed: Callable[[ModuleType], Undo]) -> Undo:
    """Calls `changed` with the module of that name, now or as soon as it is imported.

    Args:
        name: the full name of the module.
        changed: returns the function that undoes it.

    Returns:
        What undoes both the change and the waiting for it.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        return changed(loaded)
    finder = _Finder(name, changed)
    sys.meta_path.insert(0, finder)

    def undo() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for one in finder.undo:
            one()

    return undo


class _Finder(importlib.abc.MetaPathFinder):
    """Lets one module be found and loaded as ever, and changes it then."""

    def __init__(self, name: str, changed: Callable[[ModuleType], Undo]) -> None:
        self.undo: list[Undo] = []
        self._name = name
        self._changed = changed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, lambda module: self.undo.append(self._changed(module)))
        return spec


class _Loader(importlib.abc.Loader):
    """Another loader, and a function that is called when it is done."""

    def __init__(self, loader: importlib.abc.Loader, done: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._done(module)
