"""Which tasks answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from anabranch.distributed.addresses import parse_address
from anabranch.distributed.server import client_endpoint, own_host


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
    reachable = set()
    for host, wanted in by_host.items():
        endpoint = client_endpoint(host)
        with contextlib.closing(endpoint):
            peers = {address: endpoint.peer(address) for address in wanted}
            reachable |= {a for a, peer in peers.items() if peer.wait_until_up(max(0.0, deadline - time.monotonic()))}
    return reachable
