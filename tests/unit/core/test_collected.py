"""What follows the end of an object that the garbage collector found."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anabranch.core.collected import when_collected


class Watched:
    """Can be referred to weakly, and be part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_a_call_that_wants_the_lock_under_which_the_object_was_collected_is_made_later() -> None:
    lock, called = threading.Lock(), threading.Event()

    def call() -> None:
        with lock:
            called.set()

    when_collected(Watched(), call)
    with lock:
        gc.collect()
        assert not called.is_set()
    assert called.wait(10)


def test_a_call_that_fails_is_logged_and_others_are_made(caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()
    with caplog.at_level(logging.ERROR):
        when_collected(Watched(), lambda: 1 / 0)
        gc.collect()
        when_collected(Watched(), called.set)
        gc.collect()
        assert called.wait(10)
    assert "ZeroDivisionError" in caplog.text


_PROGRAM = """
import sys, threading
from pathlib import Path
from anabranch.core.collected import when_collected

class Watched:
    pass

def call():
    threading.Event().wait(0.3)
    Path(sys.argv[1]).write_text("made")

when_collected(Watched(), call)
"""


def test_the_end_of_a_process_waits_for_calls_that_are_under_way(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "told")], check=True, timeout=60)
    assert (tmp_path / "told").read_text() == "made"
