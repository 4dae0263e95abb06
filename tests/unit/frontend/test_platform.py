"""Entry point, flags, log and data files. absl-py, whose behaviour TensorFlow 1.15 documents, is the flags' oracle."""

from __future__ import annotations

import contextlib
import enum
import io
import logging as python_logging
import os
import runpy
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.frontend.platform import app, flags, logging, resource_loader


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def define_all(module: Any) -> Any:
    """One flag of every kind, defined with `module`: ours or absl's."""
    values = module.FlagValues()
    here = {"flag_values": values}
    module.DEFINE_string("s", "d", "h", **here)
    module.DEFINE_integer("i", 3, "h", lower_bound=0, upper_bound=20, **here)
    module.DEFINE_float("f", 1, "h", short_name="z", **here)
    module.DEFINE_bool("b", True, "h", **here)
    module.DEFINE_boolean("notify", None, "h", **here)
    module.DEFINE_enum("e", "x", ["x", "y"], "h", **here)
    module.DEFINE_enum("ei", None, ["Aa", "Bb"], "h", case_sensitive=False, **here)
    module.DEFINE_enum_class("ec", Colour.RED, Colour, "h", **here)
    module.DEFINE_list("l", "a,b", "h", **here)
    module.DEFINE_spaceseplist("sp", "a b", "h", comma_compat=True, **here)
    module.DEFINE_multi_integer("mi", [1, 2], "h", **here)
    module.DEFINE_multi_float("mf", None, "h", **here)
    module.DEFINE_multi_string("ms", "q", "h", **here)
    module.DEFINE_multi_enum("me", ["a"], ["a", "b"], "h", **here)
    module.DEFINE_alias("al", "i", **here)
    return values


def outcome(module: Any, arguments: list[str], known_only: bool) -> Any:
    """What parsing leaves, every value and how often each flag was given; or "error"."""
    values = define_all(module)
    try:
        rest = values(["prog", *arguments], known_only=known_only)
    except (ValueError, module.Error):
        return "error"
    state = {name: (repr(getattr(values, name)), values[name].present) for name in values}
    return rest, dict(sorted(state.items()))


COMMAND_LINES = """
--s=1
--s 1
-s 1
-s=a=b
--s=
--s
--i=0x10
--i=0o17
--i=017
--i=abc
--i=1.5
--i=21
--i=-1
--i -1
--f=1e-3
--f=inf
-z 4
--z=5
--f=
--b
--nob
-nob
--b=false
--b=F
--b=1
--b=yes
--b true
--nob=1
--notify
--nonotify
--no
-
--
---
---s=3
--=3
--- a --s=2
a --s=2 b
a -- --s=2
--unk
--unk=3 --s=2
--unk 3 --s=2 -x
--nounk
--noi
--e=y
--e=z
--e=Y
--ei=aa
--ei=BB
--ec=BLUE
--ec=GREEN
--l=
--l=x
--l=x,,y
--l="a,b",c
--l="a
--sp=a,b
--mi=3
--mi=3 --mi=4
--mi=x
--ms=a --ms b
--mf=1 --mf=2
--me=b --me=a
--me=c
--al=7
--al=99
--i=1 --i=2
"""


@pytest.mark.parametrize("known_only", [False, True])
@pytest.mark.parametrize("command_line", COMMAND_LINES.split("\n")[:-1])
def test_command_lines_parse_as_absl_parses_them(command_line: str, known_only: bool) -> None:
    absl_flags = pytest.importorskip("absl.flags")
    arguments = command_line.split()
    assert outcome(flags, arguments, known_only) == outcome(absl_flags, arguments, known_only)


@pytest.mark.parametrize(
    ("define", "default"),
    [
        *[("DEFINE_integer", default) for default in (1, 1.5, True, "5", "x", None, 1e6)],
        *[("DEFINE_float", default) for default in (1, 1.5, True, "5", "x", None)],
        *[("DEFINE_string", default) for default in ("a", "", 1, None, b"x")],
        *[("DEFINE_bool", default) for default in (True, False, 1, 0, 2, 1.0, "true", "no", None)],
        *[("DEFINE_list", default) for default in (["a"], "a,b", "", None, ("a",), 3)],
        *[("DEFINE_multi_string", default) for default in ("a", ["a", "b"], ("a",), None, 1, [1])],
        *[("DEFINE_multi_integer", default) for default in (1, [1], (1, 2), "3", None, [])],
    ],
)
def test_defaults_are_checked_as_absl_checks_them(define: str, default: Any) -> None:
    absl_flags = pytest.importorskip("absl.flags")
    results: list[Any] = []
    for module in (flags, absl_flags):
        values = module.FlagValues()
        try:
            getattr(module, define)("x", default, "h", flag_values=values)
            values.mark_as_parsed()
            results.append(repr(values.x))
        except module.IllegalFlagValueError:
            results.append("error")
    assert results[0] == results[1]


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> flags.FlagValues:
    """Fresh flags in the place of the program's own, and a command line without arguments."""
    fresh = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", fresh)
    monkeypatch.setattr(sys, "argv", ["prog"])
    monkeypatch.delitem(sys.modules, "absl.flags", raising=False)
    return fresh


class TestFlagValues:
    def test_first_read_parses_the_command_line_and_tolerates_what_it_does_not_know(
        self, values: flags.FlagValues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["prog", "--rate=0.5", "--foreign", "x"])
        flags.DEFINE_float("rate", 0.1, "h", flag_values=values)
        assert not values.is_parsed()
        assert values.rate == 0.5
        assert values.is_parsed()

    def test_reading_an_unknown_flag_names_it(self, values: flags.FlagValues) -> None:
        with pytest.raises(AttributeError, match="no flag is named 'rate'"):
            values.rate

    def test_unknown_flag_on_the_command_line_suggests_one(self, values: flags.FlagValues) -> None:
        flags.DEFINE_float("learning_rate", 0.1, "h", flag_values=values)
        with pytest.raises(flags.UnrecognizedFlagError, match="did you mean --learning_rate") as caught:
            values(["prog", "--learning_rat=1"])
        assert (caught.value.flagname, caught.value.flagvalue) == ("learning_rat", "--learning_rat=1")

    def test_bad_value_names_flag_and_value(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", lower_bound=1, flag_values=values)
        with pytest.raises(flags.IllegalFlagValueError, match=r"flag --n=0: 0 is not an integer of at least 1"):
            values(["prog", "--n=0"])

    def test_setting_before_parsing_survives_it(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        flags.DEFINE_integer("m", 1, "h", flag_values=values)
        values.n = values["m"].value = 7
        values(["prog", "--m=8"])
        assert (values.n, values.m) == (7, 8)

    def test_setting_a_name_that_no_flag_has_keeps_it(self, values: flags.FlagValues) -> None:
        values.extra = 3
        assert values.extra == 3
        assert "extra" not in values
        del values.extra
        assert not hasattr(values, "extra")

    def test_early_tensorflow_names(self, values: flags.FlagValues) -> None:
        flags.DEFINE_string("name", "a", "h", flag_values=values)
        assert values._parse_flags(["--name=b", "--other", "c"]) == ["--other", "c"]
        # Not `values.__flags`: Python rewrites that inside a class.
        assert {k: str(v) for k, v in getattr(values, "__flags").items()} == {"name": "b"}
        assert values.__dict__["__flags"]["name"].value == "b"

    def test_early_tensorflow_argument_names(self, values: flags.FlagValues) -> None:
        flags.DEFINE_string(flag_name="s", default_value="a", docstring="text", flag_values=values)
        assert (values["s"].default, values["s"].help) == ("a", "text")

    def test_as_a_mapping(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", short_name="k", flag_values=values)
        assert sorted(values) == dir(values) == ["k", "n"]
        assert len(values) == 2
        assert "n" in values
        assert values["k"] is values["n"]
        assert values.flag_values_dict() == {"k": 1, "n": 1}

    def test_deleting_makes_room_for_another_definition(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        with pytest.raises(flags.DuplicateFlagError, match="'n' is defined twice: first in .*test_platform"):
            flags.DEFINE_string("n", "a", "h", flag_values=values)
        for name in list(values._flags()):
            values.__delattr__(name)
        flags.DEFINE_string("n", "a", "h", flag_values=values)
        assert values.n == "a"

    def test_override_replaces(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        flags.DEFINE_string("n", "a", "h", flag_values=values, allow_override=True)
        assert values.n == "a"

    @pytest.mark.parametrize("name", ["", "a b", "a=b", "-a"])
    def test_impossible_names(self, values: flags.FlagValues, name: str) -> None:
        with pytest.raises(flags.Error, match="cannot name a flag"):
            flags.DEFINE_string(name, "", "h", flag_values=values)

    def test_name_of_a_method(self, values: flags.FlagValues) -> None:
        with pytest.raises(flags.FlagNameConflictsWithMethodError, match="is_parsed"):
            flags.DEFINE_string("is_parsed", "", "h", flag_values=values)

    def test_unparse_returns_to_defaults(self, values: flags.FlagValues) -> None:
        flags.DEFINE_multi_integer("n", [1], "h", flag_values=values)
        values(["prog", "--n=2", "--n=3"])
        assert values.n == [2, 3]
        values.unparse_flags()
        assert not values.is_parsed()
        assert values.n == [1]

    def test_set_default_changes_only_what_nobody_set(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        flags.DEFINE_integer("m", 1, "h", flag_values=values)
        values(["prog", "--m=2"])
        values.set_default("n", "5")
        values.set_default("m", 5)
        assert (values.n, values.m, values["m"].default) == (5, 2, 5)
        assert values.get_flag_value("n", 9) == 5

    def test_first_positional_argument_ends_flags_without_gnu_getopt(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        values.set_gnu_getopt(False)
        assert values(["prog", "--n=2", "a", "--n=3"]) == ["prog", "a", "--n=3"]
        assert values.n == 2

    def test_argv_must_be_a_list_with_a_name(self, values: flags.FlagValues) -> None:
        with pytest.raises(TypeError, match="got the string"):
            values("prog --n=2")
        with pytest.raises(ValueError, match="program's name"):
            values([])

    def test_written_out_flags_parse_back(self) -> None:
        given = ["--s=a b", "--nob", "--l=x y,z", "--mi=4", "--mi=5", "--ec=BLUE", "--ei=Aa", "--f=0.5"]
        first, second = define_all(flags), define_all(flags)
        first(["prog", *given])
        second(["prog", *first.flags_into_string().splitlines()])
        assert second.flag_values_dict() == first.flag_values_dict()

    def test_alias_reads_and_sets_the_original(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        flags.DEFINE_alias("m", "n", flag_values=values)
        values.m = 4
        assert values.n == values.m == 4
        values.set_default("m", 6)
        values.unparse_flags()
        assert values.n == 6
        with pytest.raises(flags.UnrecognizedFlagError):
            flags.DEFINE_alias("k", "absent", flag_values=values)


class TestValidators:
    def test_required_flag(self, values: flags.FlagValues) -> None:
        flags.DEFINE_string("path", None, "h", flag_values=values)
        flags.mark_flag_as_required("path", flag_values=values)
        with pytest.raises(flags.IllegalFlagValueError, match="--path must have a value"):
            values(["prog"])
        values(["prog", "--path=x"])
        with pytest.raises(flags.IllegalFlagValueError):
            values.path = None

    def test_required_flag_with_a_default_warns(self, values: flags.FlagValues) -> None:
        flags.DEFINE_string("path", "p", "h", flag_values=values)
        with pytest.warns(UserWarning, match="--path is marked as required but has the default 'p'"):
            flags.mark_flags_as_required(["path"], flag_values=values)

    def test_validator_of_an_unknown_flag(self, values: flags.FlagValues) -> None:
        with pytest.raises(KeyError, match="define it before its validator"):
            flags.mark_flag_as_required("path", flag_values=values)

    def test_checker_may_say_what_is_wrong(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 2, "h", flag_values=values)

        @flags.validator("n", message="must be even", flag_values=values)
        def even(n: int) -> bool:
            if n < 0:
                raise flags.ValidationError("must not be negative")
            return n % 2 == 0

        assert even(4)
        with pytest.raises(flags.IllegalFlagValueError, match="flag --n=3: must be even"):
            values(["prog", "--n=3"])
        with pytest.raises(flags.IllegalFlagValueError, match="must not be negative"):
            values(["prog", "--n=-2"])

    def test_condition_on_two_flags(self, values: flags.FlagValues) -> None:
        for name in ("low", "high"):
            flags.DEFINE_integer(name, 0, "h", flag_values=values)

        @flags.multi_flags_validator(["low", "high"], message="low exceeds high", flag_values=values)
        def ordered(given: dict[str, Any]) -> bool:
            return bool(given["low"] <= given["high"])

        with pytest.raises(flags.IllegalFlagValueError, match="flags --low=2, --high=1: low exceeds high"):
            values(["prog", "--low=2", "--high=1"])
        assert ordered({"low": 0, "high": 1})

    @pytest.mark.parametrize(
        ("arguments", "required", "good"),
        [([], False, True), ([], True, False), (["--a=1"], True, True), (["--a=1", "--b=1"], False, False)],
    )
    def test_mutual_exclusion(self, values: flags.FlagValues, arguments: list[str], required: bool, good: bool) -> None:
        for name in ("a", "b"):
            flags.DEFINE_integer(name, None, "h", flag_values=values)
        flags.mark_flags_as_mutual_exclusive(["a", "b"], required=required, flag_values=values)
        if good:
            values(["prog", *arguments])
        else:
            with pytest.raises(flags.IllegalFlagValueError, match=r"one of \(a, b\) must have a value"):
                values(["prog", *arguments])

    def test_mutual_exclusion_of_booleans(self, values: flags.FlagValues) -> None:
        for name in ("a", "b"):
            flags.DEFINE_bool(name, False, "h", flag_values=values)
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        flags.mark_bool_flags_as_mutual_exclusive(["a", "b"], flag_values=values)
        values(["prog", "--a"])
        with pytest.raises(flags.IllegalFlagValueError, match="must be true; 2 do"):
            values(["prog", "--a", "--b"])
        with pytest.raises(flags.ValidationError, match="--n is not boolean"):
            flags.mark_bool_flags_as_mutual_exclusive(["a", "n"], flag_values=values)


class TestRun:
    def test_main_gets_what_no_flag_took_and_its_result_is_the_status(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        seen: list[Any] = []

        def main(argv: list[str]) -> int:
            seen.append((argv, values.n))
            return 3

        with pytest.raises(SystemExit) as caught:
            app.run(main, ["prog", "--n=2", "file", "--foreign=1"])
        assert caught.value.code == 3
        assert seen == [(["prog", "file", "--foreign=1"], 2)]

    def test_command_line_and_main_of_the_program_are_the_defaults(
        self, values: flags.FlagValues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["prog", "a"])
        program = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", program)
        with pytest.raises(AttributeError, match="no function main"):
            app.run()
        program.main = " ".join  # type: ignore[attr-defined]
        with pytest.raises(SystemExit) as caught:
            app.run()
        assert caught.value.code == "prog a"

    def test_bad_flag_ends_with_a_message(self, values: flags.FlagValues, capsys: pytest.CaptureFixture[str]) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values)
        with pytest.raises(SystemExit) as caught:
            app.run(lambda argv: None, ["prog", "--n=x"])
        assert caught.value.code == 1
        assert "FATAL Flags parsing error:\n  flag --n=x: " in capsys.readouterr().err

    @pytest.mark.parametrize("option", ["--help", "-h", "-help", "--helpshort", "--helpfull"])
    def test_help(self, values: flags.FlagValues, capsys: pytest.CaptureFixture[str], option: str) -> None:
        flags.DEFINE_bool("fast", True, "No waiting.", flag_values=values, module_name="prog")
        flags.DEFINE_integer("n", 1, "How many.", lower_bound=1, flag_values=values, module_name="other")
        with pytest.raises(SystemExit) as caught:
            app.run(lambda argv: None, ["prog", option])
        assert caught.value.code == 1
        out = capsys.readouterr().out
        assert "prog:\n  --[no]fast: No waiting.\n    (default: 'true')" in out
        full = "other:\n  --n: How many.\n    (default: '1')\n    (an integer of at least 1)"
        assert (full in out) == (option == "--helpfull")

    def test_a_flag_may_be_called_h(self, values: flags.FlagValues) -> None:
        flags.DEFINE_integer("h", 1, "Height.", flag_values=values)
        with pytest.raises(SystemExit) as caught:
            app.run(lambda argv: values.h, ["prog", "-h", "5"])
        assert caught.value.code == 5

    def test_flags_that_the_program_defined_with_absl_are_parsed_too(
        self, values: flags.FlagValues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        absl_like = types.ModuleType("absl.flags")
        absl_like.FLAGS = flags.FlagValues()  # type: ignore[attr-defined]
        flags.DEFINE_integer("theirs", 1, "h", flag_values=absl_like.FLAGS)
        flags.DEFINE_integer("ours", 1, "h", flag_values=values)
        monkeypatch.setitem(sys.modules, "absl.flags", absl_like)
        with pytest.raises(SystemExit) as caught:
            app.run(" ".join, ["prog", "--theirs=2", "--ours=3", "x"])
        assert caught.value.code == "prog x"
        assert (absl_like.FLAGS.theirs, values.ours) == (2, 3)

    def test_key_flags_of_other_modules_appear_in_short_help(
        self, values: flags.FlagValues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flags.DEFINE_integer("n", 1, "h", flag_values=values, module_name="library")
        flags.DEFINE_integer("m", 1, "h", flag_values=values, module_name="other")
        assert values.main_module_help() == ""
        flags.adopt_module_key_flags(types.ModuleType("library"), flag_values=values)
        flags.declare_key_flag("m", flag_values=values)
        assert [flag.name for flag in values.get_key_flags_for_module(__name__)] == ["n", "m"]
        with pytest.raises(flags.Error, match="expected a module"):
            flags.adopt_module_key_flags("library", flag_values=values)  # type: ignore[arg-type]

    def test_a_whole_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = tmp_path / "program.py"
        script.write_text(
            "from anabranch.frontend.platform import app, flags\n"
            "flags.DEFINE_string('platform_test_name', 'a', 'A name.')\n"
            "early = flags.FLAGS.platform_test_name\n"
            "def main(argv):\n"
            "    return ' '.join([early, flags.FLAGS.platform_test_name, *argv[1:]])\n"
            "if __name__ == '__main__':\n"
            "    app.run()\n"
        )
        monkeypatch.setattr(sys, "argv", [str(script), "--platform_test_name", "b", "c"])
        monkeypatch.delitem(sys.modules, "absl.flags", raising=False)
        flags.FLAGS.unparse_flags()  # as a process begins
        try:
            with pytest.raises(SystemExit) as caught:
                runpy.run_path(str(script), run_name="__main__")
            assert caught.value.code == "b b c"
            assert flags.FLAGS.find_module_defining_flag("platform_test_name") == str(script)
        finally:
            del flags.FLAGS.platform_test_name
            flags.FLAGS.unparse_flags()


@contextlib.contextmanager
def fresh_log() -> Iterator[io.StringIO]:
    """Standard error, with the log in the state that a fresh program finds.

    Not a fixture: pytest gives the root logger handlers after the fixtures are made.
    """
    root, named, ours = (python_logging.getLogger(name) for name in (None, "tensorflow", "anabranch"))
    levels = named.level, ours.level
    named.setLevel(python_logging.NOTSET)
    ours.setLevel(python_logging.NOTSET)
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as err:
            patch.setattr(root, "handlers", [])
            yield err
    finally:
        named.setLevel(levels[0])
        ours.setLevel(levels[1])


class TestLogging:
    def test_levels_are_those_of_python(self) -> None:
        names = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
        assert [getattr(logging, name) for name in names] == [10, 20, 30, 40, 50]
        assert logging.WARNING == logging.WARN

    def test_warnings_print_from_the_start(self) -> None:
        with fresh_log() as log:
            assert logging.get_verbosity() == logging.WARN
            logging.info("quiet")
            logging.warning("%d of %s", 3, "x")
            assert log.getvalue() == "WARNING:anabranch:3 of x\n"

    def test_every_level(self) -> None:
        with fresh_log() as log:
            logging.set_verbosity(logging.DEBUG)
            for name in ("debug", "info", "warn", "warning", "error", "fatal"):
                getattr(logging, name)(name)
            logging.log(logging.INFO, "log")
            logging.vlog(logging.INFO, "vlog")
            logging.log_if(logging.INFO, "yes", True)
            logging.log_if(logging.INFO, "no", False)
            logging.TaskLevelStatusMessage("task")
            logging.flush()
            lines = [line.replace(":anabranch:", " ") for line in log.getvalue().splitlines()]
            assert lines == [
                "DEBUG debug", "INFO info", "WARNING warn", "WARNING warning", "ERROR error", "CRITICAL fatal",
                "INFO log", "INFO vlog", "INFO yes", "ERROR task",
            ]  # fmt: skip

    def test_counting_is_by_line_of_code(self) -> None:
        with fresh_log() as log:
            for i in range(5):
                logging.log_every_n(logging.ERROR, "every %d", 2, i)
                logging.log_first_n(logging.ERROR, "first %d", 2, i)
            assert [line.split(":")[2] for line in log.getvalue().splitlines()] == [
                "every 0", "first 0", "first 1", "every 2", "every 4",
            ]  # fmt: skip

    def test_the_users_line_is_named(self) -> None:
        with fresh_log():
            records: list[python_logging.LogRecord] = []
            handler = python_logging.Handler()
            handler.emit = records.append  # type: ignore[assignment]
            logging.get_logger().addHandler(handler)
            try:
                logging.error("a")
                logging.log_if(logging.ERROR, "b", True)
                logging.log_first_n(logging.ERROR, "c", 1)
                logging.error("d", exc_info=False)
            finally:
                logging.get_logger().removeHandler(handler)
            assert {(record.filename, record.funcName) for record in records} == {
                (Path(__file__).name, "test_the_users_line_is_named")
            }
            assert len(records) == 4

    def test_handlers_and_levels_of_tensorflows_logger_work(self) -> None:
        with fresh_log():
            out = io.StringIO()
            handler = python_logging.StreamHandler(out)
            named = python_logging.getLogger("tensorflow")
            named.addHandler(handler)
            try:
                named.setLevel(python_logging.INFO)
                logging.info("seen")
                logging.flush()
            finally:
                named.removeHandler(handler)
            assert out.getvalue() == "seen\n"
            named.setLevel(python_logging.ERROR)
            assert logging.get_verbosity() == logging.ERROR

    def test_set_verbosity_wins_over_an_earlier_level(self) -> None:
        with fresh_log():
            logging.get_logger().setLevel("ERROR")
            assert logging.get_verbosity() == logging.ERROR
            logging.set_verbosity("INFO")
            assert logging.get_verbosity() == logging.INFO
            with pytest.raises(ValueError, match="LOUD"):
                logging.set_verbosity("LOUD")

    def test_handlers_of_the_root_logger_print_instead(self) -> None:
        with fresh_log() as log:
            out = io.StringIO()
            python_logging.basicConfig(stream=out, format="%(message)s")
            logging.error("once")
            assert (out.getvalue(), log.getvalue()) == ("once\n", "")


class TestResourceLoader:
    def test_paths_beside_the_caller(self) -> None:
        here = os.path.dirname(__file__)
        assert resource_loader.get_data_files_path() == here
        assert resource_loader.get_path_to_datafile("a/b.txt") == os.path.join(here, "a/b.txt")
        assert resource_loader.get_root_dir_with_all_resources() == here
        assert resource_loader.readahead_file_path("x", "1M") == "x"

    def test_root_of_a_runfiles_tree(self, tmp_path: Path) -> None:
        script = tmp_path / "job.runfiles" / "workspace" / "pkg" / "job.py"
        script.parent.mkdir(parents=True)
        script.write_text(
            "from anabranch.frontend.platform import resource_loader\n"
            "root = resource_loader.get_root_dir_with_all_resources()\n"
        )
        assert runpy.run_path(str(script))["root"] == str(script.parents[1])

    def test_load_resource_reads_from_the_package(self) -> None:
        assert b"Exception classes" in resource_loader.load_resource("errors.py")
        with pytest.raises(FileNotFoundError):
            resource_loader.load_resource("no/such/file")
