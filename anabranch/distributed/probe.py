"""Which tasks answer."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from anabranch.distributed.addresses import Address, parse_address
from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.peers import Peer
from anabranch.distributed.server import CLUSTER_VARIABLE, DEFAULT_CLUSTER, own_host
from anabranch.distributed.transport import Endpoint
from anabranch.errors import InvalidArgumentError, OpError
from anabranch.runtime.messages import Frames


class _Silent:
    """Somebody who only looks is told nothing. See `distributed.peers.MessageHandler`."""

    def message(self, sender: Peer, frames: Frames) -> None:
        pass

    def request(self, sender: Peer, frames: Frames, reply: Callable[[Frames], None]) -> None:
        raise InvalidArgumentError(None, None, "this process only looks whether tasks answer")

    def lost(self, sender: Peer, error: OpError) -> None:
        pass


def answering(addresses: Iterable[str], within: float) -> set[str]:
    """Those of some addresses at which a task answers within so many seconds, all together.

    A task answers only if its process runs: one that is stopped, or hangs, does not, though its port is open.

    Raises:
        ValueError: an address is malformed.
        UnauthenticatedError: an address is not of this machine, and there are no keys.
    """
    by_host: dict[str, list[str]] = {}
    for address in addresses:
        by_host.setdefault(own_host(parse_address(address)), []).append(address)
    deadline = time.monotonic() + within
    found = set()
    for host, wanted in by_host.items():
        endpoint = Endpoint(
            str(Address(host, 0)),
            name=f"client {os.getpid()}",
            cluster=os.environ.get(CLUSTER_VARIABLE, DEFAULT_CLUSTER),
            handler=_Silent(),
            keys=CurveKeys.load(),
        )
        with contextlib.closing(endpoint):
            peers = {address: endpoint.peer(address) for address in wanted}
            found |= {a for a, peer in peers.items() if peer.wait_until_up(max(0.0, deadline - time.monotonic()))}
    return found
