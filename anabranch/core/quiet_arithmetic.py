"""NumPy's arithmetic without its warnings of numbers, as XLA's is: it divides by zero in silence.

`numpy.errstate` does that as well, but makes and sets its settings anew each time, which takes longer than a small
kernel. They are a part of the context in which code runs, so here a function is called in a context that has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

#: contexts without warnings that nobody is in: a context takes one caller at a time
_free: Final[deque[Context]] = deque()


def quietly(function: Callable[P, R], *args: P.args, **keywords: P.kwargs) -> R:
    """Calls `function(*args, **keywords)` without warnings of division by zero, overflow, or invalid operations.

    It runs in a context of its own: variables of `contextvars` have their defaults there.
    """
    try:
        context = _free.pop()
    except IndexError:
        context = Context()
        context.run(partial(np.seterr, all="ignore"))
    try:
        return context.run(function, *args, **keywords)
    finally:
        _free.append(context)
