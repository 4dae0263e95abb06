"""Containers: what a step finds that still runs when its session is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.resources import ResourceHandle
from anabranch.errors import CancelledError, NotFoundError
from anabranch.ops.resources.shared_objects import object_behind
from anabranch.runtime.containers import MAX_ENDED, Containers


def handle(name: str) -> ResourceHandle:
    return ResourceHandle("", name, "queue")


def looked_for(containers: Containers, name: str) -> Any:
    context: Any = SimpleNamespace(containers=containers, op=SimpleNamespace(name="q_size", site=""))
    return object_behind(context, handle(name), "queue")


def test_what_was_private_to_a_closed_session_is_gone_and_what_nobody_made_is_not_there() -> None:
    containers = Containers()
    for name in ("_session_1_q", "_session_12_q", "q"):
        containers.object(handle(name), lambda name=name: SimpleNamespace(object=name))  # type: ignore[misc]
    containers.close_private("_session_1_")
    with pytest.raises(CancelledError, match="the session was closed meanwhile"):
        looked_for(containers, "_session_1_q")
    assert looked_for(containers, "_session_12_q") == "_session_12_q"
    assert looked_for(containers, "q") == "q"
    with pytest.raises(NotFoundError, match="does not exist"):
        looked_for(containers, "_session_2_q")
    containers.close()
    with pytest.raises(CancelledError):
        looked_for(containers, "q")


def test_so_many_ended_sessions_are_known() -> None:
    containers = Containers()
    for number in range(MAX_ENDED + 1):
        containers.close_private(f"_session_{number}_")
    assert not containers.is_gone(handle("_session_0_q"))
    assert containers.is_gone(handle(f"_session_{MAX_ENDED}_q"))
