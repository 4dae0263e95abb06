"""Makes `import tensorflow` mean anabranch in this process, so that a TensorFlow 1 program runs unmodified.

`install` puts a finder in front of Python's import system. It serves the module `tensorflow`, its public submodules
(`tensorflow.contrib` among them), and those private modules that public programs use often, each as a module whose
attributes are looked up in modules of anabranch. A name that anabranch lacks is an error where it is used, and a
private module without a counterpart is a ModuleNotFoundError.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any, Final

import anabranch as tf
from anabranch.core import absent_names
from anabranch.core.module_contents import ModuleContents, held
from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.core.stand_ins import stand_in, stands_in
from anabranch.frontend import raw_functions
from anabranch.graph.building import OpFunction
from anabranch.tools import deferred_modules, keras_package, slim_package
from anabranch.tools.private_modules import PRIVATE_MODULES

ROOT: Final = "tensorflow"
#: the version of the interface, which programs compare with
API_VERSION: Final = "1.15.5"
#: spellings of the public interface as a whole, the longest first
_WHOLE: Final = ("_api.v1.compat.v1", "compat.v1", "_api.v1")
#: where Keras was before it was public; its own parts are below `api` and `python`
_CONTRIBUTED_KERAS: Final = re.compile(r"contrib\.keras(\.(api|python)(\.keras)?)?(?=\.|$)")

#: of modules whose names say the same as public ones
_OTHER_SPELLINGS: Final = re.compile(r"^(compat\.v2\.)+|^python\.(?=keras(\.|$))")

#: modules that save the models of Keras, by other names than its own has
_SAVED_KERAS: Final = frozenset(
    f"contrib.saved_model{below}"
    for below in ("", ".python", ".python.saved_model", ".python.saved_model.keras_saved_model")
)
_SAVED_KERAS_NAMES: Final = {
    "save_keras_model": "export_saved_model",
    "load_keras_model": "load_from_saved_model",
}

#: public modules, "" the interface as a whole, that say which version it is
_WITH_VERSION: Final = frozenset(("", "version", "python.framework.versions"))

#: modules of generated wrappers: functions named after operation types
_GENERATED: Final = re.compile(r"python\.ops\.gen_\w+_ops|python\.training\.(?:gen_)?training_ops")
_PACKAGES: Final = frozenset(
    path.rsplit(".", count)[0]
    for path in (*PRIVATE_MODULES, *deferred_modules.DEFERRED)
    for count in range(1, path.count(".") + 1)
)


class AliasModule(ModuleType):
    """A module whose attributes are those of other modules, the first that has them."""

    def __init__(self, name: str, sources: Sequence[Any], renamed: dict[str, str]) -> None:
        super().__init__(name, f"Stands for `{name}` in a program that anabranch runs.")
        self._sources = sources
        self._renamed = renamed
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if _public_path(f"{self.__name__}.{name}") == "":  # the whole, under one of its other spellings
            return importlib.import_module(f"{self.__name__}.{name}")
        wanted = self._renamed.get(name, name)
        for source in self._sources:
            value = getattr(source, wanted, _MISSING)
            if value is not _MISSING and not stands_in(value):
                if isinstance(value, ModuleType) and _has_more_names(_public_path(f"{self.__name__}.{name}")):
                    value = importlib.import_module(f"{self.__name__}.{name}")
                setattr(self, name, value)
                return value
        if not name.startswith("__") and counterpart(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        # of Keras, whose package may have the module and not the name, too
        module = _public_path(self.__name__).removeprefix("compat.v2").lstrip(".")
        if not name.startswith("__") and (refused := stand_in(module, name)) is not None:
            return refused
        raise AttributeError(_absence(f"{self.__name__}.{name}", dir(self)), name=name)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        """All names with their values, which programs go through, and not those alone that were asked for already."""
        return ModuleContents(self)

    def __dir__(self) -> list[str]:
        names = {*held(self), *self._renamed}
        return sorted(names.union(*(dir(source) for source in self._sources)))


_MISSING: Final = object()


def _has_more_names(path: str) -> bool:
    """Whether the alias of a module has names that the module of anabranch, or of Keras, lacks."""
    return path in ("compat", "compat.v2", "version", "compat.v2.version") or keras_package.has_more_names(
        path.removeprefix("compat.v2.")
    )


@functools.cache
def _types_without_case() -> dict[str, str]:
    """Operation types by their names in small letters: `conv3d_backprop_input_v2` is `Conv3DBackpropInputV2`."""
    return {name.lower(): name for name in all_op_defs()}


class _GeneratedWrappers:
    """Functions in the style of generated code: `mat_mul` applies the operation type `MatMul`."""

    def __getattr__(self, name: str) -> Any:
        camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        for candidate in (camel, name, _types_without_case().get(camel.lower(), name)):
            op = find_op_def(candidate)
            if isinstance(op, OpFunction):
                return raw_functions.generated_function(op)
        raise AttributeError(name)


def _public_path(fullname: str) -> str:
    """A module's or name's path below `tensorflow`, "" for the public interface as a whole."""
    path = fullname.removeprefix(ROOT).lstrip(".")
    for whole in _WHOLE:
        if path == whole or path.startswith(f"{whole}."):
            return path[len(whole) :].lstrip(".")
    return _CONTRIBUTED_KERAS.sub("keras", path)


def _absence(fullname: str, present: Iterable[str] = ()) -> str:
    """The message that anabranch has nothing of that name; for a public name, with a way out."""
    path = _OTHER_SPELLINGS.sub("", _public_path(fullname))
    module, _, name = path.rpartition(".")
    is_respelled = path != _public_path(fullname)
    is_of_keras = is_respelled and path.startswith("keras.") and not keras_package.is_installed()
    if is_of_keras or absent_names.is_tensorflows(module, name):
        return absent_names.absence(module, name, present)
    return f"anabranch has no {fullname}{_nearest(_public_path(fullname), name, present)}"


def _nearest(path: str, name: str, present: Iterable[str]) -> str:
    """What may serve instead of a module or a name that TensorFlow has not, or that is private, as a message's end."""
    parent = path.rpartition(".")[0]
    if path.startswith(("python.", "core.")) and name in dir(tf):
        return f"; tf.{name} is there"
    near = difflib.get_close_matches(name, present, n=1, cutoff=0.84)
    if not near and path.startswith(("python.", "core.")):
        beside = {known[len(parent) + 1 :].split(".")[0] for known in PRIVATE_MODULES if known.startswith(f"{parent}.")}
        near = [f"{parent}.{one}" for one in difflib.get_close_matches(name, beside, n=1, cutoff=0.75)]
        near = near or [known for known in PRIVATE_MODULES if known.rpartition(".")[2] == name][:1]
        near = near or difflib.get_close_matches(path, PRIVATE_MODULES, n=1, cutoff=0.88)
        if not near and _public(f"contrib.{name}") is not None:
            return f"; tf.contrib.{name} is there"
        if not near:
            return "; it is private in TensorFlow: look for what it does among the public names, dir(tf)"
    if near:
        return f"; {near[0]} is there"
    is_public = parent in absent_names.names() or parent.split(".")[0] == "contrib"
    holder = f".{parent}" if parent and is_public else ""
    return f"; dir(tf{holder}) lists what is there"


def _names_of(fullname: str) -> set[str]:
    """The names that the module has, of which a program asked for one that is not there; none without the module."""
    served = counterpart(fullname)
    return set() if served is None else {name for source in served[0] for name in dir(source)}


def absence_of(path: str) -> str | None:
    """Why a path that a program writes, "tensorflow.nn.relu", leads nowhere; None where it leads to something.

    Modules are followed, and the attributes of classes; what other objects hold is not asked for, since flags, say,
    come into being as a program runs.
    """
    end = _end_of(path)
    if end is None:
        return None
    inside, sources = end
    return _absence(inside, {name for source in sources for name in dir(source)})


def is_there(path: str) -> bool:
    """Whether a path that a program writes leads to something, as `absence_of` finds out."""
    return _end_of(path) is None


def is_class(path: str) -> bool:
    """Whether a path that a program writes leads to a class, a refused one perhaps, as `core.stand_ins` has them."""
    module, _, name = path.rpartition(".")
    served = counterpart(module)
    sources, renamed = served if served is not None else ([], {})
    return any(isinstance(getattr(source, renamed.get(name, name), None), type) for source in sources)


def _end_of(path: str) -> tuple[str, list[Any]] | None:
    """The first part of a path that is not there, and the modules it was looked for in; None where all are there."""
    module, *names = path.split(".")
    holder: Any = None  # a class, once the path has left the modules
    for at, name in enumerate(names):
        if holder is None:
            inside = f"{module}.{name}"
            sources, renamed = counterpart(module) or ([], {})
            values = (getattr(source, renamed.get(name, name), _MISSING) for source in sources)
            holder = next((value for value in values if value is not _MISSING and not stands_in(value)), _MISSING)
            served = counterpart(inside)
            if served is not None and not any(map(stands_in, served[0])):
                module, holder = inside, None
            elif holder is _MISSING:
                return inside, sources
        elif not isinstance(holder, type | ModuleType):
            return None
        elif not hasattr(holder, name):
            return ".".join((ROOT, *names[: at + 1])), []
        else:
            holder = getattr(holder, name)
    return None


def counterpart(fullname: str) -> tuple[list[Any], dict[str, str]] | None:
    """The modules that stand for a module of TensorFlow and what is renamed in it; None where there are none."""
    path = _public_path(fullname)
    if not path:
        return [tf], {}
    if path in PRIVATE_MODULES:
        sources, renamed = _read_entry(PRIVATE_MODULES[path])
        return (sources, renamed) if sources else None
    if path in _SAVED_KERAS:
        saved = keras_package.find_module("keras.experimental", standing_in)
        return None if saved is None else ([saved], _SAVED_KERAS_NAMES)
    if path.startswith("compat.v2."):
        return _counterpart_of_version_2(path.removeprefix("compat.v2."))
    module = keras_package.find_module(path, standing_in) or deferred_modules.find_module(path)
    if module is not None:
        return [module, *keras_package.more_names(path, standing_in)], {}
    if _GENERATED.fullmatch(path):
        return [_GeneratedWrappers()], {}
    public = _public(path) or slim_package.private_module(path, standing_in)
    if public is not None:
        return [public], {}
    return ([], {}) if path in _PACKAGES else None


def _counterpart_of_version_2(path: str) -> tuple[list[Any], dict[str, str]] | None:
    module = getattr(tf.compat.v2, path, None)
    if isinstance(module, ModuleType) and not stands_in(module):
        return [module], {}
    layers = keras_package.find_module(path, standing_in) if path == "keras.layers" else None
    if layers is not None:
        return [layers, *keras_package.more_names(path, standing_in)], {"DenseFeatures": "_DenseFeaturesV2"}
    is_keras = path.split(".")[0] == "optimizers"  # version 1 has another `train`
    return counterpart(f"{ROOT}.keras.{path}" if is_keras else f"{ROOT}.{path}")


def _read_entry(entry: str) -> tuple[list[Any], dict[str, str]]:
    words = entry.split()
    sources = [_source(word) for word in words if "=" not in word]
    renamed = dict(word.split("=") for word in words if "=" in word)
    return [source for source in sources if source is not None], renamed


def _source(path: str) -> Any:
    if path == "tf":
        return tf
    if path == "generated":
        return _GeneratedWrappers()
    if path.split(".")[0] == slim_package.PACKAGE:
        return slim_package.find_module(path, standing_in)
    if path.split(".")[0] == keras_package.PACKAGE:
        return keras_package.module_of_package(path, standing_in)
    return _public(path[3:]) if path.startswith("tf.") else importlib.import_module(path)


def _public(path: str) -> ModuleType | None:
    """The public submodule of anabranch of that name: an attribute of the package, or a module inside it."""
    value: Any = tf
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None or isinstance(value, AliasModule):  # the import system sets aliases on their parents
            return None
    if isinstance(value, ModuleType):
        return value
    if path.split(".")[0] != "contrib":
        return None
    name = f"{tf.__name__}.{path}"
    parent = _public(path.rpartition(".")[0])
    is_package = parent is not None and hasattr(parent, "__path__") and name.startswith(f"{parent.__name__}.")
    return importlib.import_module(name) if is_package and importlib.util.find_spec(name) is not None else None


def _is_asked_for_by_from() -> bool:
    """Whether the import system looks for a module since ``from package import name`` found no attribute."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == importlib.__name__ + "._bootstrap":
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


class TensorFlowFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensorflow` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of an alias; None for modules that are not TensorFlow's.

        Raises:
            ModuleNotFoundError: the module is TensorFlow's, and has no counterpart.
        """
        if fullname != ROOT and not fullname.startswith(f"{ROOT}."):
            return None
        if counterpart(fullname) is None:
            # with the name, `from tensorflow import keras` would lose the message; `pydoc.locate` looks for the name
            name = None if _is_asked_for_by_from() else fullname
            present = _names_of(fullname.rpartition(".")[0])
            raise ModuleNotFoundError(f"No module named {fullname!r}: {_absence(fullname, present)}", name=name)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        served = counterpart(spec.name)
        assert served is not None
        module = AliasModule(spec.name, *served)
        path = _public_path(spec.name).removeprefix("compat.v2").lstrip(".")
        if path in _WITH_VERSION:
            held(module).update(VERSION=API_VERSION, __version__=API_VERSION, __git_version__=tf.GIT_VERSION)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: an alias is complete when it is created."""


def install() -> None:
    """Makes `import tensorflow` mean anabranch, in this process and from now on. Installing twice is allowed.

    Raises:
        RuntimeError: the process imported another `tensorflow` already.
    """
    if any(isinstance(finder, TensorFlowFinder) for finder in sys.meta_path):
        return
    if ROOT in sys.modules:
        raise RuntimeError("another module `tensorflow` is imported already; alias it at the start of the process")
    sys.meta_path.insert(0, TensorFlowFinder())


def uninstall() -> None:
    """Undoes `install`; what was imported meanwhile is forgotten."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TensorFlowFinder)]
    for name, module in list(sys.modules.items()):
        if isinstance(module, AliasModule):
            del sys.modules[name]


@contextlib.contextmanager
def standing_in(package: str, loaded: dict[str, ModuleType]) -> Iterator[None]:
    """While the block runs, `import tensorflow` means anabranch, for a package that imports TensorFlow.

    What the process has under these two names, genuine TensorFlow perhaps, is put aside and comes back afterwards.
    Where the alias is installed for good, nothing is put aside: the package is imported like any other.

    Args:
        package: its name, "tf_slim".
        loaded: its modules by full name, those of earlier blocks; those that the block imports are added.
    """
    if any(isinstance(finder, TensorFlowFinder) for finder in sys.meta_path):
        yield
        return
    aside = {name: module for name, module in sys.modules.items() if name.split(".")[0] in {ROOT, package}}
    for name in aside:
        del sys.modules[name]
    sys.modules.update(loaded)
    install()
    try:
        yield
    finally:
        uninstall()
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            loaded[name] = sys.modules.pop(name)
        sys.modules.update(aside)
