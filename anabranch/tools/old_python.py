"""Names and habits that Python's own library has dropped since TensorFlow 1's programs were written.

`old_names` restores them; modules that are gone as a whole are in `gone_modules`.
"""

from __future__ import annotations

import builtins
import configparser
import functools
import html
import html.parser
import inspect
import json
import locale
import os
import platform
import random
import sys
import types
import unittest
from collections.abc import Callable, Mapping, Set as AbstractSet
from types import ModuleType
from typing import Any, Final

from anabranch.core.values import PassedOn

Tell = Callable[[str], None]
Undo = Callable[[], object]
_ASSERTIONS: Final = {
    "assertEquals": "assertEqual",
    "assertNotEquals": "assertNotEqual",
    "assert_": "assertTrue",
    "assertAlmostEquals": "assertAlmostEqual",
    "assertNotAlmostEquals": "assertNotAlmostEqual",
    "assertItemsEqual": "assertCountEqual",
    "assertRegexpMatches": "assertRegex",
    "assertNotRegexpMatches": "assertNotRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "failUnlessEqual": "assertEqual",
    "failUnless": "assertTrue",
    "failIf": "assertFalse",
}


def _formatargspec(
    args: list[str],
    varargs: str | None = None,
    varkw: str | None = None,
    defaults: tuple[Any, ...] | None = None,
    *_: PassedOn,
) -> str:
    """`inspect.formatargspec`: "(a, b=1, *c, **d)" of what `getargspec` gives."""
    first = len(args) - len(defaults or ())
    parts = [name if i < first else f"{name}={(defaults or ())[i - first]!r}" for i, name in enumerate(args)]
    parts += [f"*{varargs}"] if varargs else []
    parts += [f"**{varkw}"] if varkw else []
    return f"({', '.join(parts)})"


def _linux_distribution(*_: PassedOn, **__: PassedOn) -> tuple[str, str, str]:
    """Name, version and code name of the system, which are empty where they are not known."""
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        return "", "", ""
    return told.get("NAME", ""), told.get("VERSION_ID", ""), told.get("VERSION_CODENAME", "")


def _make_suite(tests: type[unittest.TestCase], prefix: str = "test", *_: PassedOn) -> unittest.TestSuite:
    """The tests of a class together."""
    loader = unittest.TestLoader()
    loader.testMethodPrefix = prefix
    return loader.loadTestsFromTestCase(tests)


def names() -> list[tuple[ModuleType, Mapping[str, object]]]:
    """Modules, and what each is to answer with for its former names."""
    return [
        (inspect, {"formatargspec": _formatargspec}),
        (platform, {"linux_distribution": _linux_distribution, "dist": _linux_distribution}),
        (os, {"errno": sys.modules.get("errno")}),
        (sys, {"setcheckinterval": lambda interval: None, "getcheckinterval": lambda: 100}),
        (unittest, {"makeSuite": _make_suite}),
        (configparser, {"SafeConfigParser": configparser.ConfigParser}),
        (
            locale,
            {
                "format": lambda percent, value, grouping=False, monetary=False: locale.format_string(
                    percent, value, grouping, monetary
                )
            },
        ),
    ]


def names_when_imported() -> dict[str, Mapping[str, object]]:
    """The same of modules that a program may not have imported."""
    return {"asyncio": {"coroutine": types.coroutine}, "cgi": {"escape": _escape}}


def _escape(s: str, quote: bool = False) -> str:
    return html.escape(s, quote)


def restore(tell: Tell) -> list[Undo]:
    """Restores methods of classes and arguments of functions; returns what undoes it.

    Args:
        tell: is called with the name of what a program uses.
    """
    undo: list[Undo] = []

    def put(owner: PassedOn, name: str, value: object) -> None:
        before = vars(owner).get(name)
        setattr(owner, name, value)
        undo.append(functools.partial(delattr, owner, name) if before is None else _put_back(owner, name, before))

    def add(owner: type, name: str, method: Callable[..., Any]) -> None:
        if hasattr(owner, name):
            return

        @functools.wraps(method)
        def told(*values: PassedOn, **options: PassedOn) -> Any:
            tell(f"{owner.__module__}.{owner.__name__}.{name}")
            return method(*values, **options)

        put(owner, name, told)

    add(html.parser.HTMLParser, "unescape", lambda self, s: html.unescape(s))
    add(configparser.RawConfigParser, "readfp", lambda self, fp, filename=None: self.read_file(fp, filename))
    for former, now in _ASSERTIONS.items():
        add(unittest.TestCase, former, getattr(unittest.TestCase, now))
    put(random, "sample", _sample(random.sample, tell))
    put(random, "shuffle", _shuffle(random.shuffle, tell))
    for name in ("randint", "randrange"):
        put(random, name, _whole(getattr(random, name), tell))
    for name in ("loads", "load"):
        put(json, name, _without_encoding(getattr(json, name), tell))
    put(builtins, "open", _open(builtins.open, tell))
    return undo


def _put_back(owner: PassedOn, name: str, before: object) -> Undo:
    return lambda: setattr(owner, name, before)


def _sample(function: Callable[..., list[Any]], tell: Tell) -> Callable[..., list[Any]]:
    """Draws from sets too, as until Python 3.11."""

    @functools.wraps(function)
    def sample(population: PassedOn, k: int, **options: PassedOn) -> list[Any]:
        if isinstance(population, AbstractSet):
            tell("random.sample of a set")
            population = tuple(population)
        return function(population, k, **options)

    return sample


def _shuffle(function: Callable[[Any], None], tell: Tell) -> Callable[..., None]:
    """Takes a function that gives random numbers below 1, as until Python 3.11."""

    @functools.wraps(function)
    def shuffle(x: PassedOn, given: Callable[[], float] | None = None) -> None:
        if given is None:
            return function(x)
        tell("random.shuffle with a function")
        for i in reversed(range(1, len(x))):
            j = int(given() * (i + 1))
            x[i], x[j] = x[j], x[i]
        return None

    return shuffle


def _whole(function: Callable[..., int], tell: Tell) -> Callable[..., int]:
    """Takes floats that are whole numbers, as until Python 3.12."""

    @functools.wraps(function)
    def drawn(*values: PassedOn, **options: PassedOn) -> int:
        if any(isinstance(value, float) and value.is_integer() for value in values):
            tell(f"random.{function.__name__} of floats")
            values = tuple(int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
        return function(*values, **options)

    return drawn


def _without_encoding(function: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    """Leaves out the argument that had no effect, until Python 3.9."""

    @functools.wraps(function)
    def read(*values: PassedOn, **options: PassedOn) -> Any:
        if "encoding" in options:
            tell(f"json.{function.__name__} with an encoding")
            options = {name: value for name, value in options.items() if name != "encoding"}
        return function(*values, **options)

    return read


def _open(function: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    """Takes the mode "U" beside others, which is how all files are read by now, as until Python 3.11."""

    @functools.wraps(function)
    def opened(file: PassedOn, mode: PassedOn = "r", *values: PassedOn, **options: PassedOn) -> Any:
        if isinstance(mode, str) and "U" in mode:
            tell('open with mode "U"')
            rest = mode.replace("U", "")
            mode = rest if "r" in rest else f"r{rest}"
        return function(file, mode, *values, **options)

    return opened
