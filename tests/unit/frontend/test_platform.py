"""Entry point, flags, log and data files. The flags are absl's: here is what TensorFlow adds to them."""

from __future__ import annotations

import contextlib
import io
import logging as python_logging
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import absl.flags
import pytest

import anabranch as tf
from anabranch.frontend.platform import flags, logging, resource_loader


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Iterator[absl.flags.FlagValues]:
    """The program's flags as a process begins, without a command line; what a test defines is gone after it."""
    monkeypatch.setattr(sys, "argv", ["prog"])
    before = set(flags.FLAGS)
    flags.FLAGS.unparse_flags()
    yield flags.FLAGS
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


class TestFlags:
    def test_first_read_parses_the_command_line_and_tolerates_what_it_does_not_know(
        self, values: absl.flags.FlagValues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["prog", "--rate=0.5", "--foreign", "x"])
        flags.DEFINE_float("rate", 0.1, "h")
        assert not values.is_parsed()
        assert values["rate"].value == 0.1
        assert not values.is_parsed(), "looking at a flag is not reading it"
        assert values.rate == 0.5
        assert values.is_parsed()

    def test_reading_an_unknown_flag_names_it(self, values: absl.flags.FlagValues) -> None:
        with pytest.raises(AttributeError, match="rate"):
            values.rate

    def test_a_flag_that_is_set_before_it_is_read_keeps_the_value(self, values: absl.flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h")
        flags.DEFINE_integer("m", 1, "h")
        values.n = values["m"].value = 7
        values(["prog", "--m=8"])
        assert (values.n, values.m) == (7, 8)

    def test_early_tensorflow_names(self, values: absl.flags.FlagValues) -> None:
        flags.DEFINE_string("name", "a", "h")
        assert values._parse_flags(["--name=b", "--other", "c"]) == ["--other", "c"]
        # Not `values.__flags`: Python rewrites that inside a class.
        assert getattr(values, "__flags")["name"].value == "b"
        assert values.__dict__["__flags"]["name"].value == "b"

    @pytest.mark.parametrize(
        ("define", "default"),
        [
            (flags.DEFINE_string, "a"),
            (flags.DEFINE_bool, True),
            (flags.DEFINE_boolean, True),
            (flags.DEFINE_float, 0.5),
            (flags.DEFINE_integer, 2),
        ],
    )
    def test_early_tensorflow_argument_names(self, values: absl.flags.FlagValues, define: Any, default: Any) -> None:
        define(flag_name="s", default_value=default, docstring="text")
        assert (values["s"].default, values["s"].help) == (default, "text")
        fresh = absl.flags.FlagValues()
        define("s", default, "text", flag_values=fresh)
        assert list(fresh) == ["s"]

    def test_as_a_mapping(self, values: absl.flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "How many.", short_name="k")
        assert {"k", "n"} <= set(values)
        assert {"k", "n"} <= set(dir(values))
        assert len(values) == len(list(values))
        assert "n" in values
        assert "m" not in values
        assert values["k"] is values["n"]
        values["other"] = absl.flags.Flag(absl.flags.ArgumentParser(), None, "other", "a", "h")
        assert (values.other, values.flag_values_dict()["other"]) == ("a", "a")
        assert "How many." in str(values)
        del values.other
        assert "other" not in values

    def test_they_are_those_of_absl(self, values: absl.flags.FlagValues) -> None:
        absl.flags.DEFINE_integer("theirs", 1, "h")
        flags.DEFINE_integer("ours", 1, "h")
        assert isinstance(values, absl.flags.FlagValues)
        assert (values.theirs, absl.flags.FLAGS.ours) == (1, 1)
        values.ours = 3
        assert absl.flags.FLAGS.ours == 3

    def test_a_flag_is_that_of_the_module_that_defines_it(self, values: absl.flags.FlagValues) -> None:
        flags.DEFINE_integer("n", 1, "h")
        flags.DEFINE_string("s", "a", "h")
        assert values.find_module_defining_flag("n") == values.find_module_defining_flag("s") == __name__
        with pytest.raises(absl.flags.DuplicateFlagError, match="'n' is defined twice"):
            flags.DEFINE_string("n", "a", "h")
        for name in ("n", "s"):
            delattr(values, name)
        flags.DEFINE_string("n", "a", "h")
        assert values.n == "a"

    def test_every_name_of_absl_flags_is_there(self) -> None:
        assert set(tf.flags.__all__) == set(absl.flags.__all__)
        differ = {name for name in tf.flags.__all__ if getattr(tf.flags, name) is not getattr(absl.flags, name)}
        assert differ == {
            "FLAGS", "DEFINE_string", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float", "DEFINE_integer",
        }  # fmt: skip
        assert tf.app.flags is tf.flags


PROGRAM = """
from absl import flags as absl_flags
import anabranch as tf

tf.app.flags.DEFINE_integer("n", 1, "How many.", lower_bound=0)
tf.flags.DEFINE_string("log_dir", "runs", "Where the events go.")
absl_flags.DEFINE_string("theirs", "a", "A flag of absl's.")
early = tf.flags.FLAGS.n

def main(argv):
    tf.logging.warning("in main")
    print(argv[1:], early, tf.flags.FLAGS.n, tf.flags.FLAGS.log_dir, absl_flags.FLAGS.theirs)
    return 3

if __name__ == "__main__":
    tf.app.run()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


def ran(*command: object) -> subprocess.CompletedProcess[str]:
    """`tf.app.run` belongs to a process of its own: absl registers flags and a log handler for good."""
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False, timeout=120
    )


class TestRun:
    def test_main_gets_what_no_flag_took_and_its_result_is_the_status(self, program: Path) -> None:
        done = ran(program, "--n=2", "file", "--foreign=1", "--theirs", "b")
        assert done.stdout == "['file', '--foreign=1'] 2 2 runs b\n", done.stderr
        assert done.returncode == 3
        (line,) = done.stderr.splitlines()
        assert line.endswith("] in main"), "each message is printed once"

    def test_a_programs_flag_stands_before_absls_of_that_name(self, program: Path) -> None:
        assert ran(program, "--log_dir=x").stdout == "[] 1 1 x a\n"

    def test_arguments_may_be_given(self) -> None:
        text = "tf.app.run(lambda argv: print(argv, tf.flags.FLAGS.n), ['prog', '--n', '4', 'x'])"
        done = ran("-c", f"import anabranch as tf; tf.flags.DEFINE_integer('n', 1, 'h'); {text}")
        assert (done.stdout, done.returncode) == ("['prog', 'x'] 4\n", 0), done.stderr

    def test_a_program_without_main_is_told_so(self) -> None:
        done = ran("-c", "import anabranch as tf; tf.app.run()")
        assert done.returncode == 1
        assert "the main module defines no function main(argv)" in done.stderr

    def test_bad_flag_ends_with_a_message(self, program: Path) -> None:
        done = ran(program, "--n=-1")
        assert done.returncode == 1
        # the first reading told of it, as the program does not parse before it reads
        assert "flag --n=-1: -1 is not a non-negative integer" in done.stderr
        text = "tf.flags.DEFINE_integer('n', 1, 'h'); tf.app.run(print, ['prog', '--n=x'])"
        done = ran("-c", f"import anabranch as tf; {text}")
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr.startswith("FATAL Flags parsing error:\n  flag --n=x: ")

    @pytest.mark.parametrize("option", ["--help", "--helpshort", "--helpfull"])
    def test_help(self, program: Path, option: str) -> None:
        done = ran(program, option)
        assert done.returncode == 1
        assert "--n: How many.\n    (default: '1')\n    (a non-negative integer)" in done.stdout
        assert ("--verbosity" in done.stdout) == (option == "--helpfull")

    def test_messages_of_jax_are_not_let_through(self) -> None:
        text = "print(logging.getLogger('jax.x').getEffectiveLevel(), logging.getLogger('x').getEffectiveLevel())"
        done = ran("-c", f"import logging, anabranch as tf; tf.app.run(lambda _: {text})")
        assert done.stdout == "30 20\n", done.stderr
        done = ran("-c", f"import logging, anabranch as tf; tf.app.run(lambda _: {text})", "--logger_levels=jax:DEBUG")
        assert done.stdout == "10 20\n", done.stderr


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
