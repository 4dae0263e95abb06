"""Exceptions that another thread throws (`PyThreadState_SetAsyncExc`) leave no object locked that steps share.

Python raises them after calls; here they are raised after each call that the code around the lock makes.
"""

from __future__ import annotations

import dis
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.state.components import Components
from anabranch.state.element_stores import FifoStore
from anabranch.state.queue import Queue
from anabranch.state.requests import SharedObject

_WATCHED = SharedObject._work_off.__code__


class ThrownError(BaseException):
    """What another thread throws."""


class _Thrower:
    """A trace function that raises once, after the call of number `number` that the watched code makes."""

    def __init__(self, number: int) -> None:
        self.left = number
        self._after_call = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not _WATCHED:
            return None
        # Python 3.13 heeds it only in a frame that is traced already
        frame.f_trace_opcodes = True
        if event == "call":
            # Python 3.12 looks at the frame's wish only when tracing begins
            sys.settrace(self)
        if event == "opcode":
            if self._after_call:
                self._after_call = False
                self.left -= 1
                if self.left == 0:
                    raise ThrownError
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._after_call = name.startswith("CALL")
        return self


def test_no_call_around_the_lock_leaves_it_taken() -> None:
    number, thrown = 0, True
    while thrown:
        number, thrown = number + 1, False
        queue = Queue("q", "FIFOQueue", Components((dtypes.int64,), (TensorShape([]),), "q"), 10, FifoStore())
        sys.settrace(_Thrower(number))
        try:
            queue.enqueue([np.array(1)])
        except ThrownError:
            thrown = True
        finally:
            sys.settrace(None)
        assert not queue._lock.locked(), f"after call {number}"
    assert number > 3


def test_a_request_whose_step_is_gone_takes_nothing() -> None:
    class Shaken(FifoStore):
        def available(self, closed: bool) -> int:
            if sys.exc_info()[0] is None:
                raise ThrownError
            return super().available(closed)

    queue = Queue("q", "FIFOQueue", Components((dtypes.int64,), (TensorShape([]),), "q"), 10, Shaken())
    with pytest.raises(ThrownError):
        queue.dequeue()
    assert queue.waiting() == {}
