"""Tests of clusters look at graphs and messages: what they run is compiled quickly, in a third of the time."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(compiled_quickly: None) -> None:
    """Also where a test's processes are threads."""


@pytest.fixture(autouse=True, scope="session")
def _shared_dialects(shared_dialects: None) -> None:
    """Of all tests here."""
