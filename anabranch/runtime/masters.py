"""Which master a session has, by its target (§3.3, WP2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from anabranch.errors import InvalidArgumentError
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.local_master import LocalMaster
from anabranch.runtime.local_worker import LocalTask
from anabranch.runtime.protocols import Master

_LOCAL_SCHEME: Final = "local://"


def master_for(
    target: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
) -> Master:
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
