"""32 bits to 8 by TensorFlow's arithmetic of fixed-point numbers, and the same by one multiplication of floats.

The byte of a sum ``x`` is ``floor((floor(x scale / 2^32) + offset) / 2^16)``, limited to 0 and 255, in 64 bits. That
rises in steps: byte ``j`` begins at the least ``x`` for which ``x scale >= (2^16 j - offset) 2^32``, since a floor of
a floor is one floor. Processors without products of 64 bits take long for it, but any other function that rises, and
crosses each whole number ``j`` between the last ``x`` before step ``j`` and the first one of it, has the same floor
everywhere. A line in floating point does so if it does at the 255 steps, by more than its rounding: that is looked at
once, when a program is compiled (`FixedPoint.line`); a compiler may fuse its product and its sum, or not.

Example:
    >>> move = FixedPoint(scale=3 << 40, offset=1 << 15)
    >>> move(np.array([-90000, 20, 30, 90000], np.int32)).tolist()
    [0, 0, 0, 5]
    >>> move.line() is None
    False
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jax import numpy as jnp

from anabranch.core.arrays import Array

_LEAST, _MOST = -(2**31), 2**31 - 1
_LAST_BYTE: Final = 255
#: types of a line, and how much one rounding changes a number of size 1 at most (in float64: with what checks it)
_LINES: Final = ((np.float32, 2.0**-24), (np.float64, 2.0**-50))


class Line(NamedTuple):
    """A function ``slope x + start``, which is computed in the type of its two numbers."""

    slope: Any
    start: Any


class FixedPoint(NamedTuple):
    """A way from 32 bits to 8; see above."""

    scale: int
    offset: int

    def __call__(self, x: Array) -> Any:
        """The bytes, as int64 of NumPy or int32 of a compiled program."""
        if self.scale <= 0:
            return self._in_64_bits(x)
        # beyond the first and the last step nothing changes, but products would overflow
        steps = self.steps()
        first, last = (min(max(step, _LEAST), _MOST) for step in (steps[0] - 1, steps[-1]))
        if isinstance(x, np.ndarray):
            return self._in_64_bits(np.clip(x, first, last))
        x, line = jnp.clip(x, np.int32(first), np.int32(last)), self.line()
        if line is None:
            return self._in_64_bits(x)
        return (x.astype(line.slope.dtype) * line.slope + line.start).astype(np.int32)

    def _in_64_bits(self, x: Array) -> Any:
        fixed = ((x.astype(np.int64) * np.int64(self.scale)) >> 32) + np.int64(self.offset)
        return (np if isinstance(x, np.ndarray) else jnp).clip(fixed >> 16, 0, _LAST_BYTE)

    def steps(self) -> list[int]:
        """The least number of each byte but 0, which may be beyond 32 bits."""
        return [-(-(((j << 16) - self.offset) << 32) // self.scale) for j in range(1, _LAST_BYTE + 1)]

    def line(self) -> Line | None:
        """A line that gives the same bytes between the number before the first step and the last step."""
        inside = [(j, step) for j, step in enumerate(self.steps(), start=1) if _LEAST < step <= _MOST]
        if not inside:
            return None
        return next((line for line in itertools.starmap(self._line, itertools.product([inside], _LINES)) if line), None)

    def _line(self, steps: Sequence[tuple[int, int]], kind: tuple[type[Any], float]) -> Line | None:
        number, rounding = kind
        slope = number(self.scale / 2.0**48)
        # a line has to be at j or above at the step, and below it before
        lowest = max(j - step * float(slope) for j, step in steps)
        highest = min(j - (step - 1) * float(slope) for j, step in steps)
        start = number((lowest + highest) / 2)
        largest = max(abs(steps[0][1] - 1), abs(steps[-1][1]))
        furthest = largest * float(slope)
        # of the product, if it is rounded, and of the sum; the float of a whole number is exact
        error = rounding * (furthest + _LAST_BYTE + 2)
        # before the first step it is 0, rounded towards zero, and at the last one not yet 256
        ends = float(slope) * (steps[0][1] - 1) + float(start), float(slope) * steps[-1][1] + float(start)
        fits = lowest + error < float(start) < highest - error and largest < 1 / rounding
        return Line(slope, start) if fits and steps[0][0] - 2 < ends[0] and ends[1] < steps[-1][0] + 1 else None
