"""What Python itself has dropped since programs of TensorFlow 1 were written: modules, names, arguments."""

from __future__ import annotations

import builtins
import importlib
import itertools
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from anabranch.tools import gone_modules, old_names

_GONE = ("cgi", "distutils", "imghdr", "imp", "pipes", "pkg_resources")


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What programs are told, while these modules are looked for where there is no other."""
    names: list[str] = []
    undo = gone_modules.restore(names.append)
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in _GONE}
    finder = sys.meta_path.pop()
    sys.meta_path.insert(0, finder)  # before Python's own, which an older Python still has
    yield names
    undo()
    sys.modules.update(kept)


def test_distutils(told: list[str], tmp_path: Path) -> None:
    version: Any = importlib.import_module("distutils.version")
    assert version.LooseVersion("1.10") > version.LooseVersion("1.9.1") >= "1.9"
    assert version.StrictVersion("2.0") == "2.0"
    assert version.StrictVersion("2.0.0") == "2"
    assert version.StrictVersion("1.15.0b2") < version.StrictVersion("1.15")
    assert version.LooseVersion("1.15.0rc1") < version.LooseVersion("1.15.0.1")
    util: Any = importlib.import_module("distutils.util")
    assert [util.strtobool(word) for word in ("yes", "OFF")] == [1, 0]
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "c").write_text("d")
    trees: Any = importlib.import_module("distutils.dir_util")
    assert trees.copy_tree(str(tmp_path / "a"), str(tmp_path / "e")) == [str(tmp_path / "e" / "b" / "c")]
    assert "the module distutils" in told


def test_imp_and_others(told: list[str], tmp_path: Path) -> None:
    imp: Any = importlib.import_module("imp")
    source = tmp_path / "some_module.py"
    source.write_text("x = 3")
    assert imp.load_source("some_module", str(source)).x == 3
    sys.modules.pop("some_module", None)
    assert isinstance(imp.new_module("m"), ModuleType)
    with pytest.raises(ImportError, match="no_such_module"):
        imp.find_module("no_such_module")
    assert importlib.import_module("pipes").quote("a b") == "'a b'"
    picture = tmp_path / "p"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    imghdr: Any = importlib.import_module("imghdr")
    assert (imghdr.what(str(picture)), imghdr.what("", b"GIF89a"), imghdr.what("", b"none")) == ("png", "gif", None)
    packages: Any = importlib.import_module("pkg_resources")
    assert packages.parse_version("1.9") < packages.parse_version("1.10")
    ordered = ["1.0.dev1", "1.0a2", "1.0rc1", "1.0", "1.0.post1", "1.0.1rc1", "1.0.1", "1.1"]
    versions = [packages.parse_version(text) for text in ordered]
    assert all(one < other for one, other in itertools.pairwise(versions))
    assert packages.parse_version("1.15") == packages.parse_version("1.15.0")
    assert packages.get_distribution("numpy").version == np.__version__
    assert packages.resource_exists("anabranch", "py.typed")
    with pytest.raises(packages.DistributionNotFound):
        packages.get_distribution("no-such-distribution")
    assert packages.EntryPoint.parse("x=os:path.join").load(False) is os.path.join
    module = packages.EntryPoint.parse("any name = json.decoder [extra]")
    assert (module.name, module.resolve().__name__) == ("any name", "json.decoder")
    with pytest.raises(ImportError, match="no_such_name"):
        packages.EntryPoint.parse("x=os:no_such_name").load()
    with pytest.raises(ValueError, match="name = module:attribute"):
        packages.EntryPoint.parse("os:path")


def test_names_and_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = builtins.open
    undo = old_names.restore()
    try:
        program = tmp_path / "program.py"
        program.write_text(_PROGRAM)
        held = runpy.run_path(str(program), {"path": str(tmp_path / "lines")})
    finally:
        undo()
    assert held["done"]
    assert builtins.open is before
    assert "which is no more" in capsys.readouterr().err


_PROGRAM = """
import asyncio, configparser, html.parser, inspect, json, os, platform, random, sys, unittest
import numpy as np
assert inspect.formatargspec(["a", "b"], "c", "d", (2,)) == "(a, b=2, *c, **d)"
assert html.parser.HTMLParser().unescape("&lt;") == "<"
assert os.errno.ENOENT == 2 and len(platform.linux_distribution()) == 3 and sys.setcheckinterval(9) is None
assert asyncio.coroutine and configparser.ConfigParser().readfp
assert sorted(random.sample({1, 2, 3}, 3)) == [1, 2, 3] and random.randint(2, 2.0) == 2
numbers = [1, 2, 3]
random.shuffle(numbers, lambda: 0.0)
assert numbers == [2, 3, 1]
assert json.loads("[1]", encoding="utf-8") == [1]
with open(path, "w") as file:
    file.write("a\\r\\nb")
with open(path, "rU") as file:
    assert file.read() == "a\\nb"
unittest.TestCase().assertItemsEqual([1, 2], [2, 1])
assert np.vstack(iter([[1], [2]])).tolist() == [[1], [2]] and np.stack(np.ones(2) for _ in range(3)).shape == (3, 2)
assert np.histogram([0.0, 1.0], 2, normed=True)[0].tolist() == [1.0, 1.0]
assert np.fromstring(b"\\x01\\x02", np.uint8).tolist() == [1, 2] and np.fromstring("3 4", sep=" ").tolist() == [3, 4]
assert np.issubsctype(np.int32, np.int32) and np.issctype(np.int32) and not np.issctype(3)
assert np.maximum_sctype(np.float16) is np.longdouble and np.safe_eval("[1]") == [1]
done = True
"""
