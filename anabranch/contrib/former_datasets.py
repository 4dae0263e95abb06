"""`tf.contrib.data.Dataset`: the datasets of 2017, whose `map` counts threads and whose later functions are methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike


class FormerDataset(tf.data.Dataset):
    """A dataset with the methods that it had when it stood in `tf.contrib.data`.

    Args:
        dataset: of `tf.data`, whose elements it has.

    Example:
        >>> numbers = tf.contrib.data.Dataset.range(4).map(lambda x: x * x, num_threads=2, output_buffer_size=8)
        >>> sess.run(numbers.batch(4).make_one_shot_iterator().get_next())
        array([0, 1, 4, 9])
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        super().__init__(dataset._variant_tensor, dataset._structure, dataset._options)

    def _alike(self, variant: tf.Tensor, structure: tf.nest.Structure, options: PassedOn) -> FormerDataset:
        return FormerDataset(tf.data.Dataset(variant, structure, options))

    # ------------------------------------------------------------------ sources
    @staticmethod
    def from_tensors(tensors: tf.nest.Structure) -> FormerDataset:
        """One element: `tensors`."""
        return FormerDataset(tf.data.Dataset.from_tensors(tensors))

    @staticmethod
    def from_tensor_slices(tensors: tf.nest.Structure) -> FormerDataset:
        """The rows of `tensors`, a structure of values with first dimensions alike."""
        return FormerDataset(tf.data.Dataset.from_tensor_slices(tensors))

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: tf.SparseTensor) -> FormerDataset:
        """The rows of a sparse tensor, each as a tuple (indices, values, dense shape)."""
        return FormerDataset(tf.data.Dataset.from_sparse_tensor_slices(sparse_tensor))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: tf.nest.Structure,
        output_shapes: tf.nest.Structure | None = None,
        args: Sequence[TensorLike] | None = None,
    ) -> FormerDataset:
        """What a Python generator yields; each walk calls `generator` anew."""
        return FormerDataset(tf.data.Dataset.from_generator(generator, output_types, output_shapes, args))

    @staticmethod
    def range(*args: TensorLike) -> FormerDataset:
        """int64 scalars: range(stop), range(start, stop) or range(start, stop, step)."""
        return FormerDataset(tf.data.Dataset.range(*args))

    @staticmethod
    def list_files(file_pattern: TensorLike, shuffle: bool | None = None, seed: int | None = None) -> FormerDataset:
        """The names of the files that match a pattern."""
        return FormerDataset(tf.data.Dataset.list_files(file_pattern, shuffle, seed))

    @staticmethod
    def zip(datasets: tf.nest.Structure) -> FormerDataset:
        """The elements of several datasets side by side, in the structure in which they are given."""
        return FormerDataset(tf.data.Dataset.zip(datasets))

    # ------------------------------------------------------------------ one dataset after another
    def map(  # type: ignore[override]  # num_threads stood where num_parallel_calls stands today
        self,
        map_func: Callable[..., Any],
        num_threads: TensorLike | None = None,
        output_buffer_size: TensorLike | None = None,
        num_parallel_calls: TensorLike | None = None,
    ) -> tf.data.Dataset:
        """What `map_func` makes of each element.

        Args:
            map_func: builds the graph of the function.
            num_threads: how many elements to compute at once; None: `num_parallel_calls`.
            output_buffer_size: how many results to compute ahead; None: none.
            num_parallel_calls: how many elements to compute at once, by the later name.

        Returns:
            A dataset.
        """
        mapped = super().map(map_func, num_parallel_calls if num_threads is None else num_threads)
        return mapped if output_buffer_size is None else mapped.prefetch(output_buffer_size)

    def apply(self, transformation_func: Callable[[tf.data.Dataset], tf.data.Dataset]) -> FormerDataset:
        """What a function makes of the dataset."""
        return FormerDataset(super().apply(transformation_func))

    def enumerate(self, start: TensorLike = 0) -> FormerDataset:
        """Pairs of a number, from `start` on, and an element."""
        return FormerDataset(super().enumerate(start))

    def unbatch(self) -> FormerDataset:
        """The rows of the elements."""
        return FormerDataset(super().unbatch())

    def dense_to_sparse_batch(self, batch_size: TensorLike, row_shape: PassedOn) -> FormerDataset:
        """Elements of different sizes, none greater than `row_shape`, in batches that are sparse tensors."""
        return self.apply(tf.data.experimental.dense_to_sparse_batch(batch_size, row_shape))

    def group_by_window(
        self, key_func: Callable[..., Any], reduce_func: Callable[[Any, Any], Any], window_size: TensorLike
    ) -> FormerDataset:
        """What `reduce_func` makes of each key and up to `window_size` elements of it."""
        return self.apply(tf.data.experimental.group_by_window(key_func, reduce_func, window_size))

    def ignore_errors(self) -> FormerDataset:
        """The elements whose computation does not fail."""
        return self.apply(tf.data.experimental.ignore_errors())


class FormerTextLineDataset(FormerDataset):
    """The lines of text files; arguments as of `tf.data.TextLineDataset`."""

    def __init__(
        self, filenames: TensorLike, compression_type: TensorLike | None = None, buffer_size: TensorLike | None = None
    ) -> None:
        super().__init__(tf.data.TextLineDataset(filenames, compression_type, buffer_size))


class FormerTFRecordDataset(FormerDataset):
    """The records of TFRecord files; arguments as of `tf.data.TFRecordDataset`."""

    def __init__(
        self, filenames: TensorLike, compression_type: TensorLike | None = None, buffer_size: TensorLike | None = None
    ) -> None:
        super().__init__(tf.data.TFRecordDataset(filenames, compression_type, buffer_size))


class FormerFixedLengthRecordDataset(FormerDataset):
    """The records of binary files in which all have one length; arguments as of `tf.data.FixedLengthRecordDataset`."""

    def __init__(
        self,
        filenames: TensorLike,
        record_bytes: TensorLike,
        header_bytes: TensorLike | None = None,
        footer_bytes: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
    ) -> None:
        super().__init__(
            tf.data.FixedLengthRecordDataset(filenames, record_bytes, header_bytes, footer_bytes, buffer_size)
        )
