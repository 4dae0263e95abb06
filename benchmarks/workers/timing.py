"""Timing a function inside a worker."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable

#: how long (s) a program may take to compile
COMPILER_SECONDS = 600


def seconds_per_call(function: Callable[[], object], calls: int, repeats: int = 7, warm_up: int = 20) -> float:
    """The median over `repeats` of the mean time of `calls` calls, once nothing is compiled beside them any more."""
    for _ in range(warm_up):
        function()
    wait_for_the_compiler()
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def least_seconds(function: Callable[[], object], calls: int, warm_up: int = 3) -> float:
    """The least time of a call."""
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def wait_for_the_compiler() -> None:
    """Waits for what anabranch compiles beside the first steps, if that is the system."""
    if "anabranch" in sys.modules:
        importlib.import_module("anabranch.xla.background").background.wait(COMPILER_SECONDS)
