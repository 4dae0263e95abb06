"""Masters: who prepares the steps of a session and sees that they run (§3.3, WP2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from anabranch.errors import InvalidArgumentError
from anabranch.graph.operation import Operation, Tensor
from anabranch.placement.cost_model import CostModel
from anabranch.runtime.local_master import LocalMaster, LocalTask

_LOCAL_SCHEME: Final = "local://"


class Step(Protocol):
    """A prepared step. May be run by several threads at once. See `core.bounded.Kept`."""

    used: int

    def release(self) -> None:
        """Lets executables go; a run that comes later compiles anew."""

    def run(
        self, feeds: Sequence[Any], record: Callable[[Any], None] | None = None, timeout: float | None = None
    ) -> list[Any]:
        """One value per fetch, for one array per feed; fails when it waits for longer than `timeout` seconds."""


class Master(Protocol):
    """Prepares steps. The local one runs them in this process; a cluster's sends them to its tasks."""

    def devices(self) -> list[Any]:
        """The devices that steps can use."""

    def measure(self, model: CostModel, step: Any, feeds: Sequence[Any], runs: int) -> None:
        """Adds to a model what a step and transfers between the devices cost."""

    def prepare(self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> Step:
        """Compiles a kind of step."""

    def close(self) -> None:
        """Cancels the steps that wait, and lets go what belongs to the session alone."""

    def forget(self) -> None:
        """Ends what works for a session that nobody holds any more, and hence no step is running in."""


def master_for(target: str, config: Any, placement: Any) -> Master:
    """The master of a new session.

    Args:
        target: "" for resources of the session's own, or ``local://<name>`` for those of a task of this process.
        config: the session's `ConfigProto`.
        placement: its placement policy.

    Raises:
        InvalidArgumentError: the target is of an unknown kind, or the configuration or the policy is wrong.
        NotFoundError: there is no such policy file.
    """
    if not target:
        return LocalMaster(None, config, placement)
    if target.startswith(_LOCAL_SCHEME):
        return LocalMaster(LocalTask.named(target[len(_LOCAL_SCHEME) :]), config, placement)
    raise InvalidArgumentError(
        None, None, f"no session can be opened at target {target!r}; use '' or '{_LOCAL_SCHEME}<name>'"
    )


def reset_containers(target: str, containers: Sequence[str]) -> None:
    """Empties containers of a shared target; all of them, if none is named.

    Raises:
        InvalidArgumentError: the target is not a shared one.
    """
    if not target.startswith(_LOCAL_SCHEME):
        raise InvalidArgumentError(None, None, f"only a shared target can be reset, got {target!r}")
    LocalTask.named(target[len(_LOCAL_SCHEME) :]).containers.reset(containers)
