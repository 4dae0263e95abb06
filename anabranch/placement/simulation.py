"""A step on several devices, simulated: when each operation would start and end (WP3.2.1).

The model: a device runs one operation at a time; an operation starts when its device is free and its inputs have
arrived; a tensor is sent to another device once, as soon as it is made, and arrives after the time that its transfer
takes; transfers do not hold each other up. Operations are taken in the order of their *rank*, the length of the
longest path from an operation to the end of the step, transfers included: the critical path goes first. With
positive costs an operation ranks before all that depend on it, so that this order is one in which they can run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: (source device, destination device, bytes) -> seconds
TransferCost = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class Input:
    """What a job takes: output `output` of the job `producer`, so many bytes."""

    producer: int
    output: int
    size: int


@dataclass(slots=True)
class Job:
    """An operation as the simulation sees it.

    Attributes:
        seconds: what it takes on each device.
        inputs: data inputs; a control input is an input of no bytes (output -1).
        group: jobs of one group share a device.
    """

    seconds: Sequence[float]
    inputs: list[Input] = field(default_factory=list)
    group: int = 0


class Simulation:
    """The jobs of a step, by topological order, and what moving tensors costs."""

    def __init__(self, jobs: Sequence[Job], devices: int, transfer: TransferCost) -> None:
        self.jobs = jobs
        self.devices = devices
        self.transfer = transfer
        self.order = self._by_rank()

    def _by_rank(self) -> list[int]:
        """Positions of the jobs, the highest rank first."""
        rank = [0.0] * len(self.jobs)
        # backwards in topological order, so that all who take what a job makes have their ranks
        for at in range(len(self.jobs) - 1, -1, -1):
            job = self.jobs[at]
            # the mean of the devices, for it is not known yet which one will run it
            rank[at] += sum(job.seconds) / len(job.seconds)
            for taken in job.inputs:
                # where it will be is not known yet: as if each tensor were sent, between two devices of the session
                sent = self.transfer(0, 1, taken.size) if self.devices > 1 else 0.0
                rank[taken.producer] = max(rank[taken.producer], rank[at] + sent)
        # equal ranks in topological order, which keeps it an order in which they can run also where something
        # costs nothing
        return sorted(range(len(self.jobs)), key=lambda at: (-rank[at], at))

    def makespan(self, device_of_group: Sequence[int]) -> float:
        """Seconds until the last job ends, with every group on its given device."""
        clock = Clock(self)
        for at in self.order:
            clock.run(at, device_of_group[self.jobs[at].group])
        return clock.now


class Clock:
    """The state of a simulation: when each device is free, where each tensor is from when on."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._free = [0.0] * simulation.devices
        self._end = [0.0] * len(simulation.jobs)
        self._device = [-1] * len(simulation.jobs)
        self._arrival: dict[tuple[int, int, int], float] = {}
        self.now = 0.0

    def end_on(self, at: int, device: int) -> float:
        """When job `at` would end on a device; its producers must have run."""
        job = self._simulation.jobs[at]
        ready = max((self._arrives(taken, device) for taken in job.inputs), default=0.0)
        return max(ready, self._free[device]) + job.seconds[device]

    def run(self, at: int, device: int) -> None:
        """Runs job `at` on a device."""
        end = self.end_on(at, device)
        for taken in self._simulation.jobs[at].inputs:
            # noted, since a tensor is sent to a device once, however many jobs there take it
            self._arrival[taken.producer, taken.output, device] = self._arrives(taken, device)
        self._free[device] = self._end[at] = end
        self._device[at] = device
        self.now = max(self.now, end)

    def _arrives(self, taken: Input, device: int) -> float:
        source = self._device[taken.producer]
        if source == device:
            return self._end[taken.producer]
        known = self._arrival.get((taken.producer, taken.output, device))
        if known is not None:
            return known
        # from the moment it was made: transfers do not hold each other up
        return self._end[taken.producer] + self._simulation.transfer(source, device, taken.size)
