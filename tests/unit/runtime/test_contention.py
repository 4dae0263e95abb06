"""When threads that write the same variables wait for each other too long."""

from __future__ import annotations

import pytest

from anabranch.runtime.contention import LONG, MOST_WAITS, WINDOW, ContendedError, Contention


def window(contention: Contention, waits: int, seconds: float) -> None:
    for run in range(WINDOW):
        contention.ran()
        if run < waits:
            contention.waited(seconds)


def test_long_waits_are_told_once() -> None:
    contention = Contention()
    window(contention, 0, 0.0)
    for _ in range(MOST_WAITS + 1):
        contention.waited(1.5e-3)
    with pytest.raises(ContendedError, match="1.5 ms") as caught:
        window(contention, 0, 0.0)
    assert caught.value.seconds == pytest.approx(1.5e-3)
    for _ in range(5):
        window(contention, WINDOW - 1, 1.0)


@pytest.mark.parametrize(("waits", "seconds"), [(MOST_WAITS - 2, 1.0), (WINDOW - 1, LONG / 2), (0, 0.0)])
def test_few_or_short_waits_are_not(waits: int, seconds: float) -> None:
    contention = Contention()
    for _ in range(5):
        window(contention, waits, seconds)


def test_copies_must_take_less_than_waits_do() -> None:
    assert ContendedError(1e-3).pays(0)
    assert ContendedError(1e-3).pays(900_000)
    assert not ContendedError(1e-3).pays(1_100_000)
