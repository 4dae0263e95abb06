"""Machines that Ray has: how they are reached and reserved, what keeps a task on one, whether it will be taken away.

See `distributed.ray_cluster`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from anabranch.distributed.addresses import Address, parse_address
from anabranch.distributed.own_folders import OwnFolder
from anabranch.distributed.task_keeper import TaskKeeper
from anabranch.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError

_log = logging.getLogger(__name__)
#: how long (s) the head of a Ray cluster may take to take a connection
_CONNECT_WITHIN: Final = 10.0
#: between two messages about machines that are waited for (s)
_TELL_EVERY: Final = 10.0
#: how often (s) an actor asks whether its machine will be taken away, and how long until it says that it will not
_LOOK_FOR_NOTICE_EVERY: Final = 2.0
_NOTICE_WITHIN: Final = 30.0
#: what the names of the folders begin with in which a Ray that is started here has its logs and sockets
RAY_FOLDERS: Final = "ab-ray-"
#: how long such a folder's path may be: that of a socket, of which Ray's are these, has 107 characters at most
_LONGEST_PATH: Final = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
#: for those of Ray's functions that have no types
_untyped: Final[Any] = ray


def this_machine() -> tuple[str, str]:
    """The number of this machine in Ray, and its address."""
    address: str = _untyped.util.get_node_ip_address()
    return ray.get_runtime_context().get_node_id(), address


class KeeperActor(TaskKeeper):
    """A keeper where Ray has put it."""

    def place(self, known: tuple[str, int] | None) -> tuple[str, str, int]:
        """Where the task is to be: the machine's number in Ray, its address, and a port that is kept free.

        Args:
            known: where the others know the task; that place, if it is here and free.
        """
        machine, here = this_machine()
        wanted = known[1] if known is not None and known[0] == here else None
        return machine, here, self.port(wanted)

    def notice(self) -> bool:
        """Waits until this machine will be taken away, or for half a minute; whether it will."""
        (here, _), deadline = this_machine(), time.monotonic() + _NOTICE_WITHIN
        while time.monotonic() < deadline:
            if here in _drained_machines():
                return True
            time.sleep(_LOOK_FOR_NOTICE_EVERY)
        return False


def _drained_machines() -> Container[str]:
    """Those that are to be left, since they will be taken away (`ray drain-node`, a cloud that wants them back).

    Ray tells of them only here, where its own libraries look, too. A Ray that does not, gives no notice.
    """
    state = getattr(getattr(ray, "_private", None), "state", None)
    drained = getattr(getattr(state, "state", None), "get_draining_nodes", dict)
    try:
        machines: Container[str] = drained()
    except (RayError, RuntimeError, OSError):  # the head is down
        return ()
    return machines


def connect(address: str | None, cpus: float, folder: OwnFolder | None) -> None:
    """Joins a Ray cluster, or starts one with so many processors and its files in a folder.

    Raises:
        FailedPreconditionError: this process is connected to one.
        UnavailableError: there is no such cluster.
    """
    if ray.is_initialized():
        raise FailedPreconditionError(None, None, "this process is connected to Ray already")
    # it reports its use to its makers unless this says that it may not
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    try:
        if address is None:
            # as many as are asked for: tasks of one machine share its processors, as they do without Ray
            most = max(os.cpu_count() or 1, int(cpus + 1))
            if folder is not None and len(os.fsencode(folder.path)) <= _LONGEST_PATH:
                quiet["_temp_dir"] = os.fspath(folder.path)
            ray.init("local", num_cpus=most, include_dashboard=False, **quiet)
        else:
            if address != "auto":
                _look(parse_address(address))
            ray.init(address=address, **quiet)
    except (OSError, RayError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        where = address or "this machine"
        raise UnavailableError(None, None, f"there is no Ray cluster at {where}: {reason}") from error


def _look(address: Address) -> None:
    """Ray tries for minutes to reach a head, deaf to interrupts."""
    socket.create_connection((address.host, address.port), _CONNECT_WITHIN).close()


def reserved(shares: Sequence[Mapping[str, float]], within: float) -> PlacementGroup:
    """Room for the tasks, spread over the machines.

    Raises:
        DeadlineExceededError: there was none within `within` seconds.
    """
    group: PlacementGroup = placement_group([dict(share) for share in shares], strategy="SPREAD")
    deadline = time.monotonic() + within
    while True:
        left = deadline - time.monotonic()
        try:
            ray.get(group.ready(), timeout=max(0.0, min(left, _TELL_EVERY)))
        except GetTimeoutError:
            wanted = ", ".join(f"{sum(s.get(n, 0) for s in shares):g} {n}" for n in ("CPU", "GPU"))
            free = ", ".join(f"{_untyped.available_resources().get(n, 0):g} {n}" for n in ("CPU", "GPU"))
            if left <= _TELL_EVERY:
                given_back(group)
                raise DeadlineExceededError(
                    None,
                    None,
                    f"Ray had no room for {len(shares)} tasks within {within:g} s: {wanted} are wanted, {free} free",
                ) from None
            _log.warning("waiting for machines: %s are wanted, %s free", wanted, free)
        else:
            return group


def given_back(group: PlacementGroup) -> None:
    """Reserves machines no more."""
    # a head that was restarted may know neither the group nor us; the room ends with our connection then
    with contextlib.suppress(RayError):
        remove_placement_group(group)
