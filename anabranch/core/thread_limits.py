"""How many threads the operations of this process may use side by side, where a program says so.

XLA and oneDNN make their threads once for a process, when they are first needed, and read how many from the
environment. So what the first session asks for holds, as in TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_asked: list[int] = []


def ask_for_threads(count: int) -> None:
    """Says how many threads an operation may use (`ConfigProto.intra_op_parallelism_threads`); 0: nothing is said.

    The first call that says something holds for the process.
    """
    if count > 0 and not _asked:
        _asked.append(count)


def threads_within(count: int) -> int:
    """How many threads an operation may use of so many processors."""
    return min(count, *_asked) if _asked else count


@contextlib.contextmanager
def limited_by(variable: str) -> Iterator[None]:
    """An environment variable has the number of threads meanwhile, if one was asked for and the user did not set it."""
    if not _asked or variable in os.environ:
        yield
        return
    os.environ[variable] = str(_asked[0])
    try:
        yield
    finally:
        os.environ.pop(variable, None)
