"""Every process that collects the tests finds the same ones, whatever the time is there."""

from __future__ import annotations

import gzip

import pytest


@pytest.mark.parametrize("packed", [gzip.compress(b"a", mtime=1), gzip.compress(b"a", mtime=2)])
def test_bytes_name_no_test(request: pytest.FixtureRequest, packed: bytes) -> None:
    """Archives of two moments, as two processes would pack them."""
    assert request.node.name == f"test_bytes_name_no_test[packed{packed[4] - 1}]"


def test_no_test_is_named_by_an_archive(request: pytest.FixtureRequest) -> None:
    assert not [item.nodeid for item in request.session.items if "\\x1f\\x8b" in item.nodeid]
