"""The submodules that users see (`tf.nn`, `tf.train`, ...): explicit lists of public names, no logic.

Here stands what the package itself needs to show its names: `publish`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from anabranch.core import absent_names

#: what every module with annotations binds beside its own names
_NOT_NAMES: Final = frozenset({"annotations", "TYPE_CHECKING"})


class _PublicPackage(ModuleType):
    """A package that imports some of its public names when they are first asked for.

    A public submodule may have the name of a folder of the package: `tf.train` is `anabranch.api.train`, also after
    `import anabranch.train`, which would bind the folder.
    """

    _modules: dict[str, str]
    _homes: dict[str, str]
    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name in self._modules:
            found: Any = importlib.import_module(self._modules[name])
            _teach(found, name)
        elif name in self._homes:
            found = getattr(importlib.import_module(self._homes[name]), name)
        else:
            raise _no_attribute(self, "", name)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in self._modules and _is_folder(self.__name__, name, value)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


class _PublicModule(ModuleType):
    """A public submodule, which tells of TensorFlow's names that it does not have."""

    _public_path: str

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, self._public_path, name)


def _teach(module: ModuleType, path: str) -> None:
    """Makes a public submodule, and those that it shows, tell of the names that they do not have."""
    module.__class__ = _PublicModule
    vars(module)["_public_path"] = path
    for name, value in list(vars(module).items()):
        inside = isinstance(value, ModuleType) and type(value) is ModuleType and name in vars(module)["__all__"]
        if inside and "__getattr__" not in vars(value):
            _teach(value, f"{path}.{name}")


def _no_attribute(module: ModuleType, path: str, name: str) -> AttributeError:
    if not name.startswith("_") and absent_names.is_tensorflows(path, name):
        # without `obj=`, among whose names Python would look for a similar one
        return AttributeError(absent_names.absence(path, name, dir(module)), name=name)
    return AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


def publish(package: str, *, modules: Iterable[str], names: Mapping[str, Iterable[str]]) -> None:
    """To be called when `package` has loaded: makes it import the rest of its public names when they are asked for.

    Its `__all__` becomes `modules`, `names`, and what it has imported by name.

    Args:
        package: the name of the package.
        modules: the public submodules, each by its path below the package, whose last part is the public name.
        names: other public names, by the path of the module that holds them.
    """
    module = sys.modules[package]
    held = vars(module)
    later = {path.rpartition(".")[2]: f"{package}.{path}" for path in modules}
    homes = {name: f"{package}.{path}" for path, its_names in names.items() for name in its_names}
    for name in later:
        held.pop(name, None)
    imported = {name for name, value in held.items() if name[0] != "_" and not _is_folder(package, name, value)}
    held.update(_modules=later, _homes=homes, __all__=sorted({*(imported - _NOT_NAMES), *later, *homes}))
    module.__class__ = _PublicPackage


def _is_folder(package: str, name: str, value: object) -> bool:
    """Whether `value` is what importing a submodule binds in its package, public or not."""
    return isinstance(value, ModuleType) and value.__name__ == f"{package}.{name}"
