"""Datasets: immutable descriptions of sequences of elements, and the iterators that walk them (WP4.5).

`Elements` say what a dataset has; `iterator()` gives a new `DatasetIterator` that stands before the first one.
An *element* is a tuple of NumPy arrays, one per component; nobody changes them. Iterators are pulled: `next` computes
one element and returns it, or None at the end.

**Positions.** Every iterator can tell where it stands, as a structure of numbers and arrays (`position`), and a new
iterator of an equal dataset can be put there (`restore`). What follows is then what would have followed. An iterator
holds what a position needs, buffered elements included, and nothing else.

**Passes.** `path` names a walk through the whole dataset: a repetition appends its number, and a shuffle mixes the path
into its seed, so that each pass has an order of its own and a restored pass has the same one.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from anabranch.core.arrays import HostArray
from anabranch.errors import InvalidArgumentError, OpError, OutOfRangeError, exception_type_from_error_code
from anabranch.state.positions import Position, register_held

#: one array per component
Element = tuple[Any, ...]
#: arrays in, arrays out
ElementFunction = Callable[..., Element]
Path = tuple[int, ...]

#: cardinalities that are no number
INFINITE: Final = -1
UNKNOWN: Final = -2

_BLOCK: Final = 1024
_MOST: Final = 2**63 - 1


class DatasetIterator(ABC):
    """Walks a dataset. Used by one thread at a time, but `close` may come from another.

    #: After an error `next` goes on with the element after the one that failed.
    #: After the end `next` returns None again.
    """

    @abstractmethod
    def next(self) -> Element | None:
        """The next element; None at the end.

        Raises:
            OpError: the element could not be computed.
        """

    @abstractmethod
    def position(self) -> Any:
        """Where the iterator stands; see `positions.encode_position` for what it is made of."""

    @abstractmethod
    def restore(self, position: Position) -> None:
        """Moves a new iterator to where another one stood."""

    def close(self) -> None:  # noqa: B027 (most have nothing to give up)
        """Gives up threads and files; a thread that waits in `next` gets a CancelledError."""


class Elements(ABC):
    """A sequence of elements. Immutable.

    Attributes:
        origin: the operation that made it, which errors name; None in tests.
    """

    origin: Any = None

    @abstractmethod
    def iterator(self, path: Path = ()) -> DatasetIterator:
        """A new iterator before the first element; `path`: see the module docstring."""

    def cardinality(self) -> int:
        """The number of elements, `INFINITE` or `UNKNOWN`."""
        return UNKNOWN

    def attribute(self, error: OpError) -> OpError:
        """Names this dataset's operation in an error that names none."""
        if self.origin is not None:
            error.attribute_to(self.origin)
        return error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call of `next`: an element, the end (None), or an error."""

    element: Element | None
    error: BaseException | None = None

    @property
    def is_end(self) -> bool:
        """Whether no more elements follow."""
        return self.element is None and self.error is None

    def value(self) -> Element:
        """The element; raises the error."""
        if self.error is not None:
            raise self.error
        assert self.element is not None
        return self.element

    def encoded(self) -> Any:
        """As part of a position."""
        error = self.error
        if error is None:
            return [self.element, None]
        # only these have a code by which they can be made again
        if not isinstance(error, OpError):
            raise error
        return [None, [error.error_code, error.message]]

    @classmethod
    def decoded(cls, item: Position) -> Outcome:
        """The way back from `encoded`."""
        element, failure = item
        if failure is None:
            return cls(None if element is None else tuple(element))
        return cls(None, exception_type_from_error_code(failure[0])(None, None, failure[1]))


def outcome_of(pull: Callable[[], Element | None]) -> Outcome:
    """What comes of one call of an iterator's `next`."""
    try:
        return Outcome(pull())
    except OpError as error:
        # only these are a part of a sequence; any other exception ends whatever asked for the element
        return Outcome(None, error)


class UnaryIterator(DatasetIterator):
    """An iterator over the elements of another one."""

    def __init__(self, source: DatasetIterator) -> None:
        self.source = source

    def position(self) -> Any:
        return self.source.position()

    def restore(self, position: Position) -> None:
        self.source.restore(position)

    def close(self) -> None:
        self.source.close()


class UnaryDataset(Elements):
    """A dataset made from another one."""

    def __init__(self, source: Elements) -> None:
        self.source = source

    def cardinality(self) -> int:
        return self.source.cardinality()


# ---------------------------------------------------------------------- sources
class ListDataset(Elements):
    """Elements that are all there."""

    def __init__(self, elements: Sequence[Element]) -> None:
        self.elements = elements

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _IndexIterator(self.elements)

    def cardinality(self) -> int:
        return len(self.elements)


def _listed(tree: Position) -> ListDataset:
    return ListDataset([tuple(element) for element in tree])


# a window, or what a function made of rows: an element of an iterator that is saved
register_held("list", ListDataset, lambda dataset: list(dataset.elements), _listed)


class _IndexIterator(DatasetIterator):
    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = elements
        self._at = 0

    def next(self) -> Element | None:
        at = self._at
        if at >= len(self._elements):
            return None
        self._at = at + 1
        return self._elements[at]

    def position(self) -> Any:
        return self._at

    def restore(self, position: Position) -> None:
        self._at = int(position)


class _Slices(Sequence[Element]):
    """The rows of arrays with first dimensions alike."""

    def __init__(self, components: Sequence[np.ndarray[Any, Any]]) -> None:
        self._components = list(components)
        self._count = len(components[0])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        # with an ellipsis a component stays an array where it has no dimensions; no row is copied, since nobody
        # changes it
        return tuple([c[at, ...] for c in self._components])


class TensorSliceDataset(ListDataset):
    """The rows of tensors.

    Raises:
        InvalidArgumentError: a component is a scalar, or they differ in their number of rows.
    """

    def __init__(self, components: Sequence[np.ndarray[Any, Any]]) -> None:
        counts = {c.shape[0] if c.ndim else -1 for c in components}
        if len(counts) != 1 or counts == {-1}:
            raise InvalidArgumentError(
                None,
                None,
                "the components of from_tensor_slices must have the same first dimension; their shapes are "
                f"{[c.shape for c in components]}",
            )
        super().__init__(_Slices(components))


class _SparseSlices(Sequence[Element]):
    """The rows of a sparse tensor, each as (indices, values, dense shape)."""

    def __init__(self, indices: HostArray, values: HostArray, dense_shape: HostArray) -> None:
        self._indices, self._values, self._shape = indices, values, dense_shape
        # where each row begins, and as the last one where all end: found once, since the indices are ordered by rows
        self._starts = np.searchsorted(indices[:, 0], np.arange(int(dense_shape[0]) + 1))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        assert not isinstance(at, slice)
        row = operator.index(at)
        rows = slice(int(self._starts[row]), int(self._starts[row + 1]))
        return self._indices[rows, 1:], self._values[rows], self._shape[1:]


class SparseTensorSliceDataset(ListDataset):
    """The rows of a sparse tensor of rank 1 or more.

    Raises:
        UnimplementedError, InvalidArgumentError: its indices are not ordered by rows, or lie outside its shape.
    """

    def __init__(self, indices: HostArray, values: HostArray, dense_shape: HostArray) -> None:
        if dense_shape.size == 0:
            raise InvalidArgumentError(None, None, "a sparse tensor of rank 0 has no rows to slice")
        rows = indices[:, 0]
        if np.any(np.diff(rows) < 0):
            raise InvalidArgumentError(
                None, None, "the indices of the sparse tensor are not ordered by rows; use tf.sparse.reorder"
            )
        if rows.size and not (rows[0] >= 0 and rows[-1] < dense_shape[0]):
            raise InvalidArgumentError(
                None, None, f"the sparse tensor has indices of rows outside its {dense_shape[0]} rows"
            )
        super().__init__(_SparseSlices(indices, values, dense_shape))


class RangeDataset(Elements):
    """The numbers from `start` to `stop` (exclusive) by `step`, as int64 scalars (`dtype`)."""

    def __init__(self, start: int, stop: int, step: int, dtype: DTypeLike = np.int64) -> None:
        if step == 0:
            raise InvalidArgumentError(None, None, "step must be a non-zero integer.")
        numbers = range(start, stop, step)
        # which may be one more than `len` and an int64 can say: nobody gets there
        self.numbers = numbers[:_MOST]
        self.dtype = dtype

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _RangeIterator(self.numbers, self.dtype)

    def cardinality(self) -> int:
        return len(self.numbers)


class _RangeIterator(DatasetIterator):
    def __init__(self, numbers: range, dtype: DTypeLike) -> None:
        self._numbers, self._dtype = numbers, dtype
        self._count = len(numbers)
        self._at = 0
        self._block: np.ndarray[Any, Any] = np.empty(0, dtype)

    def next(self) -> Element | None:
        at = self._at
        if at >= self._count:
            return None
        within = at % _BLOCK
        # a block at a time, which takes less than an array for each number
        if within == 0 or not self._block.size:
            first = at - within
            self._block = np.array(self._numbers[first : first + _BLOCK], self._dtype)
        self._at = at + 1
        return (self._block[within, ...],)

    def position(self) -> Any:
        return self._at

    def restore(self, position: Position) -> None:
        self._at, self._block = int(position), self._block[:0]


class RandomNumbers(Elements):
    """Endless pseudo-random int64 numbers below 2**32."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _RandomIterator(self.seed)

    def cardinality(self) -> int:
        return INFINITE


class RandomSequence:
    """Random 64-bit numbers of which the n-th depends on the key and n only (SplitMix64).

    So the place in the sequence is its whole state. (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
    generators", 2014.)
    """

    _GOLDEN: Final = 0x9E3779B97F4A7C15
    _MASK: Final = (1 << 64) - 1

    def __init__(self, *key: int) -> None:
        state = 0
        for word in key:
            # word by word through the mixer, so that (1, 2) and (2, 1), or a longer path, give other sequences
            state = self._mixed_int((state ^ (word & self._MASK)) + self._GOLDEN & self._MASK)
        self.key = state
        self.at = 0
        self._block: list[int] = []

    def below(self, bound: int) -> int:
        """The next number, from 0 to `bound` - 1."""
        within = self.at % _BLOCK
        # blocks begin at multiples of their length, so that a restored place finds the same numbers
        if within == 0 or not self._block:
            self._block = self._make_block(self.at - within)
        self.at += 1
        # 53 random bits as a fraction of 1, times the bound; of Python's integers, which do not overflow
        return self._block[within] * bound >> 53

    def _make_block(self, first: int) -> list[int]:
        # arithmetic modulo 2^64 is what the generator is defined by
        with np.errstate(over="ignore"):
            z = np.uint64(self.key) + (np.arange(_BLOCK, dtype=np.uint64) + np.uint64(first + 1)) * np.uint64(
                self._GOLDEN
            )
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            numbers: list[int] = ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).tolist()
        return numbers

    def restore(self, key: int, at: int) -> None:
        """Moves to the place `at` of the sequence of `key`."""
        self.key, self.at, self._block = int(key), int(at), []

    @classmethod
    def _mixed_int(cls, z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & cls._MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & cls._MASK
        return z ^ (z >> 31)


class _RandomIterator(DatasetIterator):
    def __init__(self, seed: int) -> None:
        self._random = RandomSequence(seed)

    def next(self) -> Element | None:
        return (np.array(self._random.below(1 << 32), np.int64),)

    def position(self) -> Any:
        return [self._random.key, self._random.at]

    def restore(self, position: Position) -> None:
        self._random.restore(*position)


class GeneratorDataset(Elements):
    """What a stateful function returns until it is out of range.

    Args:
        start: () -> state; called at the first element.
        step: state -> element; raises OutOfRangeError at the end.
        finish: state -> anything; called when the state is no longer needed.
    """

    def __init__(self, start: ElementFunction, step: ElementFunction, finish: ElementFunction) -> None:
        self.start, self.step, self.finish = start, step, finish

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _GeneratorIterator(self)


class _GeneratorIterator(DatasetIterator):
    """Its position is a count: a restored iterator starts the generator anew and skips what was taken."""

    def __init__(self, dataset: GeneratorDataset) -> None:
        self._dataset = dataset
        self._state: Element | None = None
        self._taken = 0
        self._done = False

    def next(self) -> Element | None:
        if self._done:
            return None
        # not before the first element is asked for: to start may open what has to be closed again
        if self._state is None:
            self._state = self._dataset.start()
        try:
            element = self._dataset.step(*self._state)
        except OutOfRangeError:
            self._done = True
            self._finish()
            return None
        self._taken += 1
        return element

    def position(self) -> Any:
        return [self._taken, self._done]

    def restore(self, position: Position) -> None:
        taken, done = position
        # what is skipped is computed: nobody knows where in its state a generator stands after so many elements
        while self._taken < taken and not done and self.next() is not None:
            pass
        # it may have fewer elements now than it had: then it has ended, and must not start from its beginning
        self._taken, self._done = int(taken), self._done or bool(done)

    def close(self) -> None:
        self._done = True
        self._finish()

    def _finish(self) -> None:
        # forgotten first: `close` and the end may both come here, and the state is finished once
        state, self._state = self._state, None
        if state is not None:
            self._dataset.finish(*state)
