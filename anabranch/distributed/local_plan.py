"""The tasks of a cluster that runs on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from anabranch.distributed.addresses import Address
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.process_engine import ProcessEngine
from anabranch.distributed.restarts import RestartLimits
from anabranch.distributed.task_engine import OutputReader, PlanWishes, TaskProgram, TaskStatus
from anabranch.errors import InvalidArgumentError

_HOST: Final = "localhost"


@dataclass(frozen=True)
class LocalPlan:
    """The tasks of a cluster on this machine; a context, which keeps their ports free.

    Attributes:
        spec: their addresses.
        held: keeps their ports free; None: they were given.
    """

    spec: ClusterSpec
    held: HeldPorts | None

    @staticmethod
    def of(counts: Mapping[str, int], first_port: int | None = None) -> LocalPlan:
        """So many tasks of each job, at free ports, or at those from `first_port`.

        Raises:
            InvalidArgumentError: there are none, or not as many ports.
            UnavailableError: the machine has no free ports.
        """
        total = sum(counts.values())
        if total < 1 or min(counts.values()) < 0:
            raise InvalidArgumentError(None, None, "a cluster has at least one task")
        if first_port is not None and not 0 < first_port <= 65536 - total:
            raise InvalidArgumentError(None, None, f"there are no {total} ports from {first_port}")
        held = HeldPorts(total) if first_port is None else None
        ports = iter(held.ports if held is not None else range(first_port or 0, (first_port or 0) + total))
        jobs = {job: [str(Address(_HOST, next(ports))) for _ in range(n)] for job, n in counts.items() if n}
        return LocalPlan(ClusterSpec(jobs), held)

    def engine(
        self,
        programs: Sequence[TaskProgram],
        logs: Path,
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
        changed: Callable[[list[TaskStatus]], None] | None = None,
    ) -> ProcessEngine:
        """What runs them: see `ProcessEngine`."""
        return ProcessEngine(programs, logs, limits, output, changed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.held is not None:
            self.held.close()


def cluster_plan(counts: Mapping[str, int], wishes: PlanWishes) -> LocalPlan:
    """So many tasks of each job on this machine.

    Raises:
        InvalidArgumentError: see `LocalPlan.of`; or something else than a port is wished for.
        UnavailableError: the machine has no free ports.
    """
    if wishes != PlanWishes(wishes.port):
        raise InvalidArgumentError(None, None, "--address, --cpus and --gpus are for clusters on Ray")
    return LocalPlan.of(counts, wishes.port)
