"""A step of several tasks as its master sees it (§3.3; design D8).

`StepProtocol` is a pure state machine: a task answers, somebody gives the step up, time passes; what comes out are
instructions. `distributed.cluster_master` carries them out.

    =========  ==================  ==================  =====================  =====================  ===========
    state      last good answer    other good answer   error or giving up     grace is over          a task may
                                                                                                     begin
    =========  ==================  ==================  =====================  =====================  ===========
    running    end: values         -                   abort the others,      -                      yes
                                                       -> failed; end, if
                                                       none that has begun
                                                       is left
    failed     end: the cause      -                   (it is a consequence)  end: the cause, and    no
                                                       end: the cause, if     who did not answer
                                                       nobody is left
    ended      dropped             dropped             dropped                dropped                no
    =========  ==================  ==================  =====================  =====================  ===========

#: The first error that the master hears of is the cause: tasks fail because of another only after an abort.
#: A step ends once, and not before every task that was to begin has answered or the grace after its failure is over:
#: nothing of it runs on a task that answers by then, and none begins it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: how long (s) tasks have to answer after a step was given up
GRACE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell these tasks, by position, that the step is given up; then let `grace_is_over` come after `GRACE`.

    Those among them that have not begun are told since others may have sent them something. They do not answer.
    """

    tasks: tuple[int, ...]
    error: BaseException


@dataclass(frozen=True, slots=True)
class End:
    """The step is over; `error` is None where it succeeded."""

    error: BaseException | None


Instruction = Abort | End


class StepProtocol:
    """See the module docstring. Not thread-safe, and it calls nobody.

    Args:
        tasks: the names of the tasks that run a part of the step.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks
        self._left = set(range(len(tasks)))
        self._begun: set[int] = set()
        self._cause: BaseException | None = None
        self._ended = False

    @property
    def has_ended(self) -> bool:
        return self._ended

    @property
    def unanswered(self) -> list[str]:
        """The names of the tasks that have not answered."""
        return [self._tasks[task] for task in sorted(self._left)]

    def begin(self, task: int) -> bool:
        """A task is to be told to begin; whether it may be, which is not so once the step has failed."""
        if self._ended or self._cause is not None:
            return False
        # before the message leaves: an answer to it must find the task among those that have begun
        self._begun.add(task)
        return True

    def answered(self, task: int, error: BaseException | None = None) -> list[Instruction]:
        """A task says that its part has ended, and what it failed with."""
        if self._ended:
            return []
        self._left.discard(task)
        if error is not None and self._cause is None:
            return self._fail(error)
        return [] if self._left else [self._end()]

    def give_up(self, error: BaseException) -> list[Instruction]:
        """The caller was interrupted, the session closed, or the deadline has passed."""
        # whoever gives up a step that has failed hears of the failure, which came first
        return [] if self._ended or self._cause is not None else self._fail(error)

    def grace_is_over(self) -> list[Instruction]:
        """Tasks that have not answered since the step failed are not waited for any longer."""
        if self._ended or self._cause is None:
            return []
        # a note, since the cause is what the caller has to handle; this is something else to look at
        self._cause.add_note(
            f"{', '.join(self.unanswered)} did not say within {GRACE:g} s that this step has ended there; look at what "
            "that task does before the step is run again"
        )
        return [self._end()]

    def _fail(self, error: BaseException) -> list[Instruction]:
        self._cause = error
        instructions: list[Instruction] = [Abort(tuple(sorted(self._left)), error)] if self._left else []
        # those that have not begun have nothing to answer, and `begin` lets none begin from here on
        self._left &= self._begun
        return instructions if self._left else [*instructions, self._end()]

    def _end(self) -> End:
        # whatever comes from here on finds it ended: the caller is answered once
        self._ended = True
        return End(self._cause)
