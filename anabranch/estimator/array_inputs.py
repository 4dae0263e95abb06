"""Input functions of arrays in memory: batches of rows, in order or shuffled, over some epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike


def numpy_input_fn(
    x: TensorLike,
    y: TensorLike = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], PassedOn]:
    """An input function of arrays.

    Args:
        x: an array, or arrays by name, with one row for each example.
        y: labels: None, an array, or arrays by name.
        batch_size: examples in a batch; batches go over the ends of epochs, only the last may be smaller.
        num_epochs: how often each example comes; None: without end.
        shuffle: whether examples come in random order; must be given.
        queue_capacity: among how many examples the next is drawn.
        num_threads: accepted.

    Returns:
        A function that gives features, or a pair of features and labels.

    Raises:
        ValueError: `shuffle` is not given, there is no feature, or arrays differ in length; TypeError: no arrays.
    """
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training); got {shuffle}"
        )
    features = _arrays(x, "x")
    labels = None if y is None else _arrays(y, "y")
    lengths = [(name, len(array)) for group in (features, labels or {}) for name, array in group.items()]
    if len({length for _, length in lengths}) > 1:
        raise ValueError(f"Length of tensors in x and y is mismatched: {lengths}")
    count = lengths[0][1]

    def input_fn() -> PassedOn:
        drawn = _rows(
            {**{("x", k): v for k, v in features.items()}, **{("y", k): v for k, v in (labels or {}).items()}},
            _order(count, batch_size, num_epochs, shuffle, queue_capacity),
        )
        shown = {name: tensor for (group, name), tensor in drawn.items() if group == "x"}
        expected = {name: tensor for (group, name), tensor in drawn.items() if group == "y"}
        first = shown if isinstance(x, Mapping) else shown[""]
        if y is None:
            return first
        return first, (expected if isinstance(y, Mapping) else expected[""])

    return input_fn


def _arrays(given: TensorLike, what: str) -> dict[str, np.ndarray[Any, Any]]:
    if isinstance(given, Mapping):
        if not given:
            raise ValueError(f"{what} cannot be an empty dict.")
        return {name: np.asarray(array) for name, array in given.items()}
    if not hasattr(given, "shape"):
        raise TypeError(f"{what} must be an array or a dict of arrays, got {type(given).__name__}")
    return {"": np.asarray(given)}


def _order(count: int, batch_size: int, epochs: int | None, shuffle: bool, capacity: int) -> tf.Tensor:
    """The numbers of the examples of the next batch, int64 [n]."""
    numbers = tf.data.Dataset.range(count)
    if shuffle:
        numbers = numbers.shuffle(max(1, min(count, capacity)))
    batches = numbers.repeat(epochs).batch(batch_size)
    result: tf.Tensor = tf.data.make_one_shot_iterator(batches).get_next()
    return result


def _rows(arrays: dict[tuple[str, str], np.ndarray[Any, Any]], at: tf.Tensor) -> dict[tuple[str, str], tf.Tensor]:
    """Rows of arrays, which stay outside the graph."""
    dtypes = [tf.as_dtype(array.dtype) for array in arrays.values()]

    def take(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        return [array[rows] for array in arrays.values()]

    tensors = tf.py_func(take, [at], dtypes, name="rows_of_arrays")
    for tensor, array in zip(tensors, arrays.values(), strict=True):
        tensor.set_shape([None, *array.shape[1:]])
    return dict(zip(arrays, tensors, strict=True))


def pandas_input_fn(
    x: PassedOn,
    y: PassedOn = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], PassedOn]:
    """`numpy_input_fn` of the columns of a pandas `DataFrame`, and of a `Series` or a frame of labels.

    Args:
        x: the frame.
        y: the labels, with the index of `x`; None: there are none.
        target_column: the name of the labels among the columns, if `x` has a column of that name already.
        batch_size, num_epochs, shuffle, queue_capacity, num_threads: as for `numpy_input_fn`.

    Raises:
        ValueError: as `numpy_input_fn`, or the indices differ.
    """
    features = {name: x[name].values for name in x.columns}
    labels = None
    if y is not None:
        if not np.array_equal(x.index, y.index):
            raise ValueError(f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}")
        labels = {name: y[name].values for name in y.columns} if hasattr(y, "columns") else y.values
    if target_column in features and y is not None:
        raise ValueError(
            f"Cannot use name {target_column} for target column: DataFrame already has a column of that name"
        )
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)
