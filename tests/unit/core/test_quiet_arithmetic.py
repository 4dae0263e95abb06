"""Arithmetic without warnings, on several threads at once and within itself."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from anabranch.core.quiet_arithmetic import quietly

ONE, ZERO = np.float32([1]), np.float32([0])


def test_nothing_is_said_inside_and_the_callers_settings_stay() -> None:
    with np.errstate(all="raise"):
        assert np.isinf(quietly(np.divide, ONE, ZERO))
        with pytest.raises(FloatingPointError):
            np.divide(ONE, ZERO)


def test_it_can_be_called_within_itself_and_on_several_threads() -> None:
    within, go_on = threading.Barrier(3, timeout=30), threading.Event()
    found = []

    def divide() -> None:
        def inner() -> object:
            within.wait()
            go_on.wait(30)
            return quietly(np.divide, ZERO, ZERO)

        found.append(quietly(inner))

    threads = [threading.Thread(target=divide) for _ in range(2)]
    for thread in threads:
        thread.start()
    within.wait()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert np.isnan(found).all()
    assert len(found) == 2


def test_an_error_leaves_the_context_free() -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="broadcast"):
            quietly(np.add, np.zeros(2), np.zeros(3))
    assert quietly(np.multiply, ONE, ONE) == 1
