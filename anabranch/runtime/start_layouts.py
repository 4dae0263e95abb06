"""Messages that start a part of a step and bring tensors along: one layout for all that are alike.

Those of one part are the same bytes from step to step, but for the numbers of steps, the time, and the contents of the
tensors (`runtime.step_messages` has the fields). Whoever has read one knows where these stand in the next, and that all
else is right if it is the same: names, dtypes, shapes and sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.runtime.step_messages import StepStart, is_within, sizes_in_start

#: before the step's number: the mark, the kind of message, and the partition
HEAD_BYTES: Final = 10
#: the fields of a layout: the head, the step, the first step, the time, what follows to the first tensor; then for each
#: tensor its step, what describes it, its contents
_BEFORE, _EACH = 5, 3


class BriefStart(NamedTuple):
    """What a message says that starts a part of which all else is known.

    Attributes:
        step: its number.
        first_step: steps below have ended; 0: none is said to.
        tensors: in the order in which they are brought; they cannot be written.
    """

    step: int
    first_step: int
    tensors: list[np.ndarray[Any, Any]]


class StartLayout:
    """The layout of a message, and of all that are alike.

    Args:
        data: the message, whole.
        start: what it says; `has_layout` is true of it.
    """

    def __init__(self, data: bytes, start: StepStart) -> None:
        arrays = [np.asarray(one.value) for one in start.sent]
        before, described = sizes_in_start(start)
        each = [f"q{size}s{array.nbytes}s" for size, array in zip(described, arrays, strict=True)]
        self._fields = struct.Struct(f"<{HEAD_BYTES}sqqd{before}s{''.join(each)}")
        end = _BEFORE + _EACH * len(arrays)
        self._same = itemgetter(0, _BEFORE - 1, *range(_BEFORE + 1, end, _EACH))
        self._steps = itemgetter(1, *range(_BEFORE, end, _EACH))
        contents = range(_BEFORE + 2, end, _EACH)
        self._tensors = [(at, array.dtype, array.shape) for at, array in zip(contents, arrays, strict=True)]
        fields = self._fields.unpack(data)
        self._known = self._same(fields)
        self._head, self._before = fields[0], fields[_BEFORE - 1]
        self._described = [fields[at - 1] for at in contents]

    def write(self, step: int, first_step: int, timeout: float | None, tensors: Sequence[Any]) -> bytes:
        """The message for another step.

        Args:
            first_step: steps below have ended; 0: none is said to.
            timeout: in seconds; None: any time.
            tensors: arrays of the dtypes and shapes of those of the first message.
        """
        fields = [self._head, step, first_step, timeout or 0.0, self._before]
        for described, tensor in zip(self._described, tensors, strict=True):
            fields += (step, described, tensor.tobytes())
        return self._fields.pack(*fields)

    def read(self, data: bytes) -> BriefStart | None:
        """What a message says that is like the first; None where it is another."""
        if len(data) != self._fields.size:
            return None
        fields = self._fields.unpack(data)
        steps = self._steps(fields)
        if self._same(fields) != self._known or steps.count(steps[0]) != len(steps):
            return None
        tensors = [np.frombuffer(fields[at], dtype).reshape(shape) for at, dtype, shape in self._tensors]
        return BriefStart(fields[1], fields[2], tensors)


def has_layout(start: StepStart) -> bool:
    """Whether messages like this one differ in numbers, times and contents only."""
    # a large array or strings have frames of their own; a dead tensor has no contents, and a halved one others
    return (
        not (start.recorded or start.feeds)
        and bool(start.sent)
        and all(is_within(one.value) and not one.is_halved for one in start.sent)
    )
