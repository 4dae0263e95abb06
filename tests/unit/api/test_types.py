"""What type checkers know of the public names: each function says what it returns."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from anabranch.tools.public_names import public_functions, public_modules

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests.programs.typed_program"


def test_every_public_function_has_a_result_type() -> None:
    functions = {public.name: public.value for public in public_functions()}
    untyped = {name for name, function in functions.items() if function.__annotations__.get("return", "Any") == "Any"}
    assert untyped == set()
    assert len(functions) > 2500, "the walk lost its way"


def test_every_argument_of_a_public_function_is_annotated() -> None:
    bare = set()
    for public in public_functions():
        code = public.value.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        free = {"self", "cls", *code.co_varnames[count:]}
        bare |= {
            f"{public.name}({arg})" for arg in code.co_varnames if arg not in {*free, *public.value.__annotations__}
        }
    assert bare == set()


def test_the_walk_finds_the_modules_that_users_name() -> None:
    names = {"tf", "tf.nn", "tf.nn.rnn_cell", "tf.train", "tf.data.experimental", "tf.contrib.slim", "tf.io.gfile"}
    assert names <= set(public_modules())


def test_type_checking_covers_a_users_program() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert PROGRAM in settings["modules"]


def test_the_users_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT.joinpath(*PROGRAM.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location("typed_program", path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.main()
    told = ["trained: True", "steps: 4", "control flow: 36.0", "raw operations: 17.0"]
    assert capsys.readouterr().out.splitlines() == told
