"""Sparse and ragged inputs and outputs of models: values as arrays of rows, of which batches are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

_backend = package.module("backend")
_VALUES = (tf.SparseTensorValue, tf.ragged.RaggedTensorValue)
UNDECLARED = (
    "All SparseTensor and RaggedTensor inputs must be explicitly declared by `tf.keras.Input` with `sparse=True` or "
    "`ragged=True`; the inputs of a model whose class defines `call` are found from arrays only"
)


def is_composite(tensor: PassedOn) -> bool:
    """Whether it is a sparse or a ragged tensor."""
    return isinstance(tensor, tf.SparseTensor | tf.RaggedTensor)


class Rows:
    """The value of a sparse or a ragged tensor, which has lengths and rows as an array has."""

    def __init__(self, value: PassedOn) -> None:
        self._value = value
        self._is_sparse = isinstance(value, tf.SparseTensorValue)

    def as_fed(self) -> Any:
        """What a step is fed."""
        return self._value

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths; None for those that differ from row to row."""
        if self._is_sparse:
            return tuple(int(length) for length in self._value.dense_shape)
        lengths: list[Any] = [len(self._value.row_splits) - 1]
        inner = self._value
        while isinstance(inner, tf.ragged.RaggedTensorValue):
            lengths.append(None)
            inner = inner.values
        return (*lengths, *inner.shape[1:])

    @property
    def ragged_rank(self) -> int:
        """How many dimensions differ from row to row."""
        return sum(length is None for length in self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        inner = self._value
        while isinstance(inner, _VALUES):
            inner = inner.values
        return np.asarray(inner).dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: PassedOn) -> Rows:
        """The rows of a slice, or of a list of numbers, in that order."""
        which: HostArray = np.arange(len(self))[rows]
        return Rows(_sparse_rows(self._value, which) if self._is_sparse else _ragged_rows(self._value, which))


def _sparse_rows(value: PassedOn, rows: HostArray) -> Any:
    indices, values = np.asarray(value.indices), np.asarray(value.values)
    order = np.argsort(indices[:, 0], kind="stable")
    first = np.searchsorted(indices[order, 0], rows, "left")
    behind = np.searchsorted(indices[order, 0], rows, "right")
    chosen = order[_ranges(first, behind)]
    new = indices[chosen]
    new[:, 0] = np.repeat(np.arange(len(rows)), behind - first)
    return tf.SparseTensorValue(new, values[chosen], np.array([len(rows), *list(value.dense_shape)[1:]], np.int64))


def _ragged_rows(value: PassedOn, rows: HostArray) -> Any:
    if not isinstance(value, tf.ragged.RaggedTensorValue):
        return value[rows]
    first, behind = value.row_splits[rows], value.row_splits[rows + 1]
    splits = np.concatenate([[0], np.cumsum(behind - first)]).astype(value.row_splits.dtype)
    return tf.ragged.RaggedTensorValue(_ragged_rows(value.values, _ranges(first, behind)), splits)


def _ranges(first: HostArray, behind: HostArray) -> HostArray:
    """The numbers of several ranges, one after another."""
    parts = [np.arange(a, b) for a, b in zip(first, behind, strict=True)]
    joined: HostArray = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
    return joined


def as_rows(data: PassedOn) -> Any:
    """Inputs of a model, or a part of them, where sparse and ragged tensors and their values are rows."""
    if is_composite(data):
        data = _backend.get_session().run(data)
    if isinstance(data, _VALUES):
        return Rows(data)
    if isinstance(data, dict):
        return {name: as_rows(one) for name, one in data.items()}
    if isinstance(data, list | tuple) and any(isinstance(one, _VALUES) or is_composite(one) for one in data):
        return [as_rows(one) for one in data]
    return data


def joined(batches: Sequence[Any]) -> Any:
    """The values of an output for several batches as one: arrays, sparse or ragged tensors."""
    first = batches[0]
    if isinstance(first, tf.SparseTensorValue):
        begins = np.cumsum([0, *(int(one.dense_shape[0]) for one in batches)])
        moved = [np.asarray(one.indices).copy() for one in batches]
        for indices, begin in zip(moved, begins, strict=False):
            indices[:, 0] += begin
        lengths = np.max([np.asarray(one.dense_shape)[1:] for one in batches], axis=0)
        values = np.concatenate([one.values for one in batches])
        return tf.SparseTensorValue(np.concatenate(moved), values, np.array([begins[-1], *lengths], np.int64))
    if isinstance(first, tf.ragged.RaggedTensorValue):
        lengths = np.concatenate([np.diff(one.row_splits) for one in batches])
        splits = np.concatenate([[0], np.cumsum(lengths)]).astype(first.row_splits.dtype)
        return tf.ragged.RaggedTensorValue(joined([one.values for one in batches]), splits)
    return np.concatenate(batches)


def check_structure(rows: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Compares rows with the tensors that they are fed to.

    Raises:
        ValueError: a ragged tensor has rows in rows where the other has none.
    """
    for one, tensor in zip(rows, tensors, strict=False):
        if isinstance(one, Rows) and isinstance(tensor, tf.RaggedTensor) and one.ragged_rank != tensor.ragged_rank:
            raise ValueError(
                f"{tensor} and what it is fed don't have the same nested structure: their ragged ranks are "
                f"{tensor.ragged_rank} and {one.ragged_rank}"
            )
