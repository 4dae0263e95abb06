"""Datasets that choose, repeat and reorder the elements of others (WP4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, InternalError, InvalidArgumentError, OpError
from anabranch.state.datasets import (
    INFINITE,
    UNKNOWN,
    DatasetIterator,
    Element,
    Elements,
    Path,
    RandomSequence,
    UnaryDataset,
    UnaryIterator,
)
from anabranch.state.positions import Position


class TakeDataset(UnaryDataset):
    """The first `count` elements; all where it is negative."""

    def __init__(self, source: Elements, count: int) -> None:
        super().__init__(source)
        self.count = count

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _TakeIterator(self.source.iterator(path), self.count)

    def cardinality(self) -> int:
        count = self.source.cardinality()
        if self.count < 0:
            return count
        # UNKNOWN is below every number, and so wins where neither is infinite
        return self.count if count == INFINITE else min(count, self.count)


class _TakeIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator, count: int) -> None:
        super().__init__(source)
        self._left = count

    def next(self) -> Element | None:
        if self._left == 0:
            # the rest of the source is not wanted: its threads and files are not needed any longer
            self.source.close()
            return None
        element = self.source.next()
        self._left = 0 if element is None else self._left - 1
        return element

    def position(self) -> Any:
        return [self._left, super().position()]

    def restore(self, position: Position) -> None:
        self._left = int(position[0])
        super().restore(position[1])


class SkipDataset(UnaryDataset):
    """All elements but the first `count`; none where it is negative."""

    def __init__(self, source: Elements, count: int) -> None:
        super().__init__(source)
        self.count = count

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SkipIterator(self.source.iterator(path), self.count)

    def cardinality(self) -> int:
        count = self.source.cardinality()
        if self.count < 0:
            return 0
        return count if count < 0 else max(0, count - self.count)


class _SkipIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator, count: int) -> None:
        super().__init__(source)
        self._to_skip = count

    def next(self) -> Element | None:
        # a negative count skips all, as in TensorFlow
        if self._to_skip < 0:
            return None
        # counted down one by one: if an element fails, the next call goes on with the one after it
        while self._to_skip:
            self._to_skip -= 1
            if self.source.next() is None:
                self._to_skip = 0
        return self.source.next()

    def position(self) -> Any:
        return [self._to_skip, super().position()]

    def restore(self, position: Position) -> None:
        self._to_skip = int(position[0])
        super().restore(position[1])


class ShardDataset(UnaryDataset):
    """Every `count`-th element, from number `index` on."""

    def __init__(self, source: Elements, count: int, index: int) -> None:
        super().__init__(source)
        if count < 1:
            raise InvalidArgumentError(None, None, f"Number of shards must be greater than zero (got {count}).")
        if not 0 <= index < count:
            raise InvalidArgumentError(None, None, f"Index must be between 0 and {count - 1} (got {index}).")
        self.count, self.index = count, index

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _ShardIterator(self.source.iterator(path), self.count, self.index)

    def cardinality(self) -> int:
        count = self.source.cardinality()
        return count if count < 0 else (count - self.index + self.count - 1) // self.count


class _ShardIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator, count: int, index: int) -> None:
        super().__init__(source)
        self._count, self._index = count, index
        self._at = 0

    def next(self) -> Element | None:
        while True:
            element = self.source.next()
            at = self._at
            if element is None:
                return None
            self._at = at + 1
            # elements of the other shards are computed too: only the source knows how to come to the next one
            if at % self._count == self._index:
                return element

    def position(self) -> Any:
        return [self._at, super().position()]

    def restore(self, position: Position) -> None:
        self._at = int(position[0])
        super().restore(position[1])


class RepeatDataset(UnaryDataset):
    """The elements `count` times over; endlessly where it is negative."""

    def __init__(self, source: Elements, count: int) -> None:
        super().__init__(source)
        self.count = count

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _RepeatIterator(self.source, self.count, path)

    def cardinality(self) -> int:
        count = self.source.cardinality()
        if self.count == 0 or count == 0:
            return 0
        if self.count < 0:
            return INFINITE
        return count if count < 0 else count * self.count


class _RepeatIterator(DatasetIterator):
    def __init__(self, dataset: Elements, count: int, path: Path) -> None:
        self._dataset, self._count, self._path = dataset, count, path
        self._pass = 0
        # the number of the pass is a part of the path, so that each pass is shuffled in another way
        self._source = dataset.iterator((*path, 0))
        self._any = False

    def next(self) -> Element | None:
        while self._pass != self._count:
            element = self._source.next()
            if element is not None:
                self._any = True
                return element
            if self._count < 0 and not self._any:
                return None  # nothing, endlessly
            self._begin(self._pass + 1)
        return None

    def _begin(self, number: int) -> None:
        self._source.close()
        self._pass, self._any = number, False
        if number != self._count:
            self._source = self._dataset.iterator((*self._path, number))

    def position(self) -> Any:
        done = self._pass == self._count
        return [self._pass, self._any, None if done else self._source.position()]

    def restore(self, position: Position) -> None:
        number, any_yet, source = position
        self._begin(int(number))
        self._any = any_yet
        if source is not None:
            self._source.restore(source)

    def close(self) -> None:
        self._source.close()


class ConcatenateDataset(Elements):
    """The elements of one dataset after those of another."""

    def __init__(self, sources: Sequence[Elements]) -> None:
        self.sources = list(sources)

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _ConcatenateIterator(self.sources, path)

    def cardinality(self) -> int:
        counts = [source.cardinality() for source in self.sources]
        if INFINITE in counts:
            return INFINITE
        return UNKNOWN if UNKNOWN in counts else sum(counts)


class _ConcatenateIterator(DatasetIterator):
    def __init__(self, sources: list[Elements], path: Path) -> None:
        self._sources, self._path = sources, path
        self._which = 0
        # the place in the list is a part of the path, so that one dataset that stands there twice is shuffled twice
        self._source = sources[0].iterator((*path, 0))

    def next(self) -> Element | None:
        while self._which < len(self._sources):
            element = self._source.next()
            if element is not None:
                return element
            self._begin(self._which + 1)
        return None

    def _begin(self, which: int) -> None:
        self._source.close()
        self._which = which
        if which < len(self._sources):
            self._source = self._sources[which].iterator((*self._path, which))

    def position(self) -> Any:
        return [self._which, None if self._which == len(self._sources) else self._source.position()]

    def restore(self, position: Position) -> None:
        self._begin(int(position[0]))
        if position[1] is not None:
            self._source.restore(position[1])

    def close(self) -> None:
        self._source.close()


class ZipDataset(Elements):
    """The components of the n-th elements of several datasets side by side; as long as the shortest."""

    def __init__(self, sources: Sequence[Elements]) -> None:
        self.sources = list(sources)

    def iterator(self, path: Path = ()) -> DatasetIterator:
        # by their places, as in `_ConcatenateIterator`
        return _ZipIterator([source.iterator((*path, i)) for i, source in enumerate(self.sources)])

    def cardinality(self) -> int:
        counts = [source.cardinality() for source in self.sources]
        # the shortest decides, which an infinite one never is
        finite = [count for count in counts if count != INFINITE]
        if not finite:
            return INFINITE
        return UNKNOWN if UNKNOWN in finite else min(finite)


class _ZipIterator(DatasetIterator):
    def __init__(self, sources: list[DatasetIterator]) -> None:
        self._sources = sources
        self._ended = False

    def next(self) -> Element | None:
        """Every source moves on, also when one of them fails: what belongs together stays together."""
        if self._ended:
            return None
        components: list[Any] = []
        failure: OpError | None = None
        for source in self._sources:
            try:
                element = source.next()
            except OpError as error:
                failure = failure or error
                continue
            if element is None:
                self._ended = True
                return None
            components += element
        if failure is not None:
            raise failure
        return tuple(components)

    def position(self) -> Any:
        return [self._ended, [source.position() for source in self._sources]]

    def restore(self, position: Position) -> None:
        self._ended, positions = position
        for source, place in zip(self._sources, positions, strict=True):
            source.restore(place)

    def close(self) -> None:
        for source in self._sources:
            source.close()


class ShuffleDataset(UnaryDataset):
    """The elements in random order: each is drawn from a buffer of the next `size` ones.

    Attributes:
        seed: with the path of the pass, and without it if `reshuffle` is False, decides the order. A restored position
            brings the seed with it, so that passes after it are those of the iterator that was saved.
    """

    def __init__(self, source: Elements, size: int, seed: tuple[int, int], reshuffle: bool) -> None:
        super().__init__(source)
        if size < 1:
            raise InvalidArgumentError(None, None, f"buffer_size must be greater than zero, got {size}.")
        self.size, self.seed, self.reshuffle = size, seed, reshuffle

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _ShuffleIterator(self, path)


class _ShuffleIterator(UnaryIterator):
    def __init__(self, dataset: ShuffleDataset, path: Path) -> None:
        super().__init__(dataset.source.iterator(path))
        self._dataset = dataset
        self._random = RandomSequence(*dataset.seed, *(path if dataset.reshuffle else ()))
        self._buffer: list[Element] = []
        self._ended = False

    def next(self) -> Element | None:
        buffer = self._buffer
        # the buffer is full before anything is drawn, so that every draw is among `size` elements until the source ends
        if not self._ended:
            pull, size = self.source.next, self._dataset.size
            while len(buffer) < size:
                element = pull()
                if element is None:
                    self._ended = True
                    break
                buffer.append(element)
        if not buffer:
            return None
        at = self._random.below(len(buffer))
        element = buffer[at]
        # the last one takes the place of the one drawn: nothing has to be moved along, and order means nothing here
        last = buffer.pop()
        if at < len(buffer):
            buffer[at] = last
        return element

    def position(self) -> Any:
        random = [self._random.key, self._random.at]
        # the elements themselves: the source has moved past them, and to find them again would take the whole pass
        return [list(self._dataset.seed), random, self._buffer, self._ended, super().position()]

    def restore(self, position: Position) -> None:
        seed, random, buffer, self._ended, source = position
        # of the dataset too, whose later passes make their sequences from it
        self._dataset.seed = (int(seed[0]), int(seed[1]))
        self._random.restore(*random)
        self._buffer = [tuple(element) for element in buffer]
        super().restore(source)


class MemoryCache:
    """What the first complete pass through a dataset yields; several datasets may share one."""

    def __init__(self) -> None:
        self.elements: list[Element] | None = None


class CacheDataset(UnaryDataset):
    """Keeps in memory what the first complete pass yields, and yields it again in later ones."""

    def __init__(self, source: Elements, cache: MemoryCache | None = None) -> None:
        super().__init__(source)
        self.cache = cache or MemoryCache()

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _CacheIterator(self, path)


class _CacheIterator(DatasetIterator):
    def __init__(self, dataset: CacheDataset, path: Path) -> None:
        self._dataset = dataset
        # a list of its own while it fills it: several passes may run at once, and each has to see all elements itself
        kept = dataset.cache.elements
        self._seen = [] if kept is None else kept
        self._at = 0
        self._source = dataset.source.iterator(path) if kept is None else None

    def next(self) -> Element | None:
        if self._source is None:
            if self._at >= len(self._seen):
                return None
            element: Element | None = self._seen[self._at]
        else:
            element = self._source.next()
            if element is None:
                self._complete()
                return None
            self._seen.append(element)
        self._at += 1
        return element

    def _complete(self) -> None:
        if self._source is not None:
            self._source.close()
        # not before the end: a pass that is given up has not seen all elements
        self._source, self._dataset.cache.elements = None, self._seen

    def position(self) -> Any:
        # with what it has seen, which the passes after a restore are to give again
        return [self._at, self._seen, None if self._source is None else self._source.position()]

    def restore(self, position: Position) -> None:
        at, seen, source = position
        self._at, self._seen = int(at), [tuple(element) for element in seen]
        # the pass that was saved had seen all elements, and the dataset may keep them from here on
        if source is None:
            self._complete()
        elif self._source is not None:
            self._source.restore(source)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


class IgnoreErrorsDataset(UnaryDataset):
    """Leaves out the elements that fail."""

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _IgnoreErrorsIterator(self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _IgnoreErrorsIterator(UnaryIterator):
    def next(self) -> Element | None:
        while True:
            try:
                return self.source.next()
            # a mistake of ours is not one of the data
            except InternalError:
                raise
            except OpError as error:
                # the iterator is closed or its step given up: every further element would fail likewise, for ever
                if isinstance(error, CancelledError):
                    raise


class DirectedInterleaveDataset(Elements):
    """Elements of several datasets; another dataset of int64 numbers says whose turn it is.

    The turns of a dataset that has ended are passed over.
    """

    def __init__(self, selector: Elements, sources: Sequence[Elements], stop_on_empty: bool = False) -> None:
        self.selector, self.sources, self.stop_on_empty = selector, list(sources), stop_on_empty

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _DirectedInterleaveIterator(self, path)


class _DirectedInterleaveIterator(DatasetIterator):
    def __init__(self, dataset: DirectedInterleaveDataset, path: Path) -> None:
        self._dataset = dataset
        self._selector = dataset.selector.iterator((*path, 0))
        self._sources = [source.iterator((*path, i + 1)) for i, source in enumerate(dataset.sources)]
        self._open = [True] * len(self._sources)

    def next(self) -> Element | None:
        while any(self._open):
            selected = self._selector.next()
            if selected is None:
                return None
            which = int(selected[0])
            if not 0 <= which < len(self._sources):
                message = f"Selector index out of range: {which} >= {len(self._sources)}"
                raise self._dataset.attribute(InvalidArgumentError(None, None, message))
            # the turn of one that has ended is passed over
            if not self._open[which]:
                continue
            element = self._sources[which].next()
            if element is not None:
                return element
            # it stays in its place: the selector counts the datasets as they were given
            self._open[which] = False
            if self._dataset.stop_on_empty:
                self._open = [False] * len(self._open)
        return None

    def position(self) -> Any:
        return [self._open, self._selector.position(), [source.position() for source in self._sources]]

    def restore(self, position: Position) -> None:
        self._open, selector, positions = position
        self._selector.restore(selector)
        for source, place in zip(self._sources, positions, strict=True):
            source.restore(place)

    def close(self) -> None:
        self._selector.close()
        for source in self._sources:
            source.close()


class UniqueDataset(UnaryDataset):
    """Each element once: what came before is left out."""

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _UniqueIterator(self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _UniqueIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator) -> None:
        super().__init__(source)
        # the elements as well as their keys: positions are made of them
        self._seen: dict[Any, Any] = {}

    def next(self) -> Element | None:
        while (element := self.source.next()) is not None:
            key = self._key(element[0])
            if key not in self._seen:
                self._seen[key] = element[0]
                return element
        return None

    @staticmethod
    def _key(value: TensorValue) -> Any:
        # arrays cannot be hashed; the shape tells apart what has the same values in the same order
        return value.shape, tuple(value.reshape(-1).tolist())

    def position(self) -> Any:
        return [list(self._seen.values()), super().position()]

    def restore(self, position: Position) -> None:
        self._seen = {self._key(value): value for value in position[0]}
        super().restore(position[1])
