"""`tensorflow.python.util.lazy_loader`: modules that are imported when somebody first asks them for a name."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyLoader(ModuleType):
    """Stands for a module until it is used, and puts it in its own place then.

    Args:
        local_name: its name in the module that uses it.
        parent_module_globals: the names of that module.
        name: the full name to import.
    """

    def __init__(self, local_name: str, parent_module_globals: dict[str, Any], name: str) -> None:
        super().__init__(name)
        self._local_name = local_name
        self._parent_module_globals = parent_module_globals

    def _load(self) -> ModuleType:
        module = importlib.import_module(self.__name__)
        self._parent_module_globals[self._local_name] = module
        self.__dict__.update(module.__dict__)
        return module

    def __getattr__(self, item: str) -> Any:
        return getattr(self._load(), item)

    def __dir__(self) -> list[str]:
        return dir(self._load())
