"""Tell which names of TensorFlow a program uses that are missing here, before anything of it runs.

The sources are read, not run: a file, all Python files below a folder, or those of an installed package. A name that
the program expects to be absent (under `try` and `except ImportError`, `hasattr`, a `getattr` with a default) is
listed, but is no reason for status 1; nor is a refused class that is asked for by `isinstance` alone. `--interface`
tells instead how much of TensorFlow 1.15's public interface is there.

The exit status is 0 where nothing is missing, 1 where names are, or a file could not be read, and 2 where there is
nothing to check.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import anabranch as tf
from anabranch.core import absent_names
from anabranch.core.consoles import table_console
from anabranch.core.refused_names import refusal_of
from anabranch.tools import keras_package, old_names
from anabranch.tools.name_uses import ROOT, NameUse, uses_in
from anabranch.tools.tensorflow_alias import absence_of, is_class, is_there

_PLACES_SHOWN: Final = 3
_NOTHING: Final = 2


@dataclass(slots=True)
class Absent:
    """A name that is missing: the message that using it would give, and where it is used, as (file, line).

    `guarded` holds those places at which the program expects that the name may be absent, or asks whether something is
    of a refused class, which nothing is.
    """

    message: str
    places: list[tuple[str, int]] = field(default_factory=list)
    guarded: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class NameReport:
    """What was found: names that are there and how often they are used, those that are not, unreadable files."""

    files: int = 0
    present: dict[str, int] = field(default_factory=dict)
    absent: dict[str, Absent] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def status(self) -> int:
        return int(bool(self.unreadable) or any(entry.places for entry in self.absent.values()))

    def as_json(self) -> str:
        absent = [
            {"name": name, "message": entry.message, "places": entry.places, "guarded": entry.guarded}
            for name, entry in _by_number(self.absent)
        ]
        whole = {"files": self.files, "present": self.present, "absent": absent, "unreadable": self.unreadable}
        return json.dumps(whole, indent=1)


def main(arguments: Sequence[str]) -> int:
    """`anabranch check program.py`"""
    parser = argparse.ArgumentParser(
        prog="anabranch check",
        description="Tells which names of TensorFlow a program uses that anabranch lacks. Nothing of it is run.",
        epilog="Exits with 0 where nothing is missing, 1 where something is, and 2 where there is nothing to check.",
    )
    parser.add_argument("what", nargs="*", help="a Python file, a folder, or the name of an installed package")
    parser.add_argument("--lines", action="store_true", help="name every place where a missing name is used")
    parser.add_argument("--json", action="store_true", help="print everything that was found as JSON")
    parser.add_argument(
        "--interface",
        action="store_true",
        help="tell how many of TensorFlow 1.15's public names are there, and which not",
    )
    options = parser.parse_args(arguments)
    if options.interface:
        return _print_interface(options.json)
    if not options.what:
        parser.error("what is to be checked? Name a file, a folder or a package")
    report = NameReport()
    for what in options.what:
        files = list(sources_of(what))
        if not files:
            print(
                f"anabranch check: {what}: there is no such file, folder or package with Python files", file=sys.stderr
            )
            return _NOTHING
        check_files(files, report)
    if options.json:
        print(report.as_json())
    else:
        _print_report(report, options.lines)
    return report.status()


def sources_of(what: str) -> Iterator[Path]:
    """The Python files that a file, a folder or an installed package consists of; hidden folders are left out."""
    path = Path(what)
    if not path.exists():
        path = _package(what) or path
    if path.is_file():
        yield path
    for folder, inner, names in os.walk(path) if path.is_dir() else ():
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__")))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _package(name: str) -> Path | None:
    """Where an installed module stands, found without importing it."""
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)) or top == ROOT:
        return None
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that was made by hand
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    if spec.submodule_search_locations:
        path = path.parent.joinpath(*rest)
        return path if path.is_dir() else path.with_suffix(".py")
    return None if rest else path


def check_files(files: Sequence[Path], report: NameReport) -> None:
    """Reads sources, and adds to a report what they use."""
    forget = old_names.restore(quiet=True)  # packages that serve names, as Keras does, are imported as in a program
    try:
        _check_files(files, report)
    finally:
        forget()


def _check_files(files: Sequence[Path], report: NameReport) -> None:
    known = frozenset(absent_names.names()[""])
    asked: dict[str, str | None] = {}
    for path in files:
        report.files += 1
        try:
            uses = uses_in(path.read_bytes(), known)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            report.unreadable[str(path)] = _reason(error)
            continue
        for use in uses:
            if use.name not in asked:
                asked[use.name] = absence_of(use.name)
            _add(report, str(path), use, asked[use.name])


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        line = f"line {error.lineno}: " if error.lineno else ""
        return f"{line}{error.msg} (Python {sys.version_info.major}.{sys.version_info.minor})"
    return f"{type(error).__name__}: {error}"


def _add(report: NameReport, file: str, use: NameUse, message: str | None) -> None:
    if message is None:
        report.present[use.name] = report.present.get(use.name, 0) + 1
        return
    entry = report.absent.setdefault(use.name, Absent(message))
    allowed = use.guarded or (use.asked_of and is_class(use.name))
    (entry.guarded if allowed else entry.places).append((file, use.line))


def _by_number(absent: dict[str, Absent]) -> list[tuple[str, Absent]]:
    return sorted(absent.items(), key=lambda item: (-len(item[1].places), -len(item[1].guarded), item[0]))


def _print_report(report: NameReport, every_place: bool) -> None:
    from rich.table import Table  # time that only those who print tables should pay

    table = Table("name", "uses", "instead", title="missing here", title_justify="left")
    for name, entry in _by_number(report.absent):
        number = str(len(entry.places)) if entry.places else f"({len(entry.guarded)} guarded)"
        table.add_row(name, number, entry.message.partition("; ")[2])
    if report.absent:
        table_console().print(table)
    # outside the table, which would break long paths
    for name, entry in _by_number(report.absent):
        places = entry.places or entry.guarded
        shown = places if every_place else places[:_PLACES_SHOWN]
        for file, line in shown:
            print(f"{file}:{line}: {name}")
        if len(places) > len(shown):
            print(f"and {len(places) - len(shown)} more of {name}: --lines names them")
    for file, reason in report.unreadable.items():
        print(f"{file} could not be read: {reason}")
    missing = sum(bool(entry.places) for entry in report.absent.values())
    uses = sum(report.present.values()) + sum(len(entry.places) for entry in report.absent.values())
    print(
        f"{report.files} files use {len(report.present) + missing} names of TensorFlow in {uses} places; "
        f"{missing} of these names are missing"
    )


class Names(NamedTuple):
    """The names of a public module: those that are here, those that are refused with a reason, and all others."""

    present: list[str]
    refused: dict[str, str]
    missing: list[str]


def interface() -> dict[str, Names]:
    """What is here of the names of every public module of TensorFlow 1.15 ("" is `tf` itself).

    A name is refused where `core.refused_names` gives a reason, which docs/differences.md has too.
    """
    forget = old_names.restore(quiet=True)  # as for the sources that are checked
    try:
        return _interface()
    finally:
        forget()


def _interface() -> dict[str, Names]:
    answer = {}
    for module, names in absent_names.names().items():
        present = {name for name in names if is_there(".".join(filter(None, (ROOT, module, name))))}
        refusals = {name: refusal_of(".".join(filter(None, (module, name)))) for name in sorted(names - present)}
        refused = {name: refusal.family for name, refusal in refusals.items() if refusal is not None}
        answer[module] = Names(sorted(present), refused, sorted(names - present - set(refused)))
    return answer


def _print_interface(as_json: bool) -> int:
    whole = interface()
    if as_json:
        listed = {f"tf.{module}".rstrip("."): names._asdict() for module, names in whole.items()}
        print(json.dumps({"version": tf.__version__, "modules": listed}, indent=1))
        return 0
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for module, names in whole.items():
        for area in (f"`tf.{module.partition('.')[0]}`".replace(".`", "`"), "**all**"):
            for at, part in enumerate(names):
                counts[area][at] += len(part)
    print("| names in | there | refused with a reason | missing | of |\n|---|---|---|---|---|")
    for area, numbers in sorted(counts.items(), key=lambda item: item[0] == "**all**"):
        print(f"| {area} | {' | '.join(map(str, numbers))} | {sum(numbers)} |")
    print(f"\n{_of_keras()}")
    return 0


def _of_keras() -> str:
    """Which package the row of `tf.keras` counts, or how to get one."""
    version = keras_package.installed_version()
    if version is not None:
        return f"tf.keras is served by the package keras {version}, which is installed."
    return (
        "tf.keras is served by the package keras 2.3.1, which is not installed here: `pip install 'anabranch[keras]'`, "
        "or `pip install keras==2.3.1`, brings it."
    )
