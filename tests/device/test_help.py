"""The help of the functions that programs use most: arguments, result, shapes, errors, and an example that runs.

`most_used_names.csv` says in how many public repositories, and in how many of their files, each name stands;
`most_used_methods.txt` are the methods that the examples and tests here call most.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.tools.docstrings import Docstring, parse
from anabranch.tools.public_names import public_functions, public_names, signature_of, underlying
from tests.example_checker import ExampleChecker, run_example

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAMES = [row["name"] for row in csv.DictReader((FIXTURES / "most_used_names.csv").read_text("utf-8").splitlines())]
METHODS = (FIXTURES / "most_used_methods.txt").read_text("utf-8").split()
PUBLIC = {public.name: public.value for public in public_names()} | {
    public.name: public.value for public in public_functions() if public.name in METHODS
}
#: how shapes are told of
SHAPE_WORDS = ("shape", "scalar", "vector", "matri", "[", "rank")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Examples set the level of the program's log."""
    level = tf.logging.get_verbosity()
    yield
    tf.logging.set_verbosity(level)


def parameters_of(value: Any) -> tuple[set[str], bool]:
    """The names of the arguments, and whether further ones may be given by keyword."""
    hidden = {"self", "cls", "_sentinel"}
    parameters = signature_of(value).parameters.values()
    named = {p.name for p in parameters if p.name not in hidden and p.kind is not p.VAR_KEYWORD}
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def takes_or_gives_tensors(value: Any) -> bool:
    function = underlying(value)
    return function is not None and "Tensor" in str(function.__annotations__.get("return"))


def faults_of(value: Any, told: Docstring) -> list[str]:
    """What the help of a name lacks."""
    documented = set(told.arguments())
    taken, takes_more = parameters_of(value)
    faults = [f"argument {name} is not told of" for name in sorted(taken - documented)]
    faults += [f"argument {name} is not there" for name in sorted(documented - taken) if not takes_more]
    if not told.summary:
        faults.append("no summary")
    function = underlying(value)
    if function is not None and function.__annotations__["return"] != "None" and "Returns" not in told.sections:
        faults.append("no result")
    if not {"Raises", "Raises (in the step)"} & set(told.sections):
        faults.append("no errors")
    if takes_or_gives_tensors(value):
        text = " ".join(told.sections.values())
        faults += [] if any(word in text for word in SHAPE_WORDS) else ["no shapes"]
    if ">>> " not in told.sections.get("Example", ""):
        faults.append("no example")
    return faults


def test_the_list_holds_three_hundred_different_names() -> None:
    assert len(NAMES) == 300
    assert len({id(PUBLIC[name]) for name in NAMES}) == 300


def test_each_function_is_told_of_in_full() -> None:
    faults = {name: found for name in [*NAMES, *METHODS] if (found := faults_of(PUBLIC[name], parse(PUBLIC[name])))}
    assert faults == {}


def test_what_the_help_lacks_is_noticed() -> None:
    def bare(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Sums."""
        return x

    expected = ["argument name is not told of", "argument x is not told of"]
    assert faults_of(bare, parse(bare)) == [*expected, "no result", "no errors", "no shapes", "no example"]


@pytest.mark.parametrize("name", [*NAMES, *METHODS])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are written for Python's prompt, in an empty directory, with `sess` a session of an empty graph."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(tf.Session()) as sess, sess.as_default():
        failed, said = run_example(name, parse(PUBLIC[name]).sections["Example"], {"tf": tf, "np": np, "sess": sess})
    assert failed == 0, said


def test_numbers_may_differ_in_their_last_digits_only() -> None:
    checker = ExampleChecker()
    assert checker.check_output("array([0.5   , 0.880797])\n", "array([0.5      , 0.8807971])\n", 0)
    assert not checker.check_output("array([0.5, 0.88])\n", "array([0.5, 0.89])\n", 0)
    assert not checker.check_output("array([0.5, 0.88])\n", "array([0.5])\n", 0)
    assert not checker.check_output("array([1, 2])\n", "(1, 2)\n", 0)
