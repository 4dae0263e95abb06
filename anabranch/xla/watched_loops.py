"""Compiled loops that a step's deadline, or the end of its session, can stop (§3.4).

XLA runs a program to its end. A loop of a step with a deadline is therefore compiled in stretches: a loop inside makes
so many iterations, a loop around it asks a `Watch` on the host how many more it may make. None means that the loop
ends, with a check that fails, so that no variable is changed. The first stretch is short; from then on, a stretch is as
long as it takes to be asked about every 20 ms, so that the question costs nothing that can be measured.

The program of an island outlives the step: it is told the number of the step's watch as an argument. Steps without a
deadline run programs that ask nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode

Carry = TypeVar("Carry")  #: what goes from one iteration of a loop to the next

#: time between two questions (s)
_PERIOD: Final = 0.02
#: a stretch is at most so many times as long as the one before
_GROWTH: Final = 16
#: iterations of a loop inside another before its first question: most end before
_FIRST_INSIDE: Final = 64
_LONGEST: Final = 1 << 30
_COUNT: Final = jax.ShapeDtypeStruct((), np.int32)  # type: ignore[no-untyped-call]


class Watch(Protocol):
    """Who knows whether a step may go on."""

    def stops(self, op: StepNode) -> bool:
        """Whether a loop has to end. Any thread may ask."""


@dataclass(frozen=True, slots=True)
class WatchedLoops:
    """How the loops of an island that is being traced are watched.

    Attributes:
        number: the number of the step's watch (a traced int32 scalar).
        first: the number of iterations before the first question.
    """

    number: Any
    first: int = 1

    def inside(self) -> WatchedLoops:
        """The same for loops in the body of a loop."""
        return replace(self, first=_FIRST_INSIDE)

    def run(
        self, op: StepNode, going: Callable[[Carry], TensorValue], iterate: Callable[[Carry], Carry], carry: Carry
    ) -> tuple[Carry, TensorValue]:
        """Like `lax.while_loop(going, iterate, carry)`; also returns whether the loop came to its own end."""

        def ask(done: TensorValue) -> Any:
            return io_callback(partial(_next_stretch, op), _COUNT, self.number, done)

        def stretch_goes(state: tuple[Carry, TensorValue]) -> Any:
            carry, left = state
            return going(carry) & (left > 0)

        def iterate_stretch(state: tuple[Carry, TensorValue]) -> tuple[Carry, TensorValue]:
            carry, left = state
            return iterate(carry), left - 1

        def goes(state: tuple[Carry, TensorValue]) -> Any:
            carry, stretch = state
            return going(carry) & (stretch > 0)

        def run_stretch(state: tuple[Carry, TensorValue]) -> Any:
            carry, stretch = state
            carry, left = lax.while_loop(stretch_goes, iterate_stretch, (carry, stretch))
            # something is left of the stretch where the loop has come to its own end: nobody need be asked
            return carry, lax.cond(left > 0, lambda: stretch, lambda: ask(stretch))

        carry, stretch = lax.while_loop(goes, run_stretch, (carry, jnp.int32(self.first)))
        return carry, stretch > 0


# ---------------------------------------------------------------------- on the host
@dataclass(slots=True)
class _Watching:
    """A watch while an island runs, and when a loop of it asked last (s)."""

    watch: Watch
    asked: float


_numbers = itertools.count(1)
_watching: dict[int, _Watching] = {}


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[np.ndarray[Any, Any]]:
    """Inside the block a watch has a number: the argument for the program whose loops are to ask it."""
    # an argument of the program is an int32
    number = next(_numbers) % (1 << 31)
    _watching[number] = _Watching(watch, time.monotonic())
    try:
        yield np.array(number, np.int32)
    finally:
        del _watching[number]


def _next_stretch(op: StepNode, number: TensorValue, done: TensorValue) -> np.ndarray[Any, Any]:
    """How many more iterations a loop may make that has just made `done`."""
    asking = _watching[int(number)]
    if asking.watch.stops(op):
        return np.array(0, np.int32)
    now = time.monotonic()
    took, asking.asked = now - asking.asked, now
    # as many as take `_PERIOD` at the pace so far, but not many times more: the pace may change
    iterations = int(done) * min(_PERIOD / max(took, 1e-9), _GROWTH)
    return np.array(min(max(iterations, 1), _LONGEST), np.int32)
