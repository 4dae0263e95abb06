"""`anabranch run`: programs see what they would see under `python`, and `tensorflow` means anabranch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.tools import command_line

SHOW = """
import sys, os
print(__name__, os.path.basename(__file__), sys.argv[1:], sys.modules["__main__"].__dict__ is globals())
print(os.path.samefile(sys.path[0], {folder!r}))
"""
TRAIN = """
from __future__ import print_function
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow.python.framework import ops
from tensorflow.python.ops import math_ops, gen_math_ops
from tensorflow.python.client import device_lib, timeline
import helper

flags = tf.app.flags
flags.DEFINE_integer("steps", 3, "steps")
FLAGS = flags.FLAGS

def main(_):
    v = tf.get_variable("v", initializer=4.0)
    loss = math_ops.square(v, name="loss")
    step = tf1.train.GradientDescentOptimizer(helper.RATE).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(FLAGS.steps):
            sess.run(step)
        print("v = %.4f" % sess.run(v), ops.get_default_graph() is tf.get_default_graph(), tf.__version__)
        print(sess.run(gen_math_ops.add_n([v, v])) == 2 * sess.run(v))

if __name__ == "__main__":
    tf.app.run()
"""
LOGS = """
import logging
import tensorflow as tf
logging.basicConfig(level=logging.DEBUG)
logging.debug("before")
x = tf.placeholder(tf.float32, [1])
y = tf.cholesky(x[None])[0]
with tf.Session() as session:
    for _ in range(3):
        value = session.run(y, {x: [1.0]})
logging.debug("after %s", value.tolist())
"""


def anabranch(*arguments: Any, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "show.py").write_text(SHOW.format(folder=str(tmp_path)))
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("RATE = 0.25\n")
    return tmp_path


def test_what_jax_reports_is_not_in_the_log_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "logs.py").write_text(LOGS)
    done = anabranch("run", "logs.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["DEBUG:root:before", "DEBUG:root:after [1.0]"]


def test_a_tensorflow_program_runs(folder: Path) -> None:
    done = anabranch("run", folder / "train.py", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["v = 1.0000 True 1.15.5", "True"]
    assert not (folder / "__pycache__" / "train.cpython-311.pyc").exists()


def test_classes_of_initializers_are_known_by_tensorflows_module(tmp_path: Path) -> None:
    classes = "(tf.zeros_initializer, type(tf.glorot_uniform_initializer()))"
    (tmp_path / "program.py").write_text(f"import tensorflow as tf\nprint({{c.__module__ for c in {classes}}})\n")
    done = anabranch("run", "program.py", cwd=tmp_path)
    assert done.stdout == "{'tensorflow.python.ops.init_ops'}\n", done.stderr


def test_a_script_sees_what_python_shows_it(folder: Path) -> None:
    done = anabranch("run", "--", folder / "show.py", "-x", "--help")
    assert done.stdout.splitlines() == ["__main__ show.py ['-x', '--help'] True", "True"], done.stderr


def test_a_module_runs_from_the_current_folder(folder: Path) -> None:
    done = anabranch("run", "-m", "show", "a", cwd=folder)
    assert done.stdout.splitlines() == ["__main__ show.py ['a'] True", "True"], done.stderr


def test_explain_tells_on_the_error_stream(folder: Path) -> None:
    done = anabranch("explain", folder / "train.py", COLUMNS="160")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["True"]
    assert "prune" in done.stderr
    assert "first run of this step" in done.stderr
    assert "kinds of steps" in done.stderr


def test_explain_writes_wide_tables_to_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    done = anabranch("explain", folder / "train.py")
    assert max(map(len, done.stderr.splitlines())) == 120


def test_explain_tells_the_placement_when_asked(folder: Path) -> None:
    done = anabranch("explain", "--placement", folder / "train.py", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("│")] for line in done.stderr.splitlines() if "│" in line]
    assert ["", "GradientDescent", "NoOp", "-", "CPU:0", "the only device", ""] in rows


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('bye')", 1, "bye\n"),
        ("raise SystemExit", 0, ""),
        ("def f():\n    1 / 0\nf()", 1, "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ("x = (", 1, "SyntaxError: '(' was never closed\n"),
        ("import tensorflow.nosuch", 1, "anabranch has no tensorflow.nosuch; dir(tf) lists what is there\n"),
    ],
)
def test_the_end_is_that_of_the_program(tmp_path: Path, text: str, status: int, told: str) -> None:
    script = tmp_path / "s.py"
    script.write_text(text)
    done = anabranch("run", script)
    assert done.returncode == status
    assert done.stderr.endswith(told)
    for line in done.stderr.splitlines():
        assert "importlib" not in line
        assert "tools/program.py" not in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "which program?"),
        (["run", "-m"], "which program?"),
        (["run", "nosuch.py"], "can't open file 'nosuch.py': No such file or directory"),
        (["run", "--nosuch", "x.py"], "unrecognized arguments: --nosuch"),
        (["rum"], "there is no command 'rum'; did you mean 'run'?"),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with pytest.raises(SystemExit) as caught:
        command_line.main(arguments)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err
