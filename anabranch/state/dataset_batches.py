"""Datasets that put several elements together, and take them apart: batch, padded_batch, unbatch, window (WP4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import boxed
from anabranch.core.host_memory import aligned_empty
from anabranch.core.values import to_array
from anabranch.errors import DataLossError, InvalidArgumentError
from anabranch.state.datasets import (
    INFINITE,
    UNKNOWN,
    DatasetIterator,
    Element,
    Elements,
    ListDataset,
    Outcome,
    Path,
    UnaryDataset,
    UnaryIterator,
    outcome_of,
)
from anabranch.state.positions import Position


def batches(count: int, size: int, drop_remainder: bool) -> int:
    """How many batches `count` elements give."""
    if count < 0:
        return count
    return count // size if drop_remainder else -(-count // size)


def sparse_component(parts: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Indices, values and dense shape of a sparse tensor as one component of an element."""
    # an assignment place by place: `np.array` of arrays that happen to be alike would look into them
    out = np.empty(3, np.object_)
    for i, part in enumerate(parts):
        out[i] = part if isinstance(part, np.ndarray) else to_array(part)
    return out


def stacked(rows: Sequence[Any], component: int) -> np.ndarray[Any, Any]:
    """One component of several elements as one array.

    Raises:
        InvalidArgumentError: their shapes differ.
    """
    first = rows[0]
    shape = first.shape
    out = aligned_empty((len(rows), *shape), first.dtype)
    for i, row in enumerate(rows):
        if row.shape != shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Cannot batch tensors with different shapes in component {component}. First element had shape "
                f"{list(shape)} and element {i} had shape {list(row.shape)}. Use padded_batch, or make them alike",
            )
        # an array of no dimensions would itself become the object at a place of an array of strings
        out[i] = row if shape else row[()]
    return out


class BatchDataset(UnaryDataset):
    """`size` consecutive elements stacked; the last batch may be smaller, or is dropped.

    Args:
        fixed: whether a batch of which an element fails takes its other elements with it, so that the batches after it
            are what they would have been.
    """

    def __init__(self, source: Elements, size: int, drop_remainder: bool, fixed: bool = False) -> None:
        super().__init__(source)
        self.fixed = fixed
        if size <= 0:
            raise InvalidArgumentError(None, None, f"Batch size must be greater than zero, got {size}.")
        self.size, self.drop_remainder = size, drop_remainder

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _BatchIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return batches(self.source.cardinality(), self.size, self.drop_remainder)

    def join(self, elements: list[Element]) -> Element:
        """One element made of several."""
        return tuple([stacked(rows, i) for i, rows in enumerate(zip(*elements, strict=True))])


class _BatchIterator(UnaryIterator):
    def __init__(self, dataset: BatchDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset

    def next(self) -> Element | None:
        dataset = self._dataset
        elements = self._fixed() if dataset.fixed else self._following()
        size = dataset.size
        if not elements or (dataset.drop_remainder and len(elements) < size):
            return None
        try:
            return dataset.join(elements)
        except (InvalidArgumentError, DataLossError) as error:
            # the source's own errors name their operations; these are this dataset's
            raise dataset.attribute(error) from None

    def _following(self) -> list[Element]:
        """The elements of the next batch, which an error ends."""
        pull, size = self.source.next, self._dataset.size
        elements: list[Element] = []
        while len(elements) < size:
            element = pull()
            if element is None:
                break
            elements.append(element)
        return elements

    def _fixed(self) -> list[Element]:
        """The elements of the next batch; if one of them fails, they are all taken before the error is raised."""
        outcomes = []
        for _ in range(self._dataset.size):
            outcomes.append(outcome_of(self.source.next))
            if outcomes[-1].is_end:
                outcomes.pop()
                break
        return [outcome.value() for outcome in outcomes]


class PaddedBatchDataset(BatchDataset):
    """Like `BatchDataset`, for elements of different shapes: each is padded at its end.

    Args:
        shapes: for each component the padded shape; -1 in it stands for the largest size in the batch.
        padding: for each component a scalar.
    """

    def __init__(
        self, source: Elements, size: int, shapes: Sequence[Any], padding: Sequence[Any], drop_remainder: bool
    ) -> None:
        super().__init__(source, size, drop_remainder)
        self.shapes = [tuple(int(d) for d in shape) for shape in shapes]
        self.padding = list(padding)

    def join(self, elements: list[Element]) -> Element:
        columns = zip(*elements, strict=True)
        return tuple([self._padded(i, rows) for i, rows in enumerate(columns)])

    def _padded(self, component: int, rows: Sequence[Any]) -> np.ndarray[Any, Any]:
        padded_shape = self.shapes[component]
        for row in rows:
            if row.ndim != len(padded_shape):
                raise InvalidArgumentError(
                    None,
                    None,
                    "All elements in a batch must have the same rank as the padded shape for component "
                    f"{component}: expected rank {len(padded_shape)} but got element with rank {row.ndim}",
                )
        # scalars have no axes to find a maximum of
        largest = np.max([row.shape for row in rows], axis=0) if padded_shape else ()
        shape = [int(large) if size < 0 else size for size, large in zip(padded_shape, largest, strict=True)]
        for axis, (size, large) in enumerate(zip(shape, largest, strict=True)):
            if large > size:
                raise DataLossError(
                    None,
                    None,
                    f"Attempted to pad to a smaller size than the input element: component {component} has size "
                    f"{large} along axis {axis}, but the padded shape is {list(padded_shape)}",
                )
        out = aligned_empty((len(rows), *shape), rows[0].dtype)
        # all of it first, for the padding is wherever no row is written after
        out[...] = self.padding[component]
        for i, row in enumerate(rows):
            place: tuple[Any, ...] = (i, *[slice(size) for size in row.shape])
            out[place] = row if row.ndim else row[()]
        return out


class UnbatchDataset(UnaryDataset):
    """The rows of each element as elements."""

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _UnbatchIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return INFINITE if self.source.cardinality() == INFINITE else UNKNOWN


class _UnbatchIterator(UnaryIterator):
    def __init__(self, dataset: UnbatchDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._batch: Element | None = None
        self._at = 0

    def next(self) -> Element | None:
        while self._batch is None or self._at >= len(self._batch[0]):
            self._batch, self._at = self.source.next(), 0
            if self._batch is None:
                return None
            sizes = {c.shape[0] if c.ndim else None for c in self._batch}
            if len(sizes) != 1 or None in sizes:
                # forgotten before the error, so that the next call goes on with the next element
                shapes, self._batch = [c.shape for c in self._batch], None
                raise self._dataset.attribute(
                    InvalidArgumentError(
                        None, None, f"Input element must have the same batch size in each component; got {shapes}"
                    )
                )
        at = self._at
        self._at = at + 1
        return tuple([c[at, ...] for c in self._batch])

    def position(self) -> Any:
        # without the rows that were given: a position holds what follows
        rest = None if self._batch is None else [c[self._at :] for c in self._batch]
        return [rest, super().position()]

    def restore(self, position: Position) -> None:
        rest, source = position
        self._batch, self._at = None if rest is None else tuple(rest), 0
        super().restore(source)


class WindowDataset(UnaryDataset):
    """Datasets of `size` elements, `stride` apart, which begin `shift` apart: one dataset per component.

    An element that fails makes the windows fail that hold it, and no others.
    """

    def __init__(self, source: Elements, size: int, shift: int, stride: int, drop_remainder: bool) -> None:
        super().__init__(source)
        for name, value in (("size", size), ("shift", shift), ("stride", stride)):
            if value <= 0:
                raise InvalidArgumentError(None, None, f"Window {name} must be greater than zero, got {value}.")
        self.size, self.shift, self.stride, self.drop_remainder = size, shift, stride, drop_remainder

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _WindowIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        count = self.source.cardinality()
        if count < 0:
            return count
        if not self.drop_remainder:
            return -(-count // self.shift)
        span = (self.size - 1) * self.stride + 1
        return max(0, (count - span) // self.shift + 1)


class _WindowIterator(UnaryIterator):
    def __init__(self, dataset: WindowDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._buffer: list[Outcome] = []
        self._ended = False
        self._to_skip = 0

    def next(self) -> Element | None:
        dataset = self._dataset
        span = (dataset.size - 1) * dataset.stride + 1
        self._fill(span)
        if not self._buffer or (dataset.drop_remainder and len(self._buffer) < span):
            return None
        window = self._buffer[: span : dataset.stride]
        # what lies between two windows is pulled when the next one is asked for, and not before this one is given
        self._to_skip = max(0, dataset.shift - len(self._buffer))
        del self._buffer[: dataset.shift]
        # after the buffer has moved on: if an element raises its error, the next call gives the next window
        elements = [outcome.value() for outcome in window]
        return tuple([boxed(ListDataset([(row,) for row in rows])) for rows in zip(*elements, strict=True)])

    def _fill(self, span: int) -> None:
        while not self._ended and (self._to_skip or len(self._buffer) < span):
            outcome = outcome_of(self.source.next)
            if outcome.is_end:
                self._ended = True
            elif self._to_skip:
                self._to_skip -= 1
            else:
                self._buffer.append(outcome)

    def position(self) -> Any:
        return [[outcome.encoded() for outcome in self._buffer], self._ended, self._to_skip, super().position()]

    def restore(self, position: Position) -> None:
        buffer, self._ended, self._to_skip, source = position
        self._buffer = [Outcome.decoded(item) for item in buffer]
        super().restore(source)


class SlidingWindowDataset(WindowDataset):
    """The windows of `WindowDataset`, each as one element: its elements stacked."""

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SlidingWindowIterator(self, self.source.iterator(path))


class _SlidingWindowIterator(_WindowIterator):
    def next(self) -> Element | None:
        window = super().next()
        if window is None:
            return None
        columns = [[row for (row,) in component.item().elements] for component in window]
        try:
            return tuple([stacked(rows, i) for i, rows in enumerate(columns)])
        except InvalidArgumentError as error:
            raise self._dataset.attribute(error) from None


class RebatchDataset(UnaryDataset):
    """Each element, which is a batch, in `count` pieces; the last ones may be smaller, or empty."""

    def __init__(self, source: Elements, count: int) -> None:
        super().__init__(source)
        if count <= 0:
            raise InvalidArgumentError(None, None, f"num_replicas must be greater than zero, got {count}.")
        self.count = count

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _RebatchIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        count = self.source.cardinality()
        return count if count < 0 else count * self.count


class _RebatchIterator(UnaryIterator):
    def __init__(self, dataset: RebatchDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        self._batch: Element | None = None
        self._piece = 0

    def next(self) -> Element | None:
        if self._batch is None:
            self._batch, self._piece = self._following(), 0
            if self._batch is None:
                return None
        count = self._dataset.count
        size = -(-len(self._batch[0]) // count)
        piece = slice(self._piece * size, (self._piece + 1) * size)
        element = tuple([component[piece] for component in self._batch])
        self._piece += 1
        if self._piece == count:
            self._batch = None
        return element

    def _following(self) -> Element | None:
        batch = self.source.next()
        if batch is None or len({c.shape[0] if c.ndim else -1 for c in batch} | {-1}) == 2:
            return batch
        shapes = [list(c.shape) for c in batch]
        message = f"Cannot split elements whose components have different first dimensions; their shapes are {shapes}"
        raise self._dataset.attribute(InvalidArgumentError(None, None, message))

    def position(self) -> Any:
        return [self._batch, self._piece, super().position()]

    def restore(self, position: Position) -> None:
        batch, piece, source = position
        self._batch, self._piece = None if batch is None else tuple(batch), int(piece)
        super().restore(source)


class DenseToSparseBatchDataset(BatchDataset):
    """Batches of elements of different shapes as one sparse tensor (indices, values, dense shape in one component)."""

    def __init__(self, source: Elements, size: int, row_shape: Sequence[int]) -> None:
        super().__init__(source, size, False)
        self.row_shape = tuple(int(d) for d in row_shape)

    def join(self, elements: list[Element]) -> Element:
        rows = [element[0] for element in elements]
        for row in rows:
            if row.ndim != len(self.row_shape):
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Input element had shape ({row.shape}) that is incompatible with the row shape {self.row_shape}",
                )
            if any(0 <= size < got for size, got in zip(self.row_shape, row.shape, strict=True)):
                raise DataLossError(
                    None,
                    None,
                    f"Input element had shape {row.shape} that is larger than the row shape {self.row_shape}",
                )
        largest = np.max([r.shape for r in rows], axis=0) if self.row_shape else ()
        dense = [int(g) if s < 0 else s for s, g in zip(self.row_shape, largest, strict=True)]
        # every element of a row has an index, zeros too: nothing says which of them are meant
        indices = [[i, *at] for i, row in enumerate(rows) for at in np.ndindex(row.shape)]
        values = np.concatenate([row.reshape(-1) for row in rows])
        parts = (
            np.array(indices, np.int64).reshape(-1, 1 + len(dense)),
            values,
            np.array([len(rows), *dense], np.int64),
        )
        return (sparse_component(parts),)
