"""Tensors of several steps that are put together into batches, and the parts that are handed back to each.

A `BatchGatherer` collects *tasks* until as many rows are there as a batch may have, or until the oldest task has waited
long enough; then the batch is *closed* and given to whoever processes it. A `PieceExchange` hands the pieces of one
step's tensor to the steps to which they belong, and a `GradientGatherer` collects such pieces again.

**Invariant** (whenever the lock is free): an open batch has fewer rows than the limit, and its time is running; a piece
is either kept or wanted, never both. Tasks are settled, and functions that were handed in are called, outside the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.pending import Pending
from anabranch.core.values import PassedOn
from anabranch.errors import CancelledError, DeadlineExceededError, InvalidArgumentError, OpError, UnavailableError

#: calls a function after so many seconds, on any thread; gives a function that prevents it
After: TypeAlias = Callable[[float, Callable[[], None]], Callable[[], None]]
_MICROSECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How batches are made.

    Attributes:
        rows: the most rows of a batch.
        seconds: how long the first task of a batch waits for others.
        batches: how many closed batches may wait to be processed.
        allowed: the numbers of rows to which batches are filled up, in ascending order; none: they are not.

    Raises:
        InvalidArgumentError: numbers that say nothing, or that contradict each other.
    """

    rows: int
    seconds: float
    batches: int
    allowed: tuple[int, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> BatchLimits:
        """The limits that the attributes of an operation state."""
        allowed = tuple(attrs["allowed_batch_sizes"])
        limits = cls(
            attrs["max_batch_size"],
            max(0, attrs["batch_timeout_micros"]) * _MICROSECONDS,
            attrs["max_enqueued_batches"],
            allowed,
        )
        limits._check(attrs["num_batch_threads"])
        return limits

    def _check(self, threads: int) -> None:
        if min(self.rows, self.batches, threads) < 1:
            raise InvalidArgumentError(
                None,
                None,
                f"max_batch_size, max_enqueued_batches and num_batch_threads must be positive, got {self.rows}, "
                f"{self.batches} and {threads}",
            )
        if any(b <= a for a, b in zip((0, *self.allowed), self.allowed, strict=False)):
            raise InvalidArgumentError(
                None, None, f"allowed_batch_sizes entries must be monotonically increasing, got {list(self.allowed)}"
            )
        if self.allowed and self.allowed[-1] != self.rows:
            raise InvalidArgumentError(
                None,
                None,
                f"final entry in allowed_batch_sizes must equal max_batch_size, got {self.allowed[-1]} and {self.rows}",
            )

    def filled_up(self, rows: int) -> int:
        """How many rows a batch of `rows` gets."""
        return next((size for size in self.allowed if size >= rows), rows)


class BatchTask(Pending):
    """What one run of an operation gives to a batch; settled with what it gets of the result.

    Attributes:
        inputs: arrays with one number of rows.
        rows: that number.
        context: whatever processing needs to know of the run.
    """

    __slots__ = ("context", "inputs", "rows")

    def __init__(self, inputs: Sequence[HostArray], context: PassedOn, name: str) -> None:
        super().__init__(waiting_for=f"other tasks of batch {name!r}")
        if any(a.ndim == 0 for a in inputs):
            raise InvalidArgumentError(None, None, "Batching input tensors must have at least one dimension")
        counts = sorted({len(a) for a in inputs})
        if len(counts) != 1:
            raise InvalidArgumentError(
                None,
                None,
                f"Batching input tensors supplied in a given op invocation must have equal 0th-dimension size, "
                f"got {counts}",
            )
        self.inputs, self.rows, self.context = inputs, counts[0], context


class ClosedBatch:
    """Tasks that are processed together.

    Attributes:
        tasks: those that still wait, in the order in which they came.
        bounds: the first row of each, and the end of the last.
        rows: how many rows the batch has, filled up.
    """

    def __init__(self, tasks: Sequence[BatchTask], limits: BatchLimits) -> None:
        self.tasks = [task for task in tasks if not task.is_settled]
        self.bounds = [0, *np.cumsum([task.rows for task in self.tasks], dtype=np.int64).tolist()]
        self.rows = limits.filled_up(self.bounds[-1])

    def joined(self) -> list[HostArray]:
        """The inputs of all tasks as one each; it is filled up with the first row.

        Raises:
            InvalidArgumentError: the rows have different shapes.
        """
        return [self._joined([task.inputs[i] for task in self.tasks]) for i in range(len(self.tasks[0].inputs))]

    def _joined(self, parts: list[HostArray]) -> HostArray:
        shapes = sorted({part.shape[1:] for part in parts})
        if len(shapes) > 1:
            raise InvalidArgumentError(
                None, None, f"Dimensions of the tensors of a batch must match but for the first, got rows of {shapes}"
            )
        missing = self.rows - self.bounds[-1]
        filling = [np.repeat(parts[0][:1], missing, axis=0)] if missing and self.bounds[-1] else []
        return np.concatenate([*parts, *filling])

    def fail(self, error: BaseException) -> None:
        """Lets all tasks fail."""
        for task in self.tasks:
            task.fail(_copy_of(error))


def _copy_of(error: BaseException) -> BaseException:
    """Each step names its own operation in its error."""
    return type(error)(None, None, error.message) if isinstance(error, OpError) else error


class _OpenBatch:
    """Tasks that wait for others, and what stops their time."""

    __slots__ = ("forget_time", "is_closed", "tasks")

    def __init__(self) -> None:
        self.tasks: list[BatchTask] = []
        self.is_closed = False
        self.forget_time: Callable[[], None] | None = None

    @property
    def rows(self) -> int:
        """The rows of those that did not give up."""
        return sum(task.rows for task in self.tasks if not task.is_settled)


class BatchGatherer:
    """Collects tasks into batches. Thread-safe; never blocks.

    Args:
        name: of the resource.
        process: called with each closed batch, on the thread that closed it; `processed` is due for each.
        after: keeps the time of open batches.
    """

    def __init__(self, name: str, limits: BatchLimits, process: Callable[[ClosedBatch], None], after: After) -> None:
        self.name, self.limits = name, limits
        self._process, self._after = process, after
        self._lock = threading.Lock()
        self._open: dict[bytes, _OpenBatch] = {}
        self._under_way = 0
        self._is_closed = False

    def add(self, task: BatchTask, queue: bytes = b"") -> BatchTask:
        """Lets a task wait for its batch.

        Args:
            queue: only tasks of one queue come together.

        Raises:
            InvalidArgumentError: it has more rows than a batch.
            UnavailableError: too many batches wait to be processed.
            CancelledError: the resource is gone.
        """
        limit = self.limits.rows
        if task.rows > limit:
            raise InvalidArgumentError(
                None, None, f"Task size {task.rows} is larger than maximum input batch size {limit}"
            )
        closed: list[ClosedBatch] = []
        try:
            with self._lock:
                batch, begins = self._batch_for(task, queue, closed)
                batch.tasks.append(task)
                if batch.rows >= limit or self.limits.seconds == 0:
                    closed += self._close(queue)
        finally:
            self._hand_over(closed)
        if begins:
            self._keep_time(queue, batch)
        return task

    def _batch_for(self, task: BatchTask, queue: bytes, closed: list[ClosedBatch]) -> tuple[_OpenBatch, bool]:
        """The open batch that a task joins, and whether it is new; one that has no room for it is closed."""
        if self._is_closed:
            raise self._cancelled()
        batch = self._open.get(queue)
        if batch is not None and batch.rows + task.rows > self.limits.rows:
            closed += self._close(queue)
            batch = None
        if batch is not None:
            return batch, False
        self._check_room()
        batch = self._open[queue] = _OpenBatch()
        return batch, True

    def _keep_time(self, queue: bytes, batch: _OpenBatch) -> None:
        if batch.is_closed:
            return
        forget = self._after(self.limits.seconds, lambda: self._time_is_up(queue, batch))
        with self._lock:
            batch.forget_time = forget
            too_late = batch.is_closed
        if too_late:
            forget()

    def processed(self) -> None:
        """Called when a batch is done."""
        with self._lock:
            self._under_way -= 1

    def close(self) -> None:
        """Cancels what waits, now and later."""
        with self._lock:
            self._is_closed = True
            left, self._open = list(self._open.values()), {}
            for batch in left:
                batch.is_closed = True
        for batch in left:
            if batch.forget_time is not None:
                batch.forget_time()
            for task in batch.tasks:
                task.fail(self._cancelled())

    def _check_room(self) -> None:
        if self._under_way >= self.limits.batches:
            raise UnavailableError(
                None,
                None,
                f"The batch scheduling queue to which this task was submitted is full; "
                f"{self._under_way} batches wait (max_enqueued_batches = {self.limits.batches})",
            )

    def _close(self, queue: bytes) -> list[ClosedBatch]:
        opened = self._open.pop(queue)
        opened.is_closed = True
        if opened.forget_time is not None:
            opened.forget_time()
        batch = ClosedBatch(opened.tasks, self.limits)
        if not batch.tasks:
            return []
        self._under_way += 1
        return [batch]

    def _time_is_up(self, queue: bytes, batch: _OpenBatch) -> None:
        with self._lock:
            closed = self._close(queue) if self._open.get(queue) is batch else []
        self._hand_over(closed)

    def _hand_over(self, batches: Sequence[ClosedBatch]) -> None:
        for batch in batches:
            self._process(batch)

    def _cancelled(self) -> CancelledError:
        return CancelledError(None, None, f"batch {self.name!r} was released with its session")


def check_index(batch_index: HostArray) -> None:
    """Raises InvalidArgumentError unless an array has rows of key, begin and end."""
    if batch_index.ndim != 2 or batch_index.shape[1] != 3:
        raise InvalidArgumentError(
            None,
            None,
            f"Wrong shape for index tensor. Expected 2nd dimension size to be 3; got shape {list(batch_index.shape)}",
        )


def pieces_of(tensor: HostArray, batch_index: HostArray) -> dict[int, HostArray]:
    """The rows that an index gives to each key.

    Raises:
        InvalidArgumentError: the index is none, or names rows that are not there.
    """
    check_index(batch_index)
    if len(batch_index) and tensor.ndim == 0:
        raise InvalidArgumentError(None, None, "the batched tensor must have at least one dimension, it is a scalar")
    pieces: dict[int, HostArray] = {}
    for key, begin, end in batch_index.tolist():
        if not 0 <= begin <= end <= len(tensor):
            raise InvalidArgumentError(
                None, None, f"the index names the rows {begin} to {end}, but the tensor has {len(tensor)} rows"
            )
        if key in pieces:
            raise InvalidArgumentError(None, None, f"the index names the key {key} twice")
        pieces[key] = tensor[begin:end]
    return pieces


class PieceExchange:
    """Hands the pieces of batched tensors to the runs to which they belong. Thread-safe; never blocks.

    Args:
        name: of the resource.
        seconds: how long a piece is wanted, and how long it is kept.
        after: keeps the time.
    """

    def __init__(self, name: str, seconds: float, after: After, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._seconds, self._after, self._now = name, seconds, after, now
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[float, HostArray]] = {}
        self._wanted: dict[int, tuple[float, Pending]] = {}
        self._is_timed = self._is_closed = False

    def exchange(self, tensor: HostArray, batch_index: HostArray, key: int) -> Pending:
        """Gives away the pieces of a tensor, and asks for the one of `key`.

        Raises:
            InvalidArgumentError: the index does not fit the tensor, or the key is asked for already.
            CancelledError: the resource is gone.
        """
        pieces = pieces_of(tensor, batch_index)
        mine = Pending(lambda _: self._forget(key, mine), f"the piece {key} of {self._name!r}")
        with self._lock:
            if self._is_closed:
                raise self._cancelled()
            if key in self._wanted:
                raise InvalidArgumentError(None, None, f"the piece of key {key} is asked for twice")
            until = self._now() + self._seconds
            self._wanted[key] = until, mine
            self._kept.update({each: (until, piece) for each, piece in pieces.items()})
            met = [each for each in dict.fromkeys((*pieces, key)) if each in self._kept and each in self._wanted]
            answers = [(self._wanted.pop(each)[1], self._kept.pop(each)[1]) for each in met]
        for pending, piece in answers:
            pending.complete([piece])
        self._keep_time()
        return mine

    def close(self) -> None:
        """Cancels what waits, now and later."""
        with self._lock:
            self._is_closed = True
            left, self._wanted, self._kept = [p for _, p in self._wanted.values()], {}, {}
        for pending in left:
            pending.fail(self._cancelled())

    def _forget(self, key: int, pending: Pending) -> None:
        with self._lock:
            if self._wanted.get(key, (0.0, None))[1] is pending:
                del self._wanted[key]

    def _keep_time(self) -> None:
        with self._lock:
            ends = [until for until, _ in (*self._kept.values(), *self._wanted.values())]
            if not ends or self._is_timed:
                return
            self._is_timed = True
        self._after(max(0.0, min(ends) - self._now()), self._time_is_up)

    def _time_is_up(self) -> None:
        with self._lock:
            now = self._now()
            late = [self._wanted.pop(key)[1] for key, (until, _) in list(self._wanted.items()) if until <= now]
            self._kept = {key: held for key, held in self._kept.items() if held[0] > now}
            self._is_timed = False
        for pending in late:
            pending.fail(DeadlineExceededError(None, None, "Batched data did not arrive within timeout window."))
        self._keep_time()

    def _cancelled(self) -> CancelledError:
        return CancelledError(None, None, f"{self._name!r} was released with its session")


class _WantedBatch(Pending):
    """A batch of gradients, of which some are not there yet."""

    __slots__ = ("index", "like", "missing")

    def __init__(self, like: HostArray, index: HostArray, forget: Callable[[Pending], object], name: str) -> None:
        super().__init__(forget, f"gradients of the batch of {name!r}")
        self.like, self.index = like, index
        self.missing = set(index[:, 0].tolist())


class GradientGatherer:
    """Collects the gradients of the pieces of a batch. Thread-safe; never blocks.

    Args:
        name: of the resource.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._kept: dict[int, HostArray] = {}
        self._wanted: list[_WantedBatch] = []
        self._is_closed = False

    def gather(self, original: HostArray, batch_index: HostArray, grad: HostArray, key: int) -> Pending:
        """Gives the gradient of the piece of `key`, and asks for those of all pieces of `batch_index`.

        Returns:
            The gradient of `original`; of its shape, with zeros where no piece is; nothing where the index is empty.

        Raises:
            InvalidArgumentError: a tensor without an index is not empty, or the key's gradient was given already.
            CancelledError: the resource is gone.
        """
        check_index(batch_index)
        if not len(batch_index) and original.size:
            raise InvalidArgumentError(
                None, None, f"batched input must be empty where the index is, it has shape {list(original.shape)}"
            )
        wanted = _WantedBatch(original, batch_index, self._forget, self._name)
        with self._lock:
            if self._is_closed:
                raise self._cancelled()
            if key in self._kept:
                raise InvalidArgumentError(None, None, f"the gradient of key {key} is given twice")
            self._kept[key] = grad
            self._wanted.append(wanted)
            done = self._complete()
        for batch, found in done:
            _settle_gradient(batch, found)
        return wanted

    def _complete(self) -> list[tuple[_WantedBatch, dict[int, HostArray]]]:
        done = []
        for batch in list(self._wanted):
            batch.missing -= self._kept.keys()
            if not batch.missing:
                self._wanted.remove(batch)
                done.append((batch, {key: self._kept.pop(key) for key in batch.index[:, 0].tolist()}))
        return done

    def close(self) -> None:
        """Cancels what waits, now and later."""
        with self._lock:
            self._is_closed = True
            left, self._wanted, self._kept = self._wanted, [], {}
        for pending in left:
            pending.fail(self._cancelled())

    def _forget(self, pending: Pending) -> None:
        with self._lock:
            self._wanted = [batch for batch in self._wanted if batch is not pending]

    def _cancelled(self) -> CancelledError:
        return CancelledError(None, None, f"{self._name!r} was released with its session")


def _settle_gradient(batch: _WantedBatch, found: Mapping[int, HostArray]) -> None:
    total = np.zeros(batch.like.shape, batch.like.dtype)
    for key, begin, end in batch.index.tolist():
        if not 0 <= begin <= end <= len(total) or total[begin:end].shape != found[key].shape:
            batch.fail(
                InvalidArgumentError(
                    None,
                    None,
                    f"the gradient of key {key} has shape {list(found[key].shape)}, which is not that of the rows "
                    f"{begin} to {end} of a tensor of shape {list(total.shape)}",
                )
            )
            return
        total[begin:end] = found[key]
    batch.complete([total])
