"""Places and strangers for tests of clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.places import Places, Stranger, closing


@pytest.fixture
def places() -> Iterator[Places]:
    with closing() as places:
        yield places


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.close()
