"""Where a sent tensor meets whoever receives it (§3.3, WP3.2.2).

`RendezvousTable` is a pure state machine: events go in (a value is sent, somebody asks for one, a step ends or is given
up), deliveries come out. `runtime.rendezvous` puts a lock around it.

A key names one value of one run: (step, source device, destination device, tensor, frame, iteration). Its states:

    =========  ==================  =====================  ==========  =====================
    state      send                receive                abort       finish
    =========  ==================  =====================  ==========  =====================
    nothing    -> sent             -> awaited             -> aborted  forgotten
    sent       error: sent twice   deliver, -> met        -> aborted  forgotten
    awaited    deliver, -> met     error: asked twice     fail it     fail it, forgotten
    met        error: sent twice   error: asked twice     -> aborted  forgotten
    aborted    dropped             fail it                -           forgotten
    =========  ==================  =====================  ==========  =====================

A step itself has states too. A task may hear of it by a value of another task, or learn that it was given up, before
it is told to start it (the two messages come over different links):

    =========  ====================  ====================  ====================  ====================
    state      arrive                begin                 abort                 finish
    =========  ====================  ====================  ====================  ====================
    unknown    kept, -> early        -> begun              -> given up           -
    early      kept                  -> begun              -> given up           -
    begun      as `send`             error: begun twice    as above, -> begun    -> ended
    given up   dropped               error: what it was    -                     -
                                     given up for,
                                     -> ended
    ended      dropped               error                 -                     -
    =========  ====================  ====================  ====================  ====================

The part of a step that waits for nothing, since all of its tensors are there when it is started, runs in one *turn*
(`begin_turn`): nothing meets here, and what still comes for it comes too late. So its step counts as ended from its
beginning; its session is idle only when the turn is over.

#: A value is delivered exactly once, or its step has ended.
#: After `abort` or `finish` of a step nobody waits for it any more: every waiter is told, so none can be forgotten.
#: What is sent for a step that has ended is dropped; the numbers of steps are never used again.
#: What is kept for steps that have not begun is bounded, in bytes and in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, InternalError, ResourceExhaustedError

#: steps that are kept as ended, for each session: far more than can be under way at once
REMEMBERED_STEPS: Final = 4096
#: what may come from other tasks for steps that have not begun here
MAX_EARLY_BYTES: Final = 4 << 30
MAX_EARLY_STEPS: Final = 4096


class Dead(Enum):
    """The value of a tensor whose producer did not run, because a conditional took the other branch."""

    DEAD = "dead"


#: sent in place of a dead value; whoever receives it is dead in turn
DEAD: Final = Dead.DEAD


class Nothing(Enum):
    """In place of a value that was not sent yet."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


class StepId(NamedTuple):
    """Names a step, of all sessions that a task works for: the master numbers those of a session."""

    session: str
    number: int

    def __str__(self) -> str:
        return str(self.number)


class Key(NamedTuple):
    """Names one value of one run."""

    step: StepId
    source: str
    destination: str
    tensor: str
    frame: str = ""
    iteration: int = 0

    def __str__(self) -> str:
        where = f" in iteration {self.iteration} of {self.frame}" if self.frame else ""
        return f"{self.tensor} from {self.source} to {self.destination} in step {self.step}{where}"


class Delivery(NamedTuple):
    """An instruction: give a waiter its value, or its error."""

    waiter: Any
    value: Any
    error: BaseException | None = None


@dataclass(slots=True)
class _StepState:
    """What is known of one step: values sent, waiters, and keys that have met."""

    sent: dict[Key, Any] = field(default_factory=dict)
    awaited: dict[Key, Any] = field(default_factory=dict)
    met: set[Key] = field(default_factory=set)
    error: BaseException | None = None
    begun: bool = False
    #: bytes of values that came before the step began
    early_bytes: int = 0


class _EndedSteps:
    """Which steps of a session have ended, of the last few; all that are much older have.

    Steps that functions are have numbers below 0. No other task can name them, so that nothing comes late for them.

    Attributes:
        first: the steps below have ended.
    """

    __slots__ = ("_last", "_numbers", "first")

    def __init__(self, first: int) -> None:
        self._numbers: set[int] = set()
        self.first = self._last = first

    def end_below(self, first: int) -> None:
        if first > self.first:
            self.first = first
            self._last = max(self._last, first)

    def begin(self, number: int) -> bool:
        """Adds a step that has just begun; False where it has ended."""
        if number in self:
            return False
        self.add(number)
        return True

    def add(self, number: int) -> None:
        if number < self.first:
            return
        self._numbers.add(number)
        self._last = max(self._last, number)
        # twice as many as are remembered, so that the pass over all of them is made once in many steps
        if len(self._numbers) > 2 * REMEMBERED_STEPS:
            self.first = max(self.first, self._last - REMEMBERED_STEPS)
            self._numbers = {one for one in self._numbers if one >= self.first}

    def __contains__(self, number: int) -> bool:
        return number in self._numbers or 0 <= number < max(self.first, self._last - REMEMBERED_STEPS)


class RendezvousTable:
    """The state machine; see the module docstring. Not thread-safe, and it calls nobody."""

    def __init__(self) -> None:
        self._steps: dict[StepId, _StepState] = {}
        #: of the sessions that other tasks work for as well
        self._ended: dict[str, _EndedSteps] = {}
        self._early_bytes = 0
        self._early_steps = 0
        #: turns that are under way, for each session that has any
        self._turns: dict[str, int] = {}
        #: how many steps have ended
        self.ended_steps = 0

    def open_session(self, session: str, first: int) -> None:
        """Other tasks work for a session too. The keys of any other mean nothing before its step begins, or after.

        Args:
            first: the steps below have ended.
        """
        self._ended.setdefault(session, _EndedSteps(first))

    def end_below(self, session: str, first: int) -> None:
        """The steps of a session below a number have ended: what came for them too late, or in vain, is dropped."""
        ended = self._ended.get(session)
        if ended is None:
            return
        ended.end_below(first)
        if self._early_steps:
            for step, state in list(self._steps.items()):
                if step.session == session and 0 <= step.number < first and not state.begun:
                    self._is_early_no_more(self._steps.pop(step))

    def begin(self, step: StepId, sent: Sequence[tuple[Key, TensorValue | Dead]] = ()) -> None:
        """A step starts.

        Args:
            sent: values of it that have come along.

        Raises:
            InternalError: it has begun already, or has ended.
            BaseException: what it was given up for before it began.
        """
        state = self._steps.get(step)
        if (state is not None and state.begun) or self._has_ended(step):
            raise InternalError(None, None, f"step {step} has begun already")
        keys = {key for key, _ in sent}
        if len(keys) < len(sent) or not (state is None or state.sent.keys().isdisjoint(keys)):
            raise InternalError(None, None, f"one of {', '.join(map(str, keys))} came twice")
        if state is None:
            state = self._steps[step] = _StepState()
        else:
            self._is_early_no_more(state)
        if state.error is not None:
            self._end(step)
            raise state.error
        state.begun = True
        for key, value in sent:
            # nobody has asked for it yet
            self.send(key, value)

    def begin_turn(self, session: str, number: int, first: int) -> bool:
        """The part of a step starts that waits for nothing, in a session that other tasks work for too.

        Args:
            first: the steps below have ended.

        Returns:
            False where somebody has heard of the step before, or it cannot begin: nothing has changed, and `begin` says
            more.
        """
        ended = self._ended.get(session)
        # as a `StepId`, which takes a call of a Python function to make
        if ended is None or (session, number) in self._steps or not ended.begin(number):
            return False
        if self._early_steps:
            self.end_below(session, first)
        else:
            ended.end_below(first)
        self._turns[session] = self._turns.get(session, 0) + 1
        return True

    def end_turn(self, session: str) -> None:
        """It is over."""
        self.ended_steps += 1
        left = self._turns[session] - 1
        if left:
            self._turns[session] = left
        else:
            del self._turns[session]

    def arrive(self, key: Key, value: TensorValue | Dead, size: int) -> list[Delivery]:
        """A value has come from another task, perhaps before the step has begun here.

        Args:
            size: its bytes.

        Raises:
            InternalError: it was sent before.
        """
        state = self._steps.get(key.step) or self._new_early(key.step)
        if state is None:
            return []
        # what comes for a step that was given up is dropped by `send`, and takes nothing of the bound
        if not state.begun and state.error is None:
            state.early_bytes += size
            self._early_bytes += size
            if self._early_bytes > MAX_EARLY_BYTES:
                error = f"more than {MAX_EARLY_BYTES} bytes came from other tasks for steps that have not begun here"
                return self.abort(key.step, ResourceExhaustedError(None, None, error))
        return self.send(key, value)

    def _new_early(self, step: StepId) -> _StepState | None:
        """A step that is heard of before it begins; None where nothing is kept for it."""
        ended = self._ended.get(step.session)
        # nothing comes early in a session without other tasks; and what comes after the end would be kept for ever
        if ended is None or step.number in ended:
            return None
        if self._early_steps >= MAX_EARLY_STEPS:
            self._drop_oldest_early(step.session)
        self._early_steps += 1
        state = self._steps[step] = _StepState()
        return state

    def _drop_oldest_early(self, session: str) -> None:
        """A step may never begin here: its master gave it up first. Masters number steps in order."""
        early = [step for step, state in self._steps.items() if not state.begun]
        # of the same session if it can be: numbers of different sessions say nothing about which step is older
        oldest = min((step for step in early if step.session == session), default=min(early))
        self._is_early_no_more(self._steps.pop(oldest))

    def _is_early_no_more(self, state: _StepState) -> None:
        self._early_steps -= 1
        self._early_bytes -= state.early_bytes
        state.early_bytes = 0

    def _has_ended(self, step: StepId) -> bool:
        ended = self._ended.get(step.session)
        return ended is not None and step.number in ended

    def _end(self, step: StepId) -> None:
        del self._steps[step]
        # only what other tasks send can come late; in a session without them no step has to be remembered
        if step.session in self._ended:
            self._ended[step.session].add(step.number)

    def forget_session(self, session: str) -> None:
        """A session has ended; nothing of its steps is kept."""
        for step, state in list(self._steps.items()):
            if step.session == session and not state.begun:
                self._is_early_no_more(state)
                del self._steps[step]
        self._ended.pop(session, None)

    def send(self, key: Key, value: TensorValue | Dead) -> list[Delivery]:
        """A value is there.

        Raises:
            InternalError: it was sent before.
        """
        state = self._steps.get(key.step)
        # another task may have given the step up; the thread that runs it here sends until it has noticed
        if state is None or state.error is not None:
            return []
        if key in state.sent or key in state.met:
            raise InternalError(None, None, f"{key} was sent twice; a value is sent once in each iteration")
        if key not in state.awaited:
            state.sent[key] = value
            return []
        # remembered until the step ends, so that a second value or question is seen to be one
        state.met.add(key)
        return [Delivery(state.awaited.pop(key), value)]

    def receive(self, key: Key, waiter: object) -> list[Delivery]:
        """Somebody asks for a value.

        Raises:
            InternalError: somebody asked before.
        """
        state = self._steps.get(key.step)
        if state is None:
            return [Delivery(waiter, None, CancelledError(None, None, f"{key} was asked for after its step had ended"))]
        if state.error is not None:
            return [Delivery(waiter, None, state.error)]
        if key in state.awaited or key in state.met:
            raise InternalError(None, None, f"{key} was asked for twice; each device receives a tensor once")
        if key not in state.sent:
            state.awaited[key] = waiter
            return []
        state.met.add(key)
        return [Delivery(waiter, state.sent.pop(key))]

    def take(self, key: Key) -> Any:
        """The value of a key if it was sent already; else `NOTHING`, and nobody has asked."""
        state = self._steps.get(key.step)
        if state is None or key not in state.sent:
            return NOTHING
        state.met.add(key)
        return state.sent.pop(key)

    def forget(self, key: Key, waiter: object) -> None:
        """A waiter gives up."""
        state = self._steps.get(key.step)
        if state is not None and state.awaited.get(key) is waiter:
            del state.awaited[key]

    def abort(self, step: StepId, error: BaseException) -> list[Delivery]:
        """A step is given up: all its waiters, present and future, fail with `error`."""
        state = self._steps.get(step)
        if state is None:
            state = self._new_early(step)
        if state is None or state.error is not None:
            return []
        state.error = error
        waiters = [Delivery(waiter, None, error) for waiter in state.awaited.values()]
        # the step stays known until `finish`, so that who sends or asks from now on is answered by the error
        state.sent.clear()
        state.awaited.clear()
        return waiters

    def is_idle(self, session: str) -> bool:
        """Whether no step of a session is under way."""
        begun = any(step.session == session and state.begun for step, state in self._steps.items())
        return not begun and session not in self._turns

    def finish(self, step: StepId) -> list[Delivery]:
        """A step has ended; what nobody asked for is dropped."""
        state = self._steps.get(step)
        # who did not begin a step does not end it: what came early stays for the one who will
        if state is None or not state.begun:
            return []
        self._end(step)
        self.ended_steps += 1
        return [
            Delivery(waiter, None, CancelledError(None, None, f"nobody sent {key} before its step ended"))
            for key, waiter in state.awaited.items()
        ]

    def waiting(self, step: StepId) -> list[Key]:
        """What is asked for and not sent yet, for the message about a step that is stuck."""
        state = self._steps.get(step)
        return [] if state is None else list(state.awaited)

    @property
    def steps(self) -> int:
        """How many steps are under way."""
        return len(self._steps) + sum(self._turns.values())
