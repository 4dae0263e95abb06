"""`tf.compat.forward_compatible`: whether a graph may hold what TensorFlow took up on some day."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterator
from typing import Final

#: the day of TensorFlow 1.15, whose operations graphs hold
_HORIZON: Final = dt.date(2019, 8, 21)
#: an environment variable: days to add to it
_DELTA_DAYS: Final = "TF_FORWARD_COMPATIBILITY_DELTA_DAYS"
#: the days that programs asked for, the last first
_asked_for: list[dt.date] = []


def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether those who read a graph may be expected to know what TensorFlow took up on a day.

    They are, if the day is before that of TensorFlow 1.15, 2019-08-21. The environment variable
    TF_FORWARD_COMPATIBILITY_DELTA_DAYS holds a number of days to add to this.

    Args:
        year, month, day: of the day.

    Example:
        >>> tf.compat.forward_compatible(2019, 1, 1)
        True
    """
    horizon = _asked_for[-1] if _asked_for else _HORIZON + dt.timedelta(days=int(os.getenv(_DELTA_DAYS) or 0))
    return (horizon.year, horizon.month, horizon.day) > (year, month, day)


@contextlib.contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """A context in which `forward_compatible` compares with another day.

    Args:
        year, month, day: of that day.

    Raises:
        ValueError: there is no such day.

    Example:
        >>> with tf.compat.forward_compatibility_horizon(2020, 2, 2):
        ...     tf.compat.forward_compatible(2020, 2, 1)
        True
    """
    _asked_for.append(dt.date(year, month, day))
    try:
        yield
    finally:
        _asked_for.pop()
