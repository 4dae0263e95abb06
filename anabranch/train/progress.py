"""How far a training is: a live line in a terminal or a notebook, and plain lines now and then in a log file."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from anabranch.core.values import TensorValue
from anabranch.session import Session
from anabranch.train.basic_session_run_hooks import fetchable, global_step_for
from anabranch.train.coordinator import Coordinator
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

#: columns of a bar: a shorter one is left out
_NARROWEST_BAR: Final = 6
_WIDEST_BAR: Final = 40


class ProgressDisplay:
    """Shows steps, values and the time that is left.

    In a terminal it is a bar that is redrawn in place, in one line of whatever width the terminal has (a narrow one
    loses the bar first, then the last values), in a notebook a line that is, and otherwise (a file, a pipe)
    a new line every `log_every_secs` seconds and at the end, without control characters.

    Args:
        title: what is going on.
        total: the last step; None: not known.
        first: the step at which this run begins.
        console: where to; default: standard output.
        log_every_secs: the time between lines of a log (s).
    """

    def __init__(
        self,
        title: str,
        total: int | None = None,
        first: int = 0,
        console: Console | None = None,
        log_every_secs: float = 30.0,
    ) -> None:
        from rich.console import Console  # time that only programs with a display should pay

        self._title, self._total, self._first = title, total, first
        self._console = console or Console()
        self._began = time.monotonic()
        self._shown = ""
        self._values: dict[str, Any] = {}
        if self._console.is_jupyter:
            self._show: _Line = _NotebookLine()
        elif self._console.is_terminal and not self._console.is_dumb_terminal:
            self._show = _TerminalBar(self._console, title, total)
        else:
            self._show = _LogLines(self._console, log_every_secs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def announce(self, what: str) -> None:
        """Shows at once what goes on before the first step, such as a compilation, which may take a while."""
        self._shown = f"{self._title}: {self._position(self._first)}, {what}"
        self._show.announce(Shown(self._first, [what], "", self._shown))

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Shows that `step` is done, and values: numbers with four digits, texts as they are."""
        self._values = dict(values)
        texts = [_shown(name, value) for name, value in values.items()]
        self._shown = ", ".join((f"{self._title}: {self._position(step)}", *texts))
        self._show.update(Shown(step, texts, self._time_left(step), self._shown))

    def advance(self, step: int) -> None:
        """Shows that `step` is done; the values stay as they were."""
        self.update(step, self._values)

    def close(self) -> None:
        """Shows the last state for good."""
        self._show.close(self._shown)

    def _position(self, step: int) -> str:
        return f"step {step}" if self._total is None else f"step {step}/{self._total} ({step / self._total:.0%})"

    def _time_left(self, step: int) -> str:
        done = step - self._first
        if self._total is None or done <= 0 or step >= self._total:
            return ""
        seconds = (time.monotonic() - self._began) / done * (self._total - step)
        return f"{timedelta(seconds=round(seconds))} left"


def _shown(name: str, value: TensorValue) -> str:
    return f"{name} {value}".lstrip() if isinstance(value, str) else f"{name} {float(value):.4g}"


# ---------------------------------------------------------------------- three places to show it
@dataclass(frozen=True)
class Shown:
    """A state: the step, the values as texts, the time that is left, and all but that as one line."""

    step: int
    values: Sequence[str]
    left: str
    line: str

    def whole(self) -> str:
        """The line with the time that is left."""
        return f"{self.line}, {self.left}" if self.left else self.line


class _Line:
    """The place where a display shows its state."""

    def announce(self, shown: Shown) -> None:
        self.update(shown)

    def update(self, shown: Shown) -> None:
        raise NotImplementedError

    def close(self, line: str) -> None:
        raise NotImplementedError


class _TerminalBar(_Line):
    """One line, redrawn in place, never wider than the terminal is at the moment."""

    def __init__(self, console: Console, title: str, total: int | None) -> None:
        from rich.live import Live

        self._title, self._total = title, total
        self._now = Shown(0, [], "", "")
        self._live = Live(self, console=console, refresh_per_second=10)
        self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        shown = self._now
        position = f"step {shown.step}" if self._total is None else f"step {shown.step}/{self._total}"
        words, room = fitted(f"{self._title} {position}", [*shown.values, shown.left], options.max_width)
        line = Text(words[0], no_wrap=True, overflow="ellipsis", end="")
        if self._total is not None and room > _NARROWEST_BAR:
            columns = min(room - 1, _WIDEST_BAR)
            filled = round(columns * min(1.0, shown.step / max(1, self._total)))
            stroke = "-" if options.ascii_only else "━"
            line.append(" ").append(stroke * filled, "bar.complete").append(stroke * (columns - filled), "bar.back")
        line.append(" ".join(("", *words[1:])))
        yield line

    def update(self, shown: Shown) -> None:
        self._now = shown

    def close(self, line: str) -> None:
        self._live.stop()


def fitted(first: str, others: Sequence[str], width: int) -> tuple[list[str], int]:
    """The words that one line of `width` columns can hold, with a space before each but the first, and the room left.

    `first` stands in it whatever its length; of `others`, those that do not fit are left out.
    """
    words, room = [first], width - len(first)
    for word in filter(None, others):
        if len(word) < room:
            words.append(word)
            room -= len(word) + 1
    return words, max(0, room)


class _NotebookLine(_Line):
    """One output of the cell, replaced by each update; needs nothing but the notebook's own display function."""

    def __init__(self) -> None:
        display = importlib.import_module("IPython.display")
        self._text = display.Pretty
        self._handle = display.display(self._text(""), display_id=True)

    def update(self, shown: Shown) -> None:
        self._handle.update(self._text(shown.whole()))

    def close(self, line: str) -> None:
        self._handle.update(self._text(line))


class _LogLines(_Line):
    def __init__(self, console: Console, every_secs: float) -> None:
        self._console, self._every = console, every_secs
        self._next = time.monotonic() + every_secs
        self._last = ""

    def announce(self, shown: Shown) -> None:
        self._write(shown.whole())

    def update(self, shown: Shown) -> None:
        if time.monotonic() >= self._next:
            self._write(shown.whole())

    def close(self, line: str) -> None:
        if line and line != self._last:
            self._write(line)

    def _write(self, line: str) -> None:
        self._last = line
        self._next = time.monotonic() + self._every
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


# ---------------------------------------------------------------------- in a monitored session
class ProgressHook(SessionRunHook):
    """Shows the progress of a training in a monitored session: see `ProgressDisplay`.

    Args:
        last_step: the global step at which the training ends; None: not known.
        tensors: what to show: a dictionary from names to scalar tensors or names of tensors.
        batch_size: examples per step; when given, examples per second are shown instead of steps per second.
        every_n_secs: the time between updates (s).
        title, console: as of `ProgressDisplay`.

    Raises:
        RuntimeError: when the session begins: the graph has no global step.
    """

    def __init__(
        self,
        last_step: int | None = None,
        tensors: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        every_n_secs: float = 0.5,
        title: str = "training",
        console: Console | None = None,
    ) -> None:
        self._last_step, self._tensors, self._batch_size = last_step, dict(tensors or {}), batch_size
        self._every, self._title, self._console = every_n_secs, title, console
        self._display: ProgressDisplay | None = None
        self._due = False

    def begin(self) -> None:
        self._global_step = global_step_for(self)
        self._fetched = {name: fetchable(self._global_step.graph, t) for name, t in self._tensors.items()}

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        step = int(session.run(self._global_step))
        self._at = (time.monotonic(), step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._display is None:  # a session that was lost and made again goes on in the same display
            self._display = ProgressDisplay(self._title, self._last_step, self._at[1], self._console)
            self._display.announce("preparing the first step")
        self._due = time.monotonic() >= self._at[0] + self._every
        return SessionRunArgs(self._fetched) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._due:
            self._show(run_context.session, run_values.results)

    def end(self, session: Session) -> None:
        if self._display is not None:
            self._show(session, {})
            self._display.close()

    def abandoned(self) -> None:
        if self._display is not None:
            self._display.close()  # a terminal would be left without its cursor

    def _show(self, session: Session, values: Mapping[str, Any]) -> None:
        assert self._display is not None
        step, now = int(session.run(self._global_step)), time.monotonic()
        before, first = self._at
        self._at = (now, step)
        rate = (step - first) / max(now - before, 1e-9)
        speed = f"{rate:,.1f} steps/s" if self._batch_size is None else f"{rate * self._batch_size:,.0f} examples/s"
        self._display.update(step, {**values, "": speed})
