"""Processes that a program under `anabranch run` starts: `tensorflow` means anabranch there, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from anabranch.tools.for_children import FOLDER

STARTS_PROCESSES = """
import concurrent.futures, multiprocessing, subprocess, sys
import tensorflow as tf
from helper import answer

def plus(x):
    return int(tf.get_static_value(tf.constant(x) + 1)), tf.__name__

if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map_async(plus, [1, 2]).get(timeout=100))
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as executor:
        print(list(executor.map(plus, [3], timeout=100)), list(executor.map(answer, [1], timeout=100)))
    command = "from tensorflow.python.framework import ops; import tensorflow as tf; print(ops.Graph is tf.Graph)"
    print(subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd="/"))
"""
HELPER = """
import tensorflow.compat.v1 as tf1

def answer(x):
    return tf1.__version__
"""
NO_GUARD = """
import multiprocessing
import tensorflow as tf

def work():
    pass

child = multiprocessing.get_context("spawn").Process(target=work)
child.start()
child.join()
print("the child ended with", child.exitcode)
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    (folder / "helper.py").write_text(HELPER)
    command = [sys.executable, "-m", "anabranch", "run", str(folder / "program.py")]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=False)


def test_processes_know_tensorflow_however_they_are_started(tmp_path: Path) -> None:
    done = run(tmp_path, STARTS_PROCESSES)
    assert done.returncode == 0, done.stderr
    forked, spawned, called = done.stdout.splitlines()
    assert forked == "[(2, 'tensorflow'), (3, 'tensorflow')]"
    assert spawned == "[(4, 'tensorflow')] ['1.15.5']"
    assert "stdout='True\\n', stderr=''" in called


def test_a_program_without_a_guard_gets_the_usual_error(tmp_path: Path) -> None:
    done = run(tmp_path, NO_GUARD)
    assert "before the\n        current process has finished its bootstrapping phase" in done.stderr
    assert done.stdout == "the child ended with 1\n"


def test_a_process_without_tensorflow_imports_nothing() -> None:
    command = "import sys; print([name for name in sys.modules if name.startswith(('anabranch', 'tensorflow'))])"
    env = {**os.environ, "PYTHONPATH": FOLDER}
    done = subprocess.run([sys.executable, "-c", command], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
