"""The public names, each said once: in the stub (`.pyi`) of the module in which users see it.

A stub holds imports, ``from anabranch.frontend.arithmetic.elementwise import add as add``, and other names for what it
imports, ``uniform = random_uniform``, and nothing else. As everywhere in stubs, an import is public if it is said
``as`` itself. Type checkers and editors read the stub as it is. `publish` makes it true when the program runs: a name
is imported from where it stands when somebody first asks for it, so that a program loads what it uses. The line
``__getattr__ = layers`` names an object that is asked for further names, where an optional package has some. The
modules themselves hold a docstring.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from types import ModuleType
from typing import Any, Final

from anabranch.core import absent_names
from anabranch.core.module_contents import ModuleContents, held
from anabranch.core.stand_ins import stand_in

_IMPORT: Final = re.compile(
    r"^from (?P<module>[\w.]+) import (?:\((?P<listed>[^)]*)\)|(?P<one>[^(\n]*))$", re.MULTILINE
)
_NAME: Final = re.compile(r"(?P<there>\w+)(?: as (?P<here>\w+))?")
_OTHER_NAME: Final = re.compile(r"^(?P<public>\w+) = (?P<imported>\w+)$", re.MULTILINE)


class _PublicModule(ModuleType):
    """A module that imports its public names when they are first asked for, and knows which of TensorFlow's are absent.

    A public module may have the name of a folder of the package: `tf.train` is `anabranch.api.train`, also after
    `import anabranch.train`, which would bind the folder.

    Attributes:
        _homes: public name -> the module that it is imported from, and its name there.
        _path: what users write after `tf.`; None until they come by that way.
        _others: the module and name of an object, `__getattr__` in the stub, that is called with names that the stub
            does not list, and lists those that it knows (`listed`); None: there is none.
        _others_first: whether it is asked for those that the stub lists too, which are there without the package.
    """

    _homes: dict[str, tuple[str, str]]
    _path: str | None
    _others: tuple[str, str] | None
    _others_first: bool
    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        is_own = name in self._homes
        if self._others is not None and not name.startswith("_") and (self._others_first or not is_own):
            with contextlib.suppress(AttributeError):
                return imported(*self._others)(name)
        if not is_own:
            refused = None if self._path is None or name.startswith("_") else stand_in(self._path, name)
            if refused is None:
                raise self._no_attribute(name)
            return refused
        module, original = self._homes[name]
        own = module == self.__name__  # a module below this package
        value = importlib.import_module(f"{module}.{original}") if own else imported(module, original)
        held(self)[name] = value
        if self._path is not None and isinstance(value, ModuleType):
            _teach(value, f"{self._path}.{name}" if self._path else name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in self._homes and _is_folder(self.__name__, name, value)):
            super().__setattr__(name, value)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        """All names with their values, which programs go through, and not those alone that were asked for already."""
        return ModuleContents(self)

    def __dir__(self) -> list[str]:
        # a package is bound to what is imported from below it, which users need not see
        inner = {name for name, value in held(self).items() if _is_folder(self.__name__, name, value)}
        others = imported(*self._others).listed() if self._others is not None else ()
        return sorted({*held(self)} - inner | {*self.__all__, *others})

    def _no_attribute(self, name: str) -> AttributeError:
        if self._path is not None and name[0] != "_" and absent_names.is_tensorflows(self._path, name):
            # without `obj=`, among whose names Python would look for a similar one
            return AttributeError(absent_names.absence(self._path, name, dir(self)), name=name)
        seen_as = f"tf.{self._path}" if self._path else self.__name__
        return AttributeError(f"module {seen_as!r} has no attribute {name!r}", name=name, obj=self)


def _teach(module: ModuleType, path: str) -> None:
    """Lets a public module, and those that it holds, know under which path users see them."""
    if not isinstance(module, _PublicModule) or module._path is not None:
        return
    names = held(module)
    names["_path"] = path
    for name in module.__all__:
        if isinstance(value := names.get(name), ModuleType):
            _teach(value, f"{path}.{name}")


def publish(name: str, path: str | None = None, others_first: bool = False) -> None:
    """Gives a module the names of its stub; to be called at its end.

    Args:
        name: the module's `__name__`. Its `__all__` becomes the names of the stub.
        path: what users write after `tf.`; None: what they come by.
        others_first: whether what `__getattr__` in the stub has goes before what the stub lists.
    """
    module = sys.modules[name]
    assert module.__file__ is not None
    with open(f"{module.__file__}i", encoding="utf-8") as stub:
        homes = names_of_stub(stub.read())
    others = homes.pop("__getattr__", None)
    names = held(module)
    for public in homes:
        if public in names and _is_folder(name, public, names[public]):
            del names[public]
    names.update(_homes=homes, _path=path, _others=others, _others_first=others_first, __all__=sorted(homes))
    module.__class__ = _PublicModule


def names_of_stub(text: str) -> dict[str, tuple[str, str]]:
    """The public names of a stub, each with the module that it is imported from, and its name there."""
    homes: dict[str, tuple[str, str]] = {}
    public: dict[str, tuple[str, str]] = {}
    for line in _IMPORT.finditer(text):
        for name in _NAME.finditer(line["listed"] or line["one"]):
            public_name = name["here"] or name["there"]
            homes[public_name] = line["module"], name["there"]
            if name["here"] == name["there"]:
                public[public_name] = homes[public_name]
    public.update((line["public"], homes[line["imported"]]) for line in _OTHER_NAME.finditer(text))
    return public


def imported(module: str, name: str) -> Any:
    """What ``from module import name`` gives: an attribute, or a module below a package."""
    holder = importlib.import_module(module)
    try:
        return getattr(holder, name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def _is_folder(package: str, name: str, value: object) -> bool:
    """Whether `value` is what importing a submodule binds in its package, public or not."""
    return isinstance(value, ModuleType) and value.__name__ == f"{package}.{name}"
