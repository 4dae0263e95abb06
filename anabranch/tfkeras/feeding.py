"""Data sets and iterators of `tf.data` as generators of batches of arrays, which the package trains on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import composite, package

_backend = package.module("backend")


class Exhausted(Exception):
    """There are fewer batches than steps were asked for."""


def is_data(x: PassedOn) -> bool:
    """Whether it is a data set or an iterator."""
    return isinstance(x, tf.data.Dataset | tf.data.Iterator)


def is_symbolic(x: PassedOn) -> bool:
    """Whether it is a tensor or a variable, or a structure of nothing else."""
    if x is None or is_data(x):
        return False
    return all(isinstance(one, tf.Tensor | tf.Variable) for one in tf.nest.flatten(x))


def values(tensors: PassedOn) -> Any:
    """The values of a structure of tensors."""
    return _backend.get_session().run(tensors)


class Batches:
    """The batches of a data set or an iterator.

    Args:
        data: a data set, an iterator, which the program has initialized, or a tuple of tensors.
        steps: how many batches an epoch has; None: those of the data set.
        argument: what the program calls that number.
        anew: whether each epoch begins with the first batch of a data set, rather than where the last one ended.

    Raises:
        ValueError: the number is needed and not given.
    """

    def __init__(self, data: PassedOn, steps: int | None, argument: str, anew: bool = False) -> None:
        self._from_dataset = isinstance(data, tf.data.Dataset)
        if not self._from_dataset and steps is None:
            what = "data tensors" if isinstance(data, tuple) else "iterators"
            raise ValueError(f"When using {what} as input to a model, you should specify the `{argument}` argument.")
        if isinstance(data, tuple):
            self._next = tuple(part for part in data if part is not None)
        else:
            self._iterator = tf.data.make_initializable_iterator(data) if self._from_dataset else data
            self._next = self._iterator.get_next()
        self._whole = steps is None
        self._anew = anew and self._from_dataset and steps is not None
        if self._from_dataset:
            self._begin()
        self.steps = steps if steps is not None else self._count(data, argument)

    def _begin(self) -> None:
        _backend.get_session().run(self._iterator.initializer)

    def _count(self, data: PassedOn, argument: str) -> int:
        session = _backend.get_session()
        known = int(session.run(tf.data.experimental.cardinality(data)))
        if known == tf.data.experimental.INFINITE_CARDINALITY:
            raise ValueError(
                f"When passing an infinitely repeating dataset, you must specify the `{argument}` argument."
            )
        if known < 0:
            known = sum(1 for _ in self._run_through())
            self._begin()
        return known

    def _run_through(self) -> Iterator[Any]:
        session = _backend.get_session()
        while True:
            try:
                yield session.run(self._next)
            except tf.errors.OutOfRangeError:
                return

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The batches without end, as tuples of inputs, targets and weights.

        Raises:
            Exhausted: the data ends, and it was said how many batches an epoch has.
        """
        while True:
            some = False
            for index, batch in enumerate(self._run_through(), start=1):
                some = True
                yield _as_tuple(batch)
                if self._anew and index == self.steps:
                    break
            else:
                if self._anew:
                    raise Exhausted
            if not some or not (self._whole or self._anew):
                raise Exhausted
            self._begin()


def _as_tuple(batch: PassedOn) -> tuple[Any, ...]:
    """A batch as inputs, targets (None where there are none) and weights; inputs that are a tuple are a list."""
    batch = composite.as_rows(batch)
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        return (_as_list(batch[0] if isinstance(batch, tuple) and len(batch) == 1 else batch), None)
    return tuple(_as_list(part) for part in batch)


def _as_list(part: PassedOn) -> Any:
    part = composite.as_rows(part)
    return list(part) if isinstance(part, tuple) else part
