"""The orders in which a queue can hand its elements out."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from anabranch.state.components import Element


class ElementStore(Protocol):
    """Elements of a queue. What `take` gives and `put_back` returns is as if it had never been taken.

    Attributes:
        is_ordered: whether an element that comes later may have to be taken before those that are there.
    """

    is_ordered: bool

    def __len__(self) -> int: ...

    def available(self, closed: bool) -> int:
        """How many elements may be taken now."""

    def add(self, element: Element) -> None:
        """Adds an element."""

    def take(self) -> Element:
        """Takes the next element out; only while some are available."""

    def put_back(self, elements: Sequence[Element]) -> None:
        """Puts elements, in the order in which they were taken, where they came from."""


class FifoStore:
    """First in, first out."""

    is_ordered = False

    def __init__(self) -> None:
        self._elements: deque[Element] = deque()
        # the deque's own methods: one call less for each element
        self.add = self._elements.append
        self.take = self._elements.popleft

    def __len__(self) -> int:
        return len(self._elements)

    def available(self, closed: bool) -> int:
        return len(self._elements)

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


class ShuffleStore:
    """Uniformly at random among all that are there; while the queue is open some always stay, to be mixed with.

    Args:
        min_after_dequeue: how many stay.
        seed: of the random numbers; None: from the system.
    """

    is_ordered = False

    def __init__(self, min_after_dequeue: int, seed: Sequence[int] | None) -> None:
        self._elements: list[Element] = []
        self._min_after_dequeue = min_after_dequeue
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._elements)

    def available(self, closed: bool) -> int:
        return len(self._elements) - (0 if closed else self._min_after_dequeue)

    def add(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        elements = self._elements
        chosen = int(self._random.random() * len(elements))
        # the last one takes its place, so that no element has to be moved along
        elements[chosen], elements[-1] = elements[-1], elements[chosen]
        return elements.pop()

    def put_back(self, elements: Iterable[Element]) -> None:
        # anywhere: each take draws anew
        self._elements.extend(elements)


class PriorityStore:
    """The smallest first component first; of equal ones the first that came."""

    is_ordered = True

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Element]] = []
        self._numbers = itertools.count()
        self._front = 0

    def __len__(self) -> int:
        return len(self._heap)

    def available(self, closed: bool) -> int:
        return len(self._heap)

    def add(self, element: Element) -> None:
        # the numbers differ from each other, so that a comparison never reaches the elements, which are arrays
        heapq.heappush(self._heap, (int(element[0]), next(self._numbers), element))

    def take(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def put_back(self, elements: Sequence[Element]) -> None:
        # they were first among their equals, and come before all that have come since
        self._front -= len(elements)
        for place, element in enumerate(elements, self._front):
            heapq.heappush(self._heap, (int(element[0]), place, element))
