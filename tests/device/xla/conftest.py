"""What tests of compiled programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.xla.variants import CompileEvent, compile_log


@pytest.fixture
def compilations() -> Iterator[list[CompileEvent]]:
    """What was compiled so far in this test."""
    events: list[CompileEvent] = []
    compile_log.listeners.append(events.append)
    yield events
    compile_log.listeners.remove(events.append)
