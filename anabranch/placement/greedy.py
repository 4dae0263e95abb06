"""The greedy placer: simulates the step and puts each operation where it would end first (WP3.2.1).

Operations are taken in the simulation's order, the critical path first. An operation goes to the feasible device on
which it would end earliest, its inputs' transfers included; the first operation of a group decides for all of it. Of
equally good devices the one that the session prefers is taken.

A greedy choice can be worse than no choice at all (it may spread a chain whose transfers eat what was won). So the
result is compared, by the same simulation, with leaving as much as possible on one device, for each device in turn; the
best goes on. Hence: the placement is never worse than the best single device, by this cost model.

Last, groups are moved, one at a time, as long as the step gets faster by it and not too much was tried: the greedy
choice does not see what an operation is needed for.

Example: two independent chains of three operations of 1 s each, transfers of 0.1 s, joined by a last operation: the
second chain goes to the second device, and the step takes 4.1 s instead of 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.placement.simulation import Clock, Simulation

#: moves are tried until so many operations were simulated (about 0.3 s)
MAX_SIMULATED: Final = 300_000


@dataclass(frozen=True, slots=True)
class GreedyPlacement:
    """A device for each group, the simulated seconds of the step, and those of the best single device."""

    device_of_group: list[int]
    seconds: float
    single_device_seconds: float


def place_greedily(simulation: Simulation, feasible: Sequence[Sequence[int]]) -> GreedyPlacement:
    """Chooses a device for every group.

    Args:
        feasible: the devices of each group, none empty, in the order of preference.
    """
    greedy = _spread(simulation, feasible)
    single = [_gathered(feasible, device) for device in range(simulation.devices)]
    seconds = [simulation.makespan(candidate) for candidate in single]
    alone = min(range(len(single)), key=lambda at: (seconds[at], at))
    best, best_seconds = greedy, simulation.makespan(greedy)
    # if both are as good, nothing is sent for nothing
    if seconds[alone] <= best_seconds:
        best, best_seconds = single[alone], seconds[alone]
    best_seconds = _improve(simulation, feasible, best, best_seconds)
    return GreedyPlacement(best, best_seconds, seconds[alone])


def _spread(simulation: Simulation, feasible: Sequence[Sequence[int]]) -> list[int]:
    chosen = [-1] * len(feasible)
    clock = Clock(simulation)
    for at in simulation.order:
        group = simulation.jobs[at].group
        if chosen[group] < 0:
            ends = [clock.end_on(at, device) for device in feasible[group]]
            # `index` finds the first, which the session prefers
            chosen[group] = feasible[group][ends.index(min(ends))]
        # on the group's device, though this job alone might end sooner on another
        clock.run(at, chosen[group])
    # groups without a job in the simulation go where the session prefers
    return [feasible[group][0] if device < 0 else device for group, device in enumerate(chosen)]


def _improve(simulation: Simulation, feasible: Sequence[Sequence[int]], chosen: list[int], seconds: float) -> float:
    """Moves groups to other devices where that makes the step faster; returns the seconds that it takes then."""
    # every try simulates the whole step
    left = MAX_SIMULATED // max(len(simulation.jobs), 1)
    # the critical path first, where a move tells most
    in_turn = list(dict.fromkeys(simulation.jobs[at].group for at in simulation.order))
    # in rounds: a move that did not help may do so after another one; each round but the last has made the step faster,
    # so that it ends also without the limit
    improved = True
    while improved:
        improved = False
        for group in in_turn:
            for device in feasible[group]:
                if device == chosen[group]:
                    continue
                if not left:
                    return seconds
                left -= 1
                before, chosen[group] = chosen[group], device
                tried = simulation.makespan(chosen)
                if tried < seconds:
                    seconds, improved = tried, True
                else:
                    chosen[group] = before
    return seconds


def _gathered(feasible: Sequence[Sequence[int]], device: int) -> list[int]:
    """Everything that can be on one device there, the rest where it is preferred."""
    return [device if device in devices else devices[0] for devices in feasible]
