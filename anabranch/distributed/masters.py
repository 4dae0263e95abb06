"""Which master a session has, by its target (§3.3, WP2)."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Sequence
from typing import Final, Protocol

from anabranch.errors import InvalidArgumentError
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.local_master import LocalMaster
from anabranch.runtime.local_worker import LocalTask
from anabranch.runtime.protocols import Master


class TargetScheme(Protocol):
    """What opens sessions at the targets that begin with the scheme's name and `://`."""

    def master(
        self, address: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
    ) -> Master:
        """The master of a new session. `address`: what follows the scheme in the target."""

    def reset(self, address: str, containers: Sequence[str]) -> None:
        """Empties containers of what is there; the default one, if none is named."""


class _LocalTasks:
    """Tasks of this process, by name: their variables outlive sessions."""

    def master(
        self, address: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
    ) -> Master:
        return LocalMaster(LocalTask.named(address), config, placement)

    def reset(self, address: str, containers: Sequence[str]) -> None:
        LocalTask.named(address).containers.reset(containers)


#: By name, what opens sessions there, or where that stands. "grpc" is what TensorFlow's programs write, and means our
#: own transport, which is loaded with the first session that needs it: a program that stays in its process needs none.
schemes: Final[dict[str, TargetScheme | str]] = {
    "local": _LocalTasks(),
    "grpc": "anabranch.distributed.server:reached_servers",
}


def master_for(
    target: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
) -> Master:
    """The master of a new session.

    Args:
        target: "" for resources of the session's own; ``local://<name>`` for those of a task of this process;
            ``grpc://<host>:<port>`` for a cluster, of which this is the address of one task.
        config: the session's `ConfigProto`.
        placement: its placement policy.

    Raises:
        InvalidArgumentError: the target is of an unknown kind, or the configuration or the policy is wrong.
        NotFoundError: there is no such policy file.
    """
    if not target:
        return LocalMaster(None, config, placement)
    scheme, address = _split(target)
    return scheme.master(address, config, placement)


def reset_containers(target: str, containers: Sequence[str]) -> None:
    """Empties containers of a shared target; the default one, if none is named.

    Raises:
        InvalidArgumentError: the target is not a shared one.
    """
    if not target:
        raise InvalidArgumentError(None, None, f"only a shared target can be reset, got {target!r}")
    scheme, address = _split(target)
    scheme.reset(address, containers)


def _loaded(where: str) -> TargetScheme:
    scheme: TargetScheme = pkgutil.resolve_name(where)
    return scheme


def _split(target: str) -> tuple[TargetScheme, str]:
    name, separator, address = target.partition("://")
    scheme = schemes.get(name) if separator else None
    if isinstance(scheme, str):
        scheme = schemes[name] = _loaded(scheme)
    if scheme is None:
        known = ", ".join(f"'{name}://...'" for name in schemes)
        raise InvalidArgumentError(None, None, f"no session can be opened at target {target!r}; use '' or {known}")
    return scheme, address
