from __future__ import annotations

import pytest

from anabranch.core.forward_compatibility import forward_compatibility_horizon, forward_compatible


def test_the_day_is_that_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_FORWARD_COMPATIBILITY_DELTA_DAYS", raising=False)
    assert forward_compatible(2019, 8, 20)
    assert not forward_compatible(2019, 8, 21)
    assert not forward_compatible(2020, 1, 1)


def test_days_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_FORWARD_COMPATIBILITY_DELTA_DAYS", "2")
    assert forward_compatible(2019, 8, 22)
    monkeypatch.setenv("TF_FORWARD_COMPATIBILITY_DELTA_DAYS", "-2")
    assert not forward_compatible(2019, 8, 19)


def test_a_horizon_holds_within_its_context() -> None:
    with forward_compatibility_horizon(2030, 5, 6):
        assert forward_compatible(2030, 5, 5)
        with forward_compatibility_horizon(2000, 1, 1):
            assert not forward_compatible(2010, 1, 1)
        assert not forward_compatible(2030, 5, 6)
    assert not forward_compatible(2030, 5, 5)
    with pytest.raises(ValueError, match="day"), forward_compatibility_horizon(2030, 2, 30):
        raise AssertionError("there is no such day")
