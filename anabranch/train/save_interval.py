"""How often to save a checkpoint: where the time lost to saving and to failures is least (Young 1974, Daly 2006).

With a cost C of a save and a mean time M between failures, both in seconds, a failure loses half an interval on
average, and saving costs C in each: the sum is least near √(2CM) (Young). Daly's estimate holds also where C is not
small beside M: √(2CM)·(1 + ⅓√(C/2M) + ⅑·C/2M) - C for C < 2M, else M.

`SaveInterval` measures both: what training lost while a checkpoint was written, and how often tasks were lost. Times
are of one monotonic clock, in seconds, which the caller reads.
"""

from __future__ import annotations

import math
from typing import Final

#: what is assumed of a task before anything is known: one failure in so many seconds
ASSUMED_TASK_LIFE: Final = 86400.0
#: saves that would come more often than this (s) would measure little else than themselves
SHORTEST: Final = 1.0
LONGEST: Final = 3600.0
#: of the time that a save takes, at least this part is taken to be lost: the processor and the disk are shared
_LEAST_SHARE: Final = 0.02
#: how much a new measurement counts beside those before
_WEIGHT: Final = 0.5


def best_interval(cost: float, life: float) -> float:
    """Daly's interval between the end of a save and the begin of the next, in seconds.

    Args:
        cost: of a save, C.
        life: between two failures on average, M.

    Example:
        >>> round(best_interval(2.0, 3600.0))
        119
    """
    if cost >= 2 * life:
        return life
    part = cost / (2 * life)
    return math.sqrt(2 * cost * life) * (1 + math.sqrt(part) / 3 + part / 9) - cost


class SaveInterval:
    """Says when the next checkpoint is due.

    Args:
        now: the time.
        tasks: how many tasks there are: each of them may fail.
        task_life: the mean time (s) between failures of one task that is assumed; it counts as one failure seen in as
            much time, so that what is measured outweighs it in the long run.

    Raises:
        ValueError: `task_life` or `tasks` is not positive.
    """

    def __init__(self, now: float, tasks: int = 1, task_life: float = ASSUMED_TASK_LIFE) -> None:
        if task_life <= 0 or tasks < 1:
            raise ValueError(f"a task's life must be positive and there must be a task, got {task_life} and {tasks}")
        self._began = now
        self._assumed = task_life / tasks
        self._failures = 0
        self._cost: float | None = None
        self._last_end = now

    @property
    def cost(self) -> float:
        """What a save costs training, in seconds; 0 before the first."""
        return self._cost or 0.0

    def life(self, now: float) -> float:
        """The mean time between failures, in seconds."""
        return (self._assumed + now - self._began) / (1 + self._failures)

    def failed(self) -> None:
        """A task was lost."""
        self._failures += 1

    def saved(self, began: float, ended: float, pause: float, steps: int, steps_before: int) -> None:
        """A save has ended.

        Args:
            began, ended: when.
            pause: how long (s) training stood still for it.
            steps: how many steps ended from `began` to `ended`.
            steps_before: how many from the end of the last save to `began`.
        """
        took, between = ended - began, began - self._last_end
        share = _LEAST_SHARE
        if steps_before > 0 and between > 0:
            share = max(share, 1 - (steps * between) / (steps_before * took) if took > 0 else 0.0)
        cost = max(pause, min(share, 1.0) * took, 1e-3)
        self._cost = cost if self._cost is None else (1 - _WEIGHT) * self._cost + _WEIGHT * cost
        self._last_end = ended

    def seconds(self, now: float) -> float:
        """How long after the end of a save the next begins; 0 before the first."""
        if self._cost is None:
            return 0.0
        return min(max(best_interval(self._cost, self.life(now)), SHORTEST), LONGEST)

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next save."""
        return now - self._last_end >= self.seconds(now)
