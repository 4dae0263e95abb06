"""Datasets that call a function for each element: map, filter, flat_map, interleave, scan, group_by_window (WP4.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from anabranch.core.arrays import boxed
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError, OutOfRangeError
from anabranch.state.datasets import (
    INFINITE,
    UNKNOWN,
    DatasetIterator,
    Element,
    ElementFunction,
    Elements,
    ListDataset,
    Path,
    UnaryDataset,
    UnaryIterator,
)
from anabranch.state.positions import Position


class MapDataset(UnaryDataset):
    """`function` of each element.

    A function that is out of range ends the dataset, unless `kept_going` is around it.
    """

    def __init__(self, source: Elements, function: ElementFunction) -> None:
        super().__init__(source)
        self.function = function

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _MapIterator(self.source.iterator(path), self.function)


def kept_going(function: ElementFunction) -> ElementFunction:
    """A function that is never out of range: that would be taken for the end of a dataset."""

    def checked(*element: TensorValue) -> Element:
        try:
            return function(*element)
        except OutOfRangeError as error:
            message = f"Function invocation produced OutOfRangeError: {error.message}"
            raise InvalidArgumentError(None, error.op, message) from error

    return checked


class _MapIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator, function: ElementFunction) -> None:
        super().__init__(source)
        self._function = function
        self._ended = False

    def next(self) -> Element | None:
        element = None if self._ended else self.source.next()
        if element is None:
            return None
        try:
            return self._function(*element)
        except OutOfRangeError:
            # remembered, since the source goes on: whoever asks once more is to be told the same
            self._ended = True
            return None

    def position(self) -> Any:
        # only where the function has ended it, so that positions are what they were before this could be saved
        return {"ended": True} if self._ended else super().position()

    def restore(self, position: Position) -> None:
        # no other position is a dictionary
        self._ended = isinstance(position, dict)
        if not self._ended:
            super().restore(position)


class FilterDataset(UnaryDataset):
    """The elements of which `predicate` is true; with `until_false` only those before the first of which it is not."""

    def __init__(self, source: Elements, predicate: ElementFunction, until_false: bool = False) -> None:
        super().__init__(source)
        self.predicate, self.until_false = predicate, until_false

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _FilterIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _FilterIterator(UnaryIterator):
    def __init__(self, dataset: FilterDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._ended = False

    def next(self) -> Element | None:
        while not self._ended and (element := self.source.next()) is not None:
            if self._holds(element):
                return element
            # an element that does not hold ends a `take_while`, and is only left out of a `filter`
            self._ended = self._dataset.until_false
        return None

    def _holds(self, element: Element) -> bool:
        (answer,) = self._dataset.predicate(*element)
        if answer.shape != ():
            raise self._dataset.attribute(
                InvalidArgumentError(
                    None, None, f"Filter predicate `f` must return a scalar bool, got shape {answer.shape}"
                )
            )
        return bool(answer)

    def position(self) -> Any:
        return [self._ended, super().position()]

    def restore(self, position: Position) -> None:
        self._ended = position[0]
        super().restore(position[1])


def dataset_in(values: Element) -> Elements:
    """The dataset that a function returned.

    Raises:
        InvalidArgumentError: it returned something else.
    """
    dataset = values[0].item() if len(values) == 1 and values[0].shape == () else None
    if not isinstance(dataset, Elements):
        raise InvalidArgumentError(None, None, "Function must return a Dataset object.")
    return dataset


class _Open:
    """A dataset that a function made of an element, being walked."""

    __slots__ = ("arguments", "iterator")

    def __init__(self, dataset: InterleaveDataset, arguments: Element) -> None:
        self.arguments = arguments
        # the arguments are kept beside it: a position holds them, and the function is called again to restore it
        self.iterator = dataset.wrap(dataset_in(dataset.function(*arguments))).iterator()


class InterleaveDataset(UnaryDataset):
    """The elements of the datasets that `function` makes of the source's elements.

    Args:
        cycle: how many of these datasets take turns; 1 is flat_map.
        block: how many elements each gives in its turn.
        wrap: what to put around each of them.
        carries: whether a turn that ends early, at the end of a dataset that no other one follows, is ended by the
            next dataset. `parallel_interleave` does so.
    """

    def __init__(
        self,
        source: Elements,
        function: ElementFunction,
        cycle: int = 1,
        block: int = 1,
        wrap: Callable[[Elements], Elements] = lambda dataset: dataset,
        carries: bool = False,
    ) -> None:
        super().__init__(source)
        for name, value in (("cycle_length", cycle), ("block_length", block)):
            if value < 1:
                raise InvalidArgumentError(None, None, f"{name} must be greater than zero, got {value}.")
        self.function, self.cycle, self.block, self.wrap = function, cycle, block, wrap
        self.carries = carries

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _InterleaveIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _InterleaveIterator(UnaryIterator):
    """A slot that runs empty is filled again when its turn comes, as long as the source lasts."""

    def __init__(self, dataset: InterleaveDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        # filled when their turns come, so that no more elements of the source are used than are needed
        self._slots: list[_Open | None] = [None] * dataset.cycle
        self._turn = 0
        self._given = 0
        self._ended = False
        #: elements of the source for slots that ran empty, in the order of their turns
        self._drawn: deque[Element] = deque()

    def next(self) -> Element | None:
        empty = 0
        while empty < len(self._slots):
            slot = self._slots[self._turn]
            if slot is None:
                # all slots empty in a row, with nothing left to fill them: that is the end
                if not self._fill():
                    empty += 1
                    self._advance(self._dataset.carries)
                continue
            empty = 0
            element = slot.iterator.next()
            if element is not None:
                self._given += 1
                if self._given == self._dataset.block:
                    self._advance()
                return element
            slot.iterator.close()
            self._slots[self._turn] = None
            self._advance(self._dataset.carries and not self._draw())
        return None

    def _fill(self) -> bool:
        if not self._drawn and not self._draw():
            return False
        self._slots[self._turn] = _Open(self._dataset, self._drawn.popleft())
        return True

    def _draw(self) -> bool:
        arguments = None if self._ended else self.source.next()
        if arguments is None:
            self._ended = True
            return False
        self._drawn.append(arguments)
        return True

    def _advance(self, keeps_count: bool = False) -> None:
        self._turn = (self._turn + 1) % len(self._slots)
        if not keeps_count:
            self._given = 0

    def position(self) -> Any:
        slots = [None if s is None else [s.arguments, s.iterator.position()] for s in self._slots]
        return [slots, self._turn, self._given, self._ended, super().position(), list(self._drawn)]

    def restore(self, position: Position) -> None:
        # what was saved before there were drawn elements has none
        slots, self._turn, self._given, self._ended, source, *drawn = position
        self._drawn = deque(tuple(each) for each in (drawn[0] if drawn else ()))
        for i, slot in enumerate(slots):
            if slot is not None:
                opened = self._slots[i] = _Open(self._dataset, tuple(slot[0]))
                opened.iterator.restore(slot[1])
        super().restore(source)

    def close(self) -> None:
        # a copy, for the thread that walks may change it meanwhile (`DatasetIterator`)
        for slot in list(self._slots):
            if slot is not None:
                slot.iterator.close()
        super().close()


class ScanDataset(UnaryDataset):
    """`function` of a state and each element gives the next state (its first results) and an element."""

    def __init__(self, source: Elements, state: Element, function: ElementFunction) -> None:
        super().__init__(source)
        self.state, self.function = state, function

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _ScanIterator(self, self.source.iterator(path))


class _ScanIterator(UnaryIterator):
    def __init__(self, dataset: ScanDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._state = dataset.state

    def next(self) -> Element | None:
        element = self.source.next()
        if element is None:
            return None
        results = self._dataset.function(*self._state, *element)
        count = len(self._state)
        # after the call: a function that fails leaves the state as it was
        self._state = results[:count]
        return results[count:]

    def position(self) -> Any:
        return [self._state, super().position()]

    def restore(self, position: Position) -> None:
        self._state = tuple(position[0])
        super().restore(position[1])


class GroupByWindowDataset(UnaryDataset):
    """Groups elements by a key; a group that is full becomes a dataset, which `reduce` turns into another one.

    At the end the groups that are not full follow, in the order of their keys.

    Args:
        key: element -> int64 scalar.
        window_size: key -> int64 scalar.
        reduce: (key, dataset of a group) -> dataset.
    """

    def __init__(
        self, source: Elements, key: ElementFunction, window_size: ElementFunction, reduce: ElementFunction
    ) -> None:
        super().__init__(source)
        self.key, self.window_size, self.reduce = key, window_size, reduce

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _GroupByWindowIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return INFINITE if self.source.cardinality() == INFINITE else UNKNOWN


class _GroupByWindowIterator(UnaryIterator):
    def __init__(self, dataset: GroupByWindowDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._groups: dict[int, tuple[Element, int, list[Element]]] = {}
        self._window: tuple[Element, list[Element]] | None = None
        self._open: DatasetIterator | None = None
        self._ended = False

    def next(self) -> Element | None:
        while True:
            if self._open is not None:
                element = self._open.next()
                if element is not None:
                    return element
                self._open.close()
                self._open = self._window = None
            if not self._find_window():
                return None

    def _find_window(self) -> bool:
        """Collects elements until a group is full, or takes what is left at the end."""
        while not self._ended:
            element = self.source.next()
            if element is None:
                self._ended = True
            elif (full := self._add(element)) is not None:
                self._begin(full)
                return True
        if not self._groups:
            return False
        # in the order of keys, as TensorFlow's ordered map gives them
        self._begin(min(self._groups))
        return True

    def _add(self, element: Element) -> int | None:
        key = self._dataset.key(*element)
        number = int(key[0])
        if number not in self._groups:
            # asked once for each group, when it begins
            size = int(self._dataset.window_size(*key)[0])
            if size <= 0:
                raise self._dataset.attribute(
                    InvalidArgumentError(None, None, f"Window size must be greater than zero, but got {size}.")
                )
            self._groups[number] = (key, size, [])
        _, size, members = self._groups[number]
        members.append(element)
        return number if len(members) == size else None

    def _begin(self, number: int) -> None:
        # taken out first: elements with the key that follow begin a new group
        key, _, members = self._groups.pop(number)
        self._walk(key, members)

    def _walk(self, key: Element, members: list[Element]) -> None:
        # kept for the position: the dataset of the window is made again from these
        self._window = (key, members)
        self._open = dataset_in(self._dataset.reduce(*key, boxed(ListDataset(members)))).iterator()

    def position(self) -> Any:
        window = None if self._window is None or self._open is None else [*self._window, self._open.position()]
        return [list(self._groups.values()), window, self._ended, super().position()]

    def restore(self, position: Position) -> None:
        groups, window, self._ended, source = position
        for key, size, members in groups:
            self._groups[int(key[0])] = (tuple(key), size, [tuple(m) for m in members])
        if window is not None:
            self._walk(tuple(window[0]), [tuple(m) for m in window[1]])
            assert self._open is not None
            self._open.restore(window[2])
        super().restore(source)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        super().close()


class GroupByReducerDataset(UnaryDataset):
    """One element for each key, in the order of keys: what the elements with that key are reduced to.

    Args:
        key: element -> int64 scalar.
        init: key -> first state.
        reduce: (state, element) -> next state.
        finalize: last state -> element.
    """

    def __init__(
        self,
        source: Elements,
        key: ElementFunction,
        init: ElementFunction,
        reduce: ElementFunction,
        finalize: ElementFunction,
    ) -> None:
        super().__init__(source)
        self.key, self.init, self.reduce, self.finalize = key, init, reduce, finalize

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _GroupByReducerIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _GroupByReducerIterator(UnaryIterator):
    def __init__(self, dataset: GroupByReducerDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._states: dict[int, Element] = {}
        self._ended = False

    def next(self) -> Element | None:
        dataset = self._dataset
        while not self._ended:
            element = self.source.next()
            if element is None:
                self._ended = True
                break
            key = dataset.key(*element)
            number = int(key[0])
            state = self._states[number] if number in self._states else dataset.init(*key)
            self._states[number] = dataset.reduce(*state, *element)
        if not self._states:
            return None
        return dataset.finalize(*self._states.pop(min(self._states)))

    def position(self) -> Any:
        return [[[key, state] for key, state in self._states.items()], self._ended, super().position()]

    def restore(self, position: Position) -> None:
        states, self._ended, source = position
        self._states = {int(key): tuple(state) for key, state in states}
        super().restore(source)
