"""Every public name can be reached, and type checkers and programs are told the same of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
import anabranch.api
from anabranch.api import names_of_stub
from anabranch.core import absent_names
from anabranch.core.stand_ins import stands_in
from tests.each_case import each_case

API_MODULES = sorted(module.name for module in pkgutil.iter_modules(anabranch.api.__path__))
ROOT = Path(tf.__file__).parent
STUBS = [stub for stub in sorted(ROOT.rglob("*.pyi")) if stub.parent.name not in {"proto", "frontend"}]  # not generated


@each_case("stub", STUBS, lambda stub: f"{stub.parent.name}.{stub.stem}")
def test_a_stub_says_each_name_once_and_is_read_as_type_checkers_read_it(stub: Path) -> None:
    text = stub.read_text("utf-8")
    homes, public = {}, []
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                homes[alias.asname or alias.name] = (statement.module, alias.name)
                if alias.asname == alias.name:
                    public.append((alias.name, homes[alias.name]))
        elif isinstance(statement, ast.Assign):
            public.append((ast.unparse(statement.targets[0]), homes[ast.unparse(statement.value)]))
        else:
            assert ast.unparse(statement) == "__version__: str"
    assert len(dict(public)) == len(public)
    assert names_of_stub(text) == dict(public)


@each_case("stub", STUBS, lambda stub: f"{stub.parent.name}.{stub.stem}")
def test_a_public_module_holds_no_name_beside_its_stub(stub: Path) -> None:
    body = ast.parse(stub.with_suffix(".py").read_text("utf-8")).body
    bound = [alias.asname for s in body if isinstance(s, ast.ImportFrom) for alias in s.names if alias.asname]
    assert all(name.startswith("_") for name in bound)
    assert not any(isinstance(s, ast.Assign | ast.FunctionDef | ast.ClassDef) for s in body)


def test_every_name_of_the_package_resolves() -> None:
    missing = [name for name in tf.__all__ if not hasattr(tf, name)]
    assert missing == []
    assert len(tf.__all__) == len(set(tf.__all__))


@each_case("name", API_MODULES)
def test_every_name_of_a_submodule_resolves(name: str) -> None:
    module = importlib.import_module(f"anabranch.api.{name}")
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


def test_names_are_listed_before_they_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


LISTING = """
import sys
import anabranch as tf
assert "anabranch.session" not in sys.modules  # a program loads what it uses
assert set(tf.__all__) <= set(dir(tf)) and {"relu", "conv2d"} <= set(dir(tf.nn))
assert not {"anabranch.session", "absl"} & set(sys.modules)
assert tf.Session.__module__ == "anabranch.session"
"""


def test_an_unknown_name_is_an_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="'anabranch' has no attribute 'matmull'"):
        tf.matmull  # type: ignore[attr-defined]


def modules_to_ask() -> Iterator[tuple[str, Any]]:
    """The public modules with TensorFlow's names, by public path."""
    for path in absent_names.names():
        found: Any = tf
        for part in path.split(".") if path else ():
            found = getattr(found, part, None)
        if str(getattr(found, "__name__", "")).startswith(("anabranch.api", "anabranch.compat")) or found is tf:
            yield path, found


@each_case("asked", modules_to_ask(), lambda asked: f"tf.{asked[0]}")
def test_names_of_tensorflow_that_are_not_here_say_so(asked: tuple[str, Any]) -> None:
    path, module = asked
    before = dir(module)
    for name in absent_names.names()[path]:
        if not hasattr(module, name):
            with pytest.raises(AttributeError) as caught:
                getattr(module, name)
            told = str(caught.value)
            assert told.startswith(f"anabranch has no tf.{path}{'.' * bool(path)}{name}; "), told
            assert (caught.value.name, caught.value.obj) == (name, None), "Python would guess at another name"
    assert dir(module) == before


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("keras", "tf.layers"),
        ("enable_v2_behavior", "tf.Session"),
    ],
)
def test_what_is_not_here_names_a_way_out(name: str, way_out: str) -> None:
    assert not hasattr(tf, name) or stands_in(getattr(tf, name))
    assert name not in dir(tf)
    assert way_out in absent_names.absence("", name)


def test_the_ways_out_are_there() -> None:
    """What an explanation recommends must exist."""
    for text in absent_names._WAYS_OUT.values():
        for path in re.findall(r"tf((?:\.\w+)+)", text):
            found: Any = tf
            for part in path.strip(".").split("."):
                found = getattr(found, part)


def test_version_1_has_the_names_of_the_package() -> None:
    program = """
import anabranch.compat.v1 as tf
import anabranch
from anabranch.compat import v1
from anabranch.compat.v1 import *
assert v1 is tf is anabranch.compat.v1 and Session is tf.Session is anabranch.Session
assert dir(tf) == dir(anabranch) and tf.nn.relu and tf.compat.v1 is tf and tf.__version__
tf.disable_v2_behavior(), tf.disable_eager_execution(), tf.enable_resource_variables(), tf.disable_v2_tensorshape()
assert not tf.executing_eagerly() and tf.resource_variables_enabled()
assert tf.compat.v2.reduce_sum and not hasattr(tf.compat.v2, "placeholder")
for module, name, told in ((tf, "load_library", "load_library;"), (tf.lite, "toco_convert", "lite.toco_convert;")):
    try:
        getattr(module, name)
    except AttributeError as error:
        assert told in str(error), error
    else:
        raise AssertionError(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


PROBE = """
import anabranch.train, anabranch.io, anabranch.errors, anabranch.session
import anabranch as tf
assert tf.train.Saver and tf.io.parse_example and tf.errors.OpError and tf.Session
from anabranch import *
names = dict(globals())
assert set(tf.__all__) <= set(names), set(tf.__all__) - set(names)
assert names["train"] is tf.train is anabranch.api.train
"""


def test_public_submodules_stand_before_folders_of_their_name() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def public_objects() -> Iterator[tuple[str, Any]]:
    """Functions and classes of ours that users see, and the methods that these classes define, by name."""
    for module in [tf, *(importlib.import_module(f"anabranch.api.{name}") for name in API_MODULES)]:
        for name in module.__all__:
            value = getattr(module, name)
            ours = str(getattr(value, "__module__", "")).startswith("anabranch.") and not hasattr(value, "DESCRIPTOR")
            if ours and (inspect.isfunction(value) or inspect.isclass(value)):
                yield name, value
            if ours and inspect.isclass(value):
                methods = [method for method in vars(value) if not method.startswith("_")]
                yield from ((f"{name}.{method}", getattr(value, method)) for method in methods)


def test_every_public_function_class_and_method_says_what_it_does() -> None:
    assert {name for name, value in public_objects() if callable(value) and not inspect.getdoc(value)} == set()
