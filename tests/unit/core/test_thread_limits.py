"""How many threads operations may use: what a program's first session says holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.core import thread_limits
from anabranch.core.thread_limits import ask_for_threads, limited_by
from anabranch.xla.one_thread import MOST_CLIENTS

VARIABLE = "ANABRANCH_TEST_THREADS"
_PROGRAM = """
import glob, sys
import anabranch as tf
if sys.argv[2] == "tf.config":
    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    config = None
else:
    config = tf.ConfigProto(intra_op_parallelism_threads=int(sys.argv[1]))
x = tf.placeholder(tf.float32, [64])
for again in (config, tf.ConfigProto(intra_op_parallelism_threads=7)):
    with tf.Session(config=again) as session:
        session.run(tf.exp(x), {x: [0.0] * 64})
names = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
print(names.count("tf_XLAEigen"))
"""


def test_the_first_number_that_is_asked_for_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limits, "_asked", [])
    monkeypatch.delenv(VARIABLE, raising=False)
    with limited_by(VARIABLE):
        assert VARIABLE not in os.environ
    for count in (0, 3, 5):
        ask_for_threads(count)
    with limited_by(VARIABLE):
        assert os.environ[VARIABLE] == "3"
    assert VARIABLE not in os.environ


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limits, "_asked", [2])
    monkeypatch.setenv(VARIABLE, "9")
    with limited_by(VARIABLE):
        assert os.environ[VARIABLE] == "9"
    assert os.environ[VARIABLE] == "9"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
@pytest.mark.parametrize("where", ["session", "tf.config"])
@pytest.mark.parametrize(("asked", "other"), [(3, False), (3, True), (1, True)])
def test_the_compilers_programs_have_so_many_threads(asked: int, other: bool, where: str) -> None:
    """And one for each client of programs of small operations, where these are allowed and all others have several."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PJRT_NPROC", "NPROC", "XLA_FLAGS"}}
    environment["ANABRANCH_ONE_THREAD"] = str(int(other))
    command = [sys.executable, "-c", _PROGRAM, str(asked), where]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    side_by_side = min(asked, len(os.sched_getaffinity(0)))
    of_small_programs = min(side_by_side, MOST_CLIENTS) if other and side_by_side > 1 else 0
    assert ran.stdout.split() == [str(asked + of_small_programs)]
