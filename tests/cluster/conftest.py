"""Tests of clusters look at graphs and messages: what they run is compiled quickly, in a third of the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.places import Places, Stranger, closing


@pytest.fixture(autouse=True)
def _compiled_quickly(compiled_quickly: None) -> None:
    """Also where a test's processes are threads."""


@pytest.fixture(autouse=True, scope="session")
def _shared_dialects(shared_dialects: None) -> None:
    """Of all tests here."""


@pytest.fixture
def places() -> Iterator[Places]:
    with closing() as places:
        yield places


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.close()
