"""`tf.contrib.data`: transformations that `tf.data` has methods for by now, in the words of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

#: a function from one data set to another, for `tf.data.Dataset.apply`
Transformation = Callable[[Any], Any]


def sliding_window_batch(
    window_size: TensorLike,
    stride: TensorLike | None = None,
    window_shift: TensorLike | None = None,
    window_stride: TensorLike = 1,
) -> Transformation:
    """Windows over a data set, each a batch; those that would not be full are left out.

    Args:
        window_size: int scalar: how many elements a window has.
        stride: an older name of `window_shift`.
        window_shift: int scalar: how much later each window begins; default: 1.
        window_stride: int scalar: how far apart a window's elements are.

    Raises:
        ValueError: `stride` and `window_shift` are both given.

    Example:
        >>> pairs = tf.data.Dataset.range(4).apply(tf.contrib.data.sliding_window_batch(2))
        >>> pairs.output_shapes
        TensorShape([Dimension(None)])
    """
    if stride is not None and window_shift is not None:
        raise ValueError("Cannot specify both `stride` and `window_shift`.")
    shift = window_shift if stride is None else stride

    def together(*parts: PassedOn) -> Any:
        element = parts[0] if len(parts) == 1 else parts
        window = element if isinstance(element, tf.data.Dataset) else tf.data.Dataset.zip(element)
        return window.batch(window_size)

    def windows(dataset: PassedOn) -> Any:
        return dataset.window(
            size=window_size, shift=1 if shift is None else shift, stride=window_stride, drop_remainder=True
        ).flat_map(together)

    return windows


def sloppy_interleave(map_func: Callable[..., Any], cycle_length: int, block_length: int = 1) -> Transformation:
    """Elements of several data sets in turn, whichever is ready; see `tf.data.experimental.parallel_interleave`.

    Args:
        map_func: from an element to a data set.
        cycle_length: among how many data sets.
        block_length: how many elements of one follow each other.
    """
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)


def assert_element_shape(expected_shapes: tf.nest.Structure) -> Transformation:
    """The elements of a data set, which must have shapes.

    Args:
        expected_shapes: a structure of `tf.TensorShape`s, like that of the elements; None is any size.

    Returns:
        A transformation. It raises ValueError where shapes are known not to fit, and its elements
        InvalidArgumentError.
    """

    def checked(*parts: PassedOn) -> Any:
        element = parts[0] if len(parts) == 1 else parts
        return tf.nest.map_structure(_with_shape, element, expected_shapes)

    return lambda dataset: dataset.map(checked)


def _with_shape(value: TensorLike, shape: PassedOn) -> Any:
    known = tf.TensorShape(shape)
    value.shape.assert_is_compatible_with(known)
    if value.shape.is_fully_defined() or known.ndims is None:
        return value
    sizes = known.as_list()
    same = [
        tf.assert_equal(tf.shape(value)[axis], size, message=f"an element is to have shape {known}")
        for axis, size in enumerate(sizes)
        if size is not None
    ]
    with tf.control_dependencies([tf.assert_rank(value, len(sizes)), *same]):
        value = tf.identity(value)
    value.set_shape(known)
    return value


def reduce_dataset(dataset: PassedOn, reducer: PassedOn) -> tf.nest.Structure:
    """What a reducer makes of all elements of a data set.

    Args:
        dataset: a `tf.data.Dataset`.
        reducer: a `tf.data.experimental.Reducer`.

    Returns:
        A structure of tensors: what its last function gives.

    Raises:
        TypeError: `dataset` is no data set.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}.")
    group = tf.data.experimental.group_by_reducer(lambda *element: tf.constant(0, tf.int64), reducer)
    return tf.data.experimental.get_single_element(dataset.apply(group))


def read_batch_features(
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[..., Any] = tf.data.TFRecordDataset,
    reader_args: Sequence[Any] | None = None,
    randomize_input: bool = True,
    num_epochs: int | None = None,
    capacity: int = 10000,
) -> dict[str, Any]:
    """Batches of parsed examples; see `tf.data.experimental.make_batched_features_dataset`.

    Args:
        file_pattern: of files of `tf.train.Example`s.
        batch_size: int.
        features: name -> how it is parsed, as `tf.parse_example` takes it.
        reader: the class of the data set that reads.
        reader_args: its further arguments.
        randomize_input: whether files and examples are shuffled.
        num_epochs: how often all are read; None: for ever.
        capacity: among how many examples the next is drawn.

    Returns:
        name -> tensor [batch_size, ...], the next batch in each step.
    """
    dataset = tf.data.experimental.make_batched_features_dataset(
        file_pattern,
        batch_size,
        dict(features),
        reader=reader,
        reader_args=reader_args,
        shuffle=randomize_input,
        num_epochs=num_epochs,
        shuffle_buffer_size=capacity,
    )
    batch: dict[str, Any] = tf.data.make_one_shot_iterator(dataset).get_next()
    return batch
