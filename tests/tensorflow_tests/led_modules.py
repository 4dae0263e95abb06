"""The modules that test files find in place of `tensorflow.python`: each leads its names to the public interface.

A name of such a module is, in this order, what `helpers` has for it, what the checkout exports it as
(`exported_names`), what the public counterpart of the module has, a module inside it, and else a placeholder that
skips the test which uses it (`private_names`).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from anabranch.tools import tensorflow_alias
from tests.tensorflow_tests.exported_names import Table
from tests.tensorflow_tests.helpers import HELPERS, PUBLIC_COUNTERPARTS
from tests.tensorflow_tests.private_names import placeholder

#: what test files import instead of `tensorflow`, once their text is changed so
PREFIX: Final = "public_tensorflow"
_MISSING: Final = object()
#: modules of the checkout that are themselves helpers of tests, written on the interface: they are loaded as they are
_LOADED: Final = frozenset({"python.keras.keras_parameterized", "python.keras.testing_utils"})


class RewritingLoader(importlib.machinery.SourceFileLoader):
    """Loads a file with `tensorflow.python` replaced by the modules that lead to the public interface."""

    def get_data(self, path: str) -> bytes:
        return re.sub(rb"\btensorflow\.python\b", f"{PREFIX}.python".encode(), super().get_data(path))

    def path_stats(self, path: object) -> dict[str, float]:
        raise OSError("bytecode is neither read nor written")


class LedModule(ModuleType):
    """One of them. Its names are looked up when they are asked for, and are then its own."""

    def __init__(self, name: str, finder: LedModules) -> None:
        super().__init__(name)
        vars(self)["_finder"] = finder
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        finder: LedModules = vars(self)["_finder"]
        value = vars(self)[name] = finder.value(self.__name__.removeprefix(f"{PREFIX}."), name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Sets a name, in the public module too where a test means what everybody calls."""
        super().__setattr__(name, value)
        public = self._shared()
        if public is not None and not name.startswith("_"):
            vars(self).setdefault("_originals", {}).setdefault(name, getattr(public, name))
            setattr(public, name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        original = vars(self).get("_originals", {}).pop(name, None)
        if original is not None:
            setattr(self._shared(), name, original)

    def _shared(self) -> Any:
        """The public module whose functions tests replace to see what is called; None: they replace them here alone."""
        if self.__name__.removeprefix(f"{PREFIX}.") != "python.platform.tf_logging":
            return None
        finder: LedModules = vars(self)["_finder"]
        return finder.public("logging")


class LedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules below `public_tensorflow`."""

    def __init__(self, tensorflow: ModuleType, table: Table, checkout: Path | None = None) -> None:
        self._tensorflow = tensorflow
        self._table = table
        self._checkout = checkout

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module that the checkout has; None for every other."""
        inside = fullname.removeprefix(PREFIX).removeprefix(".")
        if not fullname.startswith(PREFIX):
            return None
        if inside and inside not in self._table and not (_is_of_messages(inside) and _is_served(inside)):
            return None
        if inside in _LOADED and self._checkout is not None:
            file = str(self._checkout / f"{inside.replace('.', '/')}.py")
            return importlib.util.spec_from_loader(fullname, RewritingLoader(fullname, file))
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if _is_of_messages(spec.name):
            return importlib.import_module(f"{tensorflow_alias.ROOT}.{spec.name.removeprefix(f'{PREFIX}.')}")
        return LedModule(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""

    def value(self, module: str, name: str) -> object:
        """What a name of a module stands for."""
        helper = HELPERS.get(module, {}).get(name, _MISSING)
        if helper is not _MISSING:
            return helper
        kind, _, target = self._table.get(module, {}).get(name, "").partition(" ")
        if kind in ("tf", "raw"):
            return self._exported(kind, target)
        if kind == "module":
            return importlib.import_module(f"{PREFIX}.{target}")
        if module in PUBLIC_COUNTERPARTS:
            found = getattr(self.public(PUBLIC_COUNTERPARTS[module]), name, _MISSING)
            if found is not _MISSING:
                return found
        inside = f"{module}.{name}"
        return importlib.import_module(f"{PREFIX}.{inside}") if inside in self._table else placeholder(inside)

    def _exported(self, kind: str, target: str) -> object:
        """A public name, or a function of `raw_ops`. A file that imports one that is not there has other tests too."""
        try:
            return self.public(target) if kind == "tf" else _by_position(self.public(f"raw_ops.{target}"))
        except AttributeError as error:
            return placeholder(target, absence=str(error))

    def public(self, path: str) -> Any:
        """A public name, or the public module that holds it."""
        value: Any = self._tensorflow
        for part in filter(None, path.split(".")):
            value = getattr(value, part)
        return value


def _is_of_messages(module: str) -> bool:
    """Whether it is one of generated classes of messages, of which the checkout has no Python source."""
    return module.endswith("_pb2")


def _is_served(module: str) -> bool:
    """Whether programs that import this module of TensorFlow's find one."""
    try:
        return importlib.util.find_spec(f"{tensorflow_alias.ROOT}.{module}") is not None
    except ImportError:
        return False


def _by_position(function: Callable[..., object]) -> Callable[..., object]:
    """A function of `raw_ops`, which takes keywords only, as generated modules have it."""
    names = list(inspect.signature(function).parameters)

    def call(*args: object, **kwargs: object) -> object:
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    return call


def install(tensorflow: ModuleType, table: Table, checkout: Path | None = None) -> None:
    """Serves the modules in this process.

    Args:
        tensorflow: the public interface.
        table: which public names the checkout exports.
        checkout: its folder `tensorflow`, of which a few helpers of tests are loaded.
    """
    sys.meta_path.insert(0, LedModules(tensorflow, table, checkout))
