"""Modules that Python came with when TensorFlow 1's programs were written, with what programs use of them.

Each is found last, so that one that is still there, or that another package brings, is what a program gets:
`distutils` and `imp` went with Python 3.12, `cgi`, `imghdr` and `pipes` with 3.13, `pkg_resources` with setuptools 81.
"""

from __future__ import annotations

import functools
import html
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final

from anabranch.core.values import PassedOn

_PART: Final = re.compile(r"\d+|[a-z]+|\.")
_ENTRY: Final = re.compile(r"([^=]+?)\s*=\s*([\w.]+)\s*(?::\s*([\w.]+))?\s*(?:\[.*\])?")
_RANKS: Final = {"dev": 0, **dict.fromkeys(("a", "alpha", "b", "beta", "c", "pre", "preview", "rc"), 1), "": 2}
_PICTURES: Final = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))


@functools.total_ordering
class FormerVersion:
    """`distutils.version.LooseVersion`: a version's numbers and words, which are compared one by one.

    Args:
        vstring: "1.15.0rc1".

    Attributes:
        version: its parts.
    """

    def __init__(self, vstring: str | None = None) -> None:
        self.vstring = vstring or ""
        self.version = [int(part) if part.isdigit() else part for part in _PART.findall(self.vstring) if part != "."]

    def __str__(self) -> str:
        return self.vstring

    def __repr__(self) -> str:
        return f"LooseVersion ({self.vstring!r})"

    def __eq__(self, other: object) -> bool:
        return self._key() == self._of(other)._key()

    def __lt__(self, other: PassedOn) -> bool:
        return self._key() < self._of(other)._key()

    def __hash__(self) -> int:
        return hash(tuple(self._key()))

    @classmethod
    def _of(cls, other: PassedOn) -> FormerVersion:
        return other if isinstance(other, FormerVersion) else cls(str(other))

    def _key(self) -> list[tuple[int, Any]]:
        # a word stands before a number, so that the two may be compared at all
        return [(isinstance(part, int), part) for part in self.version]


class FormerRelease(FormerVersion):
    """`distutils.version.StrictVersion`, and what `pkg_resources.parse_version` gives.

    One that is not released yet (1.0rc1) comes before the one that is, and zeros at the end count for nothing.
    """

    def _key(self) -> list[tuple[int, Any]]:
        # what comes before a release, its end, another word, which comes after it, and a further number
        key: list[tuple[int, Any]] = []
        for part in [*self.version, ""]:
            if isinstance(part, int):
                key.append((4, part))
                continue
            while key and key[-1] == (4, 0):
                key.pop()
            key.append((_RANKS.get(part, 3), part))
        return key


def _strtobool(val: str) -> int:
    """1 or 0 of a word such as "yes"."""
    word = val.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if word in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"invalid truth value {val!r}")


def _copy_tree(src: str, dst: str, *_: PassedOn, **__: PassedOn) -> list[str]:
    """Copies what is in a folder into another, which may be there; returns the files."""
    shutil.copytree(src, dst, dirs_exist_ok=True)
    return [str(Path(dst) / path.relative_to(src)) for path in sorted(Path(src).rglob("*")) if path.is_file()]


def _mkpath(name: str, mode: int = 0o777, *_: PassedOn, **__: PassedOn) -> list[str]:
    os.makedirs(name, mode, exist_ok=True)
    return [name]


def _copy_file(src: str, dst: str, *_: PassedOn, **__: PassedOn) -> tuple[str, int]:
    return shutil.copy2(src, dst), 1


def _load_source(name: str, path: str, file: PassedOn = None) -> ModuleType:
    """`imp.load_source`: runs a file as the module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path!r} is no Python source", name=name, path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_module(name: str, path: Sequence[str] | None = None) -> tuple[None, str | None, tuple[str, str, int]]:
    """`imp.find_module`, which programs call to see whether a module is there."""
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None and importlib.util.find_spec(name) is None:
        raise ImportError(f"No module named {name!r}", name=name)
    return None, None if spec is None else spec.origin, ("", "", 5)


def _what(file: PassedOn, h: bytes | None = None) -> str | None:
    """`imghdr.what`: which kind of picture a file, or its first bytes, is; None: none that is known."""
    if h is not None:
        first = h
    elif isinstance(file, str | os.PathLike):
        first = Path(file).read_bytes()[:32]
    else:
        at = file.tell()
        first = file.read(32)
        file.seek(at)
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _PICTURES if first.startswith(start)), None)


class FormerDistribution:
    """What `pkg_resources.get_distribution` gives of an installed package: its name and version."""

    def __init__(self, name: str) -> None:
        found = importlib.metadata.distribution(name)
        self.project_name = self.key = found.metadata["Name"]
        self.version = found.version
        self.location = str(found.locate_file(""))

    @property
    def parsed_version(self) -> FormerRelease:
        """The version, to be compared."""
        return FormerRelease(self.version)


class FormerEntryPoint:
    """`pkg_resources.EntryPoint` as far as programs make their own of a text: what a module's name and a colon lead to.

    Args:
        name: what it is called.
        module_name: the module.
        attrs: the names within the module, from the outermost; none: the module itself.
    """

    def __init__(self, name: str, module_name: str, attrs: Sequence[str] = ()) -> None:
        self.name = name
        self.module_name = module_name
        self.attrs = tuple(attrs)

    @classmethod
    def parse(cls, src: str, dist: object = None) -> FormerEntryPoint:
        """The one that "name = package.module:class.attribute" describes.

        Raises:
            ValueError: `src` is not of that form.
        """
        matched = _ENTRY.fullmatch(src.strip())
        if matched is None:
            raise ValueError(f"an entry point is written 'name = module:attribute'; got {src!r}")
        name, module_name, attrs = matched.groups()
        return cls(name, module_name, () if attrs is None else attrs.split("."))

    def resolve(self) -> Any:
        """What it leads to.

        Raises:
            ImportError: the module is not there, or lacks the name.
        """
        found: Any = importlib.import_module(self.module_name)
        try:
            return functools.reduce(getattr, self.attrs, found)
        except AttributeError as error:
            raise ImportError(str(error), name=self.module_name) from error

    def load(self, require: bool = True, *args: object, **kwargs: object) -> Any:
        """What it leads to; that its package's requirements are installed is not looked at."""
        return self.resolve()


def _within(package: PassedOn, name: str) -> Any:
    return resources.files(package if isinstance(package, str) else package.__name__).joinpath(name)


def _open_within(package: PassedOn, name: str) -> IO[bytes]:
    opened: IO[bytes] = _within(package, name).open("rb")
    return opened


#: by the name of a module: what is in it
_CONTENTS: Final[dict[str, Callable[[], dict[str, object]]]] = {
    "cgi": lambda: {"escape": lambda s, quote=False: html.escape(s, quote)},
    "distutils": lambda: {"__version__": sys.version.split()[0]},
    "distutils.dir_util": lambda: {
        "copy_tree": _copy_tree,
        "mkpath": _mkpath,
        "remove_tree": lambda directory, *_, **__: shutil.rmtree(directory),
    },
    "distutils.file_util": lambda: {"copy_file": _copy_file, "move_file": shutil.move},
    "distutils.spawn": lambda: {"find_executable": shutil.which},
    "distutils.util": lambda: {"strtobool": _strtobool},
    "distutils.version": lambda: {"LooseVersion": FormerVersion, "StrictVersion": FormerRelease},
    "imghdr": lambda: {"what": _what},
    "imp": lambda: {
        "find_module": _find_module,
        "load_source": _load_source,
        "new_module": ModuleType,
        "reload": importlib.reload,
    },
    "pipes": lambda: {"quote": shlex.quote},
    "pkg_resources": lambda: {
        "DistributionNotFound": importlib.metadata.PackageNotFoundError,
        "EntryPoint": FormerEntryPoint,
        "get_distribution": FormerDistribution,
        "parse_version": FormerRelease,
        "resource_exists": lambda package, name: _within(package, name).is_file(),
        "resource_filename": lambda package, name: str(_within(package, name)),
        "resource_stream": _open_within,
        "resource_string": lambda package, name: _within(package, name).read_bytes(),
    },
}


class _GoneModule(ModuleType):
    """One of these modules."""


class _GoneFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _CONTENTS:
            return None
        parent = fullname.rpartition(".")[0]
        if parent and not isinstance(sys.modules.get(parent), _GoneModule):
            return None  # of a package that is there, and lacks the module
        is_package = any(name.startswith(f"{fullname}.") for name in _CONTENTS)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self._tell(f"the module {spec.name}")
        return _GoneModule(spec.name, "Stands for the module that is no more.")

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_CONTENTS[module.__name__]())


def restore(tell: Callable[[str], None]) -> Callable[[], None]:
    """Lets programs import these modules where they are not there; returns the function that undoes it.

    Args:
        tell: is called with the name of a module that a program imports so.
    """
    finder = _GoneFinder(tell)
    sys.meta_path.append(finder)

    def undo() -> None:
        sys.meta_path.remove(finder)
        for name in _CONTENTS:
            if isinstance(sys.modules.get(name), _GoneModule):
                del sys.modules[name]

    return undo
