"""Progress in a terminal, a notebook and a log file, with a clock that the tests move."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

import anabranch as tf
from anabranch.train import progress


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def _console(width: int = 200, **options: Any) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=width, **options), file


def test_a_log_gets_a_line_now_and_then(clock: Clock) -> None:
    console, file = _console(force_terminal=False)
    with progress.ProgressDisplay("training", 200, console=console, log_every_secs=30) as display:
        for step in range(1, 101):
            clock.now += 1
            display.update(step, {"loss": 1 / step, "": "7 images/s"})
    assert file.getvalue().splitlines() == [
        "training: step 30/200 (15%), loss 0.03333, 7 images/s, 0:02:50 left",
        "training: step 60/200 (30%), loss 0.01667, 7 images/s, 0:02:20 left",
        "training: step 90/200 (45%), loss 0.01111, 7 images/s, 0:01:50 left",
        "training: step 100/200 (50%), loss 0.01, 7 images/s",
    ]


def test_what_is_announced_is_shown_at_once_and_values_stay(clock: Clock) -> None:
    console, file = _console(force_terminal=False)
    with progress.ProgressDisplay("training", 10, 4, console) as display:
        display.announce("compiling")
        clock.now += 10
        display.advance(5)
        display.update(6, {"loss": 0.5})
        clock.now += 20
        display.advance(7)
    assert file.getvalue().splitlines() == [
        "training: step 4/10 (40%), compiling",
        "training: step 7/10 (70%), loss 0.5, 0:00:30 left",
        "training: step 7/10 (70%), loss 0.5",
    ]


def test_a_log_ends_with_the_last_state_even_after_an_error(clock: Clock) -> None:
    console, file = _console(force_terminal=False)

    def fail() -> None:
        with progress.ProgressDisplay("work", console=console) as display:
            display.update(3, {"loss": 2.0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.getvalue() == "work: step 3, loss 2\n"


def test_a_terminal_shows_a_bar() -> None:
    console, file = _console(force_terminal=True, force_interactive=True)
    with progress.ProgressDisplay("training", 10, 4, console) as display:
        display.update(10, {"loss": 0.25})
    shown = file.getvalue()
    assert "step 10/10" in shown
    assert "loss 0.25" in shown
    assert "\x1b[" in shown, "it is redrawn in place"


@pytest.mark.parametrize(
    ("width", "last"),
    [
        (120, "training step 1500/1500 ━{37,40} loss 0.01235 held-out accuracy 98.89% 12,345 images/s"),
        (80, "training step 1500/1500 loss 0.01235 held-out accuracy 98.89% 12,345 images/s"),
        (60, "training step 1500/1500 ━{6,} loss 0.01235 12,345 images/s"),
        (40, "training step 1500/1500 loss 0.01235"),
        (20, "training step 1500/…"),
    ],
)
def test_a_terminal_of_any_width_shows_one_line(width: int, last: str) -> None:
    console, file = _console(width, force_terminal=True, force_interactive=True)
    with progress.ProgressDisplay("training", 1500, console=console) as display:
        display.announce("compiling, which may take a while")
        for step in (1, 750, 1500):
            values = {"loss": 0.0123456, "held-out accuracy": "98.89%", "": "12,345 images/s"}
            display.update(step, values)
            display._show._live.refresh()  # type: ignore[attr-defined]
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert file.getvalue().count("\n") == 1, "redrawn in place, and ended once"
    lines = [line for line in re.split(r"[\r\n]+", shown) if line]
    assert len(lines) >= 4
    assert max(map(len, lines)) <= width
    assert re.fullmatch(last, lines[-1])


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console, file = _console(80, force_terminal=True)
    with progress.ProgressDisplay("training", 100, console=console) as display:
        for step in range(1, 101):
            clock.now += 1
            display.update(step, {})
    assert len(file.getvalue().splitlines()) == 4


def test_a_notebook_replaces_one_output(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    outputs: list[list[str]] = []

    class Handle:
        def __init__(self, text: str) -> None:
            outputs.append([text])

        def update(self, text: str) -> None:
            outputs[-1].append(text)

    module = ModuleType("IPython.display")
    module.Pretty = str  # type: ignore[attr-defined]
    module.display = lambda text, display_id: Handle(text)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    console, _ = _console(force_jupyter=True)
    with progress.ProgressDisplay("training", 4, console=console) as display:
        for step in (1, 2):
            clock.now += 1
            display.update(step, {})
    assert outputs == [
        [
            "",
            "training: step 1/4 (25%), 0:00:03 left",
            "training: step 2/4 (50%), 0:00:02 left",
            "training: step 2/4 (50%)",
        ]
    ]


def test_in_a_monitored_session(clock: Clock) -> None:
    console, file = _console(force_terminal=False)
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        train = tf.assign_add(step, 1)
        loss = tf.cast(step, tf.float32) * 0.5
        hook = tf.train.ProgressHook(
            20, {"loss": loss}, batch_size=64, every_n_secs=2, title="learning", console=console
        )
        hooks = [hook, tf.train.StopAtStepHook(last_step=20)]
        with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                clock.now += 4
                session.run(train)
    lines = file.getvalue().splitlines()
    assert lines[0] == "learning: step 0/20 (0%), preparing the first step"
    assert lines[1] == "learning: step 9/20 (45%), loss 4.5, 16 examples/s, 0:00:39 left"
    assert lines[-1].startswith("learning: step 20/20 (100%)")
    assert "\x1b" not in file.getvalue()


def test_a_session_that_fails_gives_the_terminal_back() -> None:
    console, file = _console(force_terminal=True, force_interactive=True)

    def interrupted() -> None:
        hooks = [tf.train.ProgressHook(20, console=console)]
        with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
            session.run(tf.train.get_global_step())
            raise KeyboardInterrupt

    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert file.getvalue().rindex(show) > file.getvalue().rindex(hide)


def test_programs_without_a_display_do_not_load_one() -> None:
    program = "import sys; import anabranch as tf; tf.train.ProgressHook; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "False\n", done.stderr


def test_it_needs_a_global_step() -> None:
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="Global step"):
        tf.train.ProgressHook().begin()
