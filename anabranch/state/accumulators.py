"""Conditional accumulators: sums of gradients that are handed out when there are enough  (§4.4: replica coordination).

An accumulator has a time: the number of the step that its gradients belong to. A gradient computed for an earlier step
is stale and is dropped. Taking the average ends the step: the sum is empty again, and the time advances by one.

Where it is known how many replicas there are that can hand in, a take does not wait for more than these (`expect`).

**Invariants** (whenever the lock is free): `count` gradients, all of step `>= time` when they came, make up the sum; a
take waits => fewer than it requires have come, and fewer than are expected.

The lock is inside, since takes wait as requests do (`state.requests`). A gradient never waits: it is added under the
lock, in place, where two at once would lose one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.dtypes import DType
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape, in_brackets
from anabranch.errors import InvalidArgumentError
from anabranch.state.requests import Request, SharedObject, WaitQueue, Withdraw

Array = np.ndarray[Any, Any]


class TakeGradient(Request):
    """Wants the average of at least `required` gradients."""

    __slots__ = ("average", "required")

    def __init__(self, by: str, on_cancel: Withdraw, required: int) -> None:
        super().__init__(by, on_cancel)
        self.required = required
        self.average: Sequence[Any] = ()

    def results(self) -> Sequence[Any]:
        return self.average


class Accumulator(SharedObject):
    """A sum of dense gradients. See the module docstring. Thread-safe; never blocks.

    Args:
        name: of the resource.
        dtype, shape: of a gradient; the shape may be partial.
        reduction: "MEAN" or "SUM": what is handed out.
    """

    title = "accumulator"

    def __init__(self, name: str, dtype: DType, shape: TensorShape, reduction: str) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.shape = shape
        self.reduction = reduction
        self._takes: WaitQueue[TakeGradient] = WaitQueue()
        self._time = 0
        self._count = 0
        self._expected = sys.maxsize
        self._version = 0

    # ------------------------------------------------------------------ requests
    def set_global_step(self, step: int) -> None:
        """Sets the time."""
        with self._alone():
            self._time = step

    def expect(self, expected: int, version: int) -> None:
        """Says how many gradients of a step can come at all: a take that requires more has enough with these.

        Args:
            expected: positive.
            version: of what is said: its upper half says by whom, its lower one how often that has changed. What is
                older than what is known, by the same, changes nothing.

        Raises:
            InvalidArgumentError: `expected` is not positive.
        """
        if expected <= 0:
            raise InvalidArgumentError(None, None, f"Argument expected must be positive, but was {expected}")
        with self._alone():
            if version >> 32 != self._version >> 32 or version >= self._version:
                self._expected, self._version = expected, version

    def take_gradient(self, required: int, by: str = "take_grad") -> Pending:
        """Takes the average; waits until `required` gradients have come.

        Raises:
            InvalidArgumentError: `required` is not positive.
        """
        if required <= 0:
            raise InvalidArgumentError(None, None, f"Argument num_required must be positive, but was {required}")
        return self._submit(TakeGradient(by, self._withdraw, required), self._takes)

    @property
    def count(self) -> int:
        """How many gradients make up the sum."""
        with self._alone():
            return self._count

    @property
    def time(self) -> int:
        """The number of the step that gradients belong to; a sum that is taken moves it on."""
        with self._alone():
            return self._time

    # ------------------------------------------------------------------ the machine
    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        return (self._takes,)

    def _serve(self) -> None:
        while self._takes and self._count >= min(self._takes.first.required, self._expected):
            # noted in the request, and given out when the lock is free (`state.requests`)
            self._takes.first.average = self._take_locked()
            # the step has ended: the next take waits for new gradients, and those of this step are stale from now on
            self._count = 0
            self._time += 1
            self._grant(self._takes)

    def _take_locked(self) -> Sequence[Any]:
        raise NotImplementedError

    def _admit(self, step: int, most: int) -> bool:
        """Whether a gradient of that step counts. Under the lock."""
        if step < self._time or self._is_full(most):
            return False
        # counted before it is added: whoever admits it adds it, under the same lock
        self._count += 1
        return True

    def _is_full(self, most: int) -> bool:
        return most > 0 and min(most, self._expected) <= self._count

    def _decided_by(self, admitted: bool, most: int) -> int:
        """The time by which it was decided whether a gradient counts. Under the lock."""
        # one that came when there were enough is late by a step, though nobody has taken the sum yet
        return self._time + (not admitted and self._is_full(most))

    def _check_type(self, values: HostArray) -> None:
        if values.dtype != self.dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                None, None, f"accumulator {self.name!r} holds {self.dtype.name}, but the gradient is {values.dtype}"
            )

    def _shape_error(self, got: Sequence[int], expected: TensorShape, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            None,
            None,
            f"Shape mismatch: {what} of accumulator {self.name!r}: expected {in_brackets(expected.dims_tuple)}, got "
            f"{in_brackets(tuple(got))}",
        )


class DenseAccumulator(Accumulator):
    """Sums arrays of one shape."""

    def __init__(self, name: str, dtype: DType, shape: TensorShape, reduction: str) -> None:
        super().__init__(name, dtype, shape, reduction)
        self._sum: Array | None = None

    def apply_gradient(self, step: int, gradient: HostArray, most: int = 0) -> int:
        """Adds a gradient of that step, unless it is stale.

        Args:
            most: how many gradients the sum has at most, later ones are stale; 0: as many as come.

        Returns:
            The time by which that was decided: later than `step` where the gradient does not count.

        Raises:
            InvalidArgumentError: it has another type or shape than those before it.
        """
        # what concerns the gradient alone is checked before the lock is taken
        self._check_type(gradient)
        if not self.shape.is_compatible_with(gradient.shape):
            raise self._shape_error(gradient.shape, self.shape, "the gradient")
        with self._alone():
            # the accumulator's shape may be partial, and then does not say that two gradients can be added
            if self._sum is not None and self._sum.shape != gradient.shape:
                raise self._shape_error(gradient.shape, TensorShape(self._sum.shape), "a later gradient")
            admitted = self._admit(step, most)
            if admitted:
                # a copy: the sum is changed in place, and the gradient belongs to its step
                self._sum = gradient.copy() if self._sum is None else np.add(self._sum, gradient, out=self._sum)
            # before the lock is free: that may serve who waits for the last gradient, and time moves on
            return self._decided_by(admitted, most)

    def _take_locked(self) -> Sequence[Any]:
        total, self._sum = self._sum, None
        # a take is served only when `required` gradients, at least one, have been admitted since the last one
        assert total is not None
        # the sum itself where nothing is divided: nobody else has it, and the next sum begins with a copy
        return [_divided(total, self._count) if self.reduction == "MEAN" else total]


class SparseAccumulator(Accumulator):
    """Sums gradients that touch some rows only; the average of a row is over the gradients that touch it."""

    def __init__(self, name: str, dtype: DType, shape: TensorShape, reduction: str) -> None:
        super().__init__(name, dtype, shape, reduction)
        self._rows: dict[int, list[Any]] = {}  # row -> [sum, number of gradients that touch it]
        self._row_shape: tuple[int, ...] | None = None

    def apply_gradient(
        self,
        step: int,
        indices: HostArray,
        values: HostArray,
        dense_shape: HostArray,
        has_known_shape: bool,
        most: int = 0,
    ) -> int:
        """Adds a gradient of that step, unless it is stale; returns as `DenseAccumulator.apply_gradient`.

        Args:
            indices: [n] int64, the rows.
            values: [n, ...].
            dense_shape: of the gradient as a dense array, if `has_known_shape`.
            most: as of `DenseAccumulator.apply_gradient`.

        Raises:
            InvalidArgumentError: the parts do not fit one another, or those before.
        """
        self._check_type(values)
        self._check_parts(indices, values)
        if has_known_shape:
            self._check_dense_shape(dense_shape)
        self._check_rows(indices)
        with self._alone():
            # the rows of one sum are alike; after it was taken, those of the next may have another shape that fits
            if self._count and self._row_shape is not None:
                self._check_values(values, TensorShape([None, *self._row_shape]), exactly=True)
            else:
                self._check_values(values, self.shape, exactly=False)
            admitted = self._admit(step, most)
            if admitted:
                self._row_shape = values.shape[1:]
                self._add(indices, values)
            return self._decided_by(admitted, most)

    def _check_parts(self, indices: HostArray, values: HostArray) -> None:
        if indices.ndim != 1:
            raise InvalidArgumentError(
                None, None, f"Input indices should be vector but received shape: {list(indices.shape)}"
            )
        if values.ndim == 0:
            raise InvalidArgumentError(None, None, "Values cannot be 0-dimensional.")
        if len(indices) == 0:
            raise InvalidArgumentError(None, None, "Empty indices: a sparse gradient must touch at least one row")
        if len(indices) != values.shape[0]:
            raise InvalidArgumentError(
                None, None, f"Expected {len(indices)} non-empty input values, got {values.shape[0]}"
            )

    def _check_dense_shape(self, dense_shape: HostArray) -> None:
        dims = self.shape.dims_tuple or ()
        if len(dims) > len(dense_shape):
            raise self._mismatch(f"expected shape rank at least {len(dims)}, got {len(dense_shape)}")
        for i, (mine, size) in enumerate(zip(dims, dense_shape.tolist(), strict=False)):
            if mine is not None and mine != size:
                raise self._mismatch(f"expected shape dim {i} to be {mine}, got {size}")

    def _check_rows(self, indices: HostArray) -> None:
        dims = self.shape.dims_tuple
        rows = dims[0] if dims else None
        for place, index in enumerate(indices.tolist()):
            if index < 0 or (rows is not None and index >= rows):
                raise self._mismatch(
                    f"index of slice {place} exceeded limits of shape; index is {index} exceeded {rows or 0}"
                )

    def _check_values(self, values: HostArray, shape: TensorShape, exactly: bool) -> None:
        dims = shape.dims_tuple or ()
        if len(dims) > values.ndim or (exactly and len(dims) != values.ndim):
            least = "" if exactly else "at least "
            raise self._mismatch(f"expected values rank {least}{len(dims)}, got {values.ndim}")
        for i in range(1, len(dims)):
            if dims[i] is not None and dims[i] != values.shape[i]:
                raise self._mismatch(f"expected values dim {i} to be {dims[i]}, got {values.shape[i]}")

    def _mismatch(self, problem: str) -> InvalidArgumentError:
        return InvalidArgumentError(None, None, f"Shape mismatch: {problem} (accumulator {self.name!r})")

    def _add(self, indices: HostArray, values: HostArray) -> None:
        # what one gradient says twice of a row counts as one gradient that touches it
        for row, value in _merged(indices, values):
            known = self._rows.get(row)
            if known is None:
                # a copy: the rows of a gradient are views of an array that belongs to its step
                self._rows[row] = [np.array(value), 1]
            else:
                known[0] = known[0] + value
                known[1] += 1

    def _take_locked(self) -> Sequence[Any]:
        # in order, so that the result does not depend on the order in which the gradients came
        rows = sorted(self._rows)
        values = np.empty((len(rows), *(self._row_shape or ())), self.dtype.as_numpy_dtype)
        for place, row in enumerate(rows):
            total, count = self._rows[row]
            values[place] = _divided(total, count) if self.reduction == "MEAN" else total
        self._rows = {}
        return [np.array(rows, np.int64), values, self._final_shape(values)]

    def _final_shape(self, values: HostArray) -> Array:
        """The shape of the dense gradient; -1 rows where the accumulator's shape does not say."""
        dims = self.shape.dims_tuple
        rows = dims[0] if dims and dims[0] is not None else -1
        return np.array([rows, *values.shape[1:]], np.int64)


def _merged(indices: HostArray, values: HostArray) -> list[tuple[int, Any]]:
    """The rows of one gradient; what it says twice of a row is added up."""
    sums: dict[int, Any] = {}
    for row, value in zip(indices.tolist(), values, strict=True):
        sums[row] = value if row not in sums else sums[row] + value
    return list(sums.items())


def _divided(total: HostArray, count: int) -> Any:
    if total.dtype.kind in "iu":
        # integers are divided as C++ does it: towards zero
        return (np.sign(total) * (np.abs(total) // count)).astype(total.dtype)
    return (total / np.asarray(count).astype(total.dtype)).astype(total.dtype)
