"""Stacks: what TensorFlow's loops push in the forward direction and their gradients pop  (§4.1).

The lock is inside: a push or a pop is one transition, in which nothing waits and nobody is called, so that without it
there would be little left but a list.
"""

from __future__ import annotations

import threading
from typing import Any

from anabranch.core.dtypes import DType
from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, InvalidArgumentError
from anabranch.state.components import owned


class Stack:
    """Last in, first out. Thread-safe; nothing waits: pushes and pops are ordered by the graph.

    Args:
        name: of the operation that made it.
        dtype: of the elements.
        max_size: how many it holds; negative: any number.
    """

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.max_size = max_size
        self._lock = threading.Lock()
        self._elements: list[Any] = []
        self._closed = False

    def push(self, element: TensorValue) -> None:
        """Puts an element on top.

        Raises:
            InvalidArgumentError: it has another type, or the stack is full.
            CancelledError: the stack is closed.
        """
        if element.dtype != self.dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                None, None, f"Stack {self.name!r} holds {self.dtype.name}, but the pushed element is {element.dtype}"
            )
        # before the lock, since it may copy
        mine = owned(element)
        with self._lock:
            self._check_open()
            if 0 <= self.max_size <= len(self._elements):
                raise InvalidArgumentError(
                    None, None, f"Stack[{self.name}] overflowed its max_size ({self.max_size}); pop first"
                )
            self._elements.append(mine)

    def pop(self) -> Any:
        """Takes the top element off.

        Raises:
            InvalidArgumentError: the stack is empty.
            CancelledError: the stack is closed.
        """
        with self._lock:
            self._check_open()
            if not self._elements:
                raise InvalidArgumentError(None, None, f"Stack[{self.name}] is empty when calling Pop().")
            return self._elements.pop()

    def close(self) -> None:
        """Forgets all elements; nothing can be pushed or popped any more."""
        with self._lock:
            self._elements.clear()
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError(None, None, f"Stack[{self.name}] has already been closed.")
