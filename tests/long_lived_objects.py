"""Takes what lives on between tests out of the garbage collector's sight.

Collected tests, modules and the caches of compiled programs are millions of objects by the end of a run. Each full
collection walks over all of them, and tests that look for what is left behind ask for many: a quarter of the time of
some files. What a test makes itself is collected as ever; frozen is only what outlived earlier ones.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

#: tests between two times that what lives is frozen
TESTS = 200


class LongLivedObjects:
    """A plugin of pytest, for each process of its own."""

    def __init__(self) -> None:
        self._tests = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        # what is imported and collected stays: to look for garbage in it again and again takes time and finds none
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    def pytest_collection_finish(self) -> None:
        _freeze()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._tests += 1
        if self._tests % TESTS == 0:
            _freeze()


def _freeze() -> None:
    # garbage first, which would stay for ever
    gc.collect()
    gc.freeze()
