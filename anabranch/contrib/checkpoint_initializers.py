"""`tf.contrib.framework.load_*_initializer`: matrices of a checkpoint in the order of another vocabulary (§4.3).

Rows and columns whose words the old vocabulary lacks, and those of no word at all, are newly made.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike

#: makes a float32 tensor of a shape, as initializers do
Make = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class _Axis:
    """The words along one axis of the matrix.

    Attributes:
        size: how many words the new vocabulary has.
        old_size: how many lines of the old file count; -1: all.
        old_file, new_file: the vocabularies, a word for each line; None: the axis stays as it is.
        num_oov: how many further places there are, of no word.
    """

    size: int
    old_size: int
    old_file: TensorLike | None
    new_file: TensorLike | None
    num_oov: int

    def check(self, name: str) -> None:
        if self.num_oov < 0:
            raise ValueError(f"num_{name}_oov_buckets must be >= 0, but received {self.num_oov}")
        if (self.old_file is None) != (self.new_file is None):
            raise ValueError(
                f"old_{name}_vocab_file and new_{name}_vocab_file must both be specified or left unspecified, "
                f"got {self.old_file!r} and {self.new_file!r}"
            )

    def order(self, first: int, count: int) -> tuple[Any, Any]:
        """For each of some words its place in the old matrix, or -1, and how many have one."""
        remapping, present = tf.raw_ops.GenerateVocabRemapping(
            new_vocab_file=self.new_file,
            old_vocab_file=self.old_file,
            new_vocab_offset=first,
            num_new_vocab=count,
            old_vocab_size=self.old_size,
        )
        return remapping, present


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """A matrix of a checkpoint, and how its rows and columns are to be ordered."""

    path: TensorLike
    name: TensorLike
    rows: _Axis
    columns: _Axis
    make: Make
    max_rows_in_memory: int

    def __call__(self, shape: PassedOn, dtype: DTypeLike = tf.float32, partition_info: PassedOn = None) -> Any:
        """The first value of a variable, or of one of its parts."""
        if tf.as_dtype(dtype) != tf.float32:
            raise TypeError(f"Currently, only float32 is supported. Received dtype: {dtype}")
        sizes = [int(size) for size in tf.TensorShape(shape)]
        if len(sizes) != 2 or sizes[0] <= 0:
            raise ValueError(f"Expected a shape of 2 dimensions, of which the first is > 0, but received: {shape}")
        if sizes[1] != self.columns.size + self.columns.num_oov:
            raise ValueError(
                f"Expected 2nd dim of shape to be new_col_vocab_size ({self.columns.size}) + num_col_oov_buckets "
                f"({self.columns.num_oov}), but received shape: {shape}"
            )
        first = 0 if partition_info is None else partition_info.single_offset(sizes)
        if first + sizes[0] > self.rows.size + self.rows.num_oov:
            raise ValueError(
                f"Trying to initialize {sizes[0]} rows after {first}, but new_row_vocab_size ({self.rows.size}) + "
                f"num_row_oov_buckets ({self.rows.num_oov}) are fewer"
            )
        loaded = min(sizes[0], max(0, self.rows.size - first))
        if not loaded:
            return self._made(sizes)
        value = self._loaded(first, loaded)
        if sizes[0] > loaded:
            value = tf.concat([value, self._made([sizes[0] - loaded, self.columns.size])], 0)
        if self.columns.num_oov:
            value = tf.concat([value, self._made([sizes[0], self.columns.num_oov])], 1)
        return value

    def _made(self, shape: list[Any]) -> Any:
        return tf.convert_to_tensor(self.make(shape), tf.float32)

    def _loaded(self, first: int, count: int) -> Any:
        rows, rows_there = tf.range(first, first + count, dtype=tf.int64), count
        if self.rows.new_file is not None:
            rows, rows_there = self.rows.order(first, count)
        columns, columns_there = tf.constant([], tf.int64), self.columns.size
        if self.columns.new_file is not None:
            columns, columns_there = self.columns.order(0, self.columns.size)
        missing = count * self.columns.size - rows_there * columns_there
        return tf.raw_ops.LoadAndRemapMatrix(
            ckpt_path=self.path,
            old_tensor_name=self.name,
            row_remapping=rows,
            col_remapping=columns,
            initializing_values=self._made([missing, 1]),
            num_rows=count,
            num_cols=self.columns.size,
            max_rows_in_memory=self.max_rows_in_memory,
        )


def load_and_remap_matrix_initializer(
    ckpt_path: TensorLike,
    old_tensor_name: TensorLike,
    new_row_vocab_size: int,
    new_col_vocab_size: int,
    old_row_vocab_size: int = -1,
    old_row_vocab_file: TensorLike | None = None,
    new_row_vocab_file: TensorLike | None = None,
    old_col_vocab_file: TensorLike | None = None,
    new_col_vocab_file: TensorLike | None = None,
    num_row_oov_buckets: int = 0,
    num_col_oov_buckets: int = 0,
    initializer: Make | None = None,
    max_rows_in_memory: int = -1,
) -> Make:
    """An initializer that loads a matrix and puts its rows, its columns or both in a new order.

    Args:
        ckpt_path: of the checkpoint, a string or a scalar tensor.
        old_tensor_name: of the matrix in it, float32.
        new_row_vocab_size: rows of the new matrix that have words.
        new_col_vocab_size: columns that have.
        old_row_vocab_size: how many lines of the old vocabulary of rows count; -1: all.
        old_row_vocab_file, new_row_vocab_file: of a word for each line; None: rows stay as they are.
        old_col_vocab_file, new_col_vocab_file: the same of columns.
        num_row_oov_buckets: rows after those with words.
        num_col_oov_buckets: columns after those with words.
        initializer: makes what the checkpoint lacks; None: zeros.
        max_rows_in_memory: how many rows are read at once; 0 or less: all.

    Returns:
        An initializer of float32 variables of shape [rows, columns], whole or partitioned by rows.

    Raises:
        TypeError: `initializer` cannot be called.
        ValueError: there is no vocabulary, only one of two, or a number below 0.
    """
    if initializer is not None and not callable(initializer):
        raise TypeError(f"initializer must be callable, instead of being {initializer} of type {type(initializer)}.")
    rows = _Axis(new_row_vocab_size, old_row_vocab_size, old_row_vocab_file, new_row_vocab_file, num_row_oov_buckets)
    columns = _Axis(new_col_vocab_size, -1, old_col_vocab_file, new_col_vocab_file, num_col_oov_buckets)
    rows.check("row")
    columns.check("col")
    if rows.new_file is None and columns.new_file is None:
        raise ValueError(
            "Must provide either row or column vocab files; where nothing is to be ordered, "
            "tf.contrib.framework.init_from_checkpoint loads a variable"
        )
    make = tf.zeros_initializer() if initializer is None else initializer
    return _Matrix(ckpt_path, old_tensor_name, rows, columns, make, max_rows_in_memory)


def load_embedding_initializer(
    ckpt_path: TensorLike,
    embedding_tensor_name: TensorLike,
    new_vocab_size: int,
    embedding_dim: int,
    old_vocab_file: TensorLike,
    new_vocab_file: TensorLike,
    old_vocab_size: int = -1,
    num_oov_buckets: int = 0,
    initializer: Make | None = None,
    max_rows_in_memory: int = -1,
) -> Make:
    """An initializer of an embedding [new_vocab_size + num_oov_buckets, embedding_dim] for another vocabulary.

    Args:
        embedding_tensor_name: of the embedding in the checkpoint.
        new_vocab_size: int: words of the new vocabulary.
        embedding_dim: int.
        initializer: of new words; None: normal, cut off at two, with a deviation of 1 / sqrt(embedding_dim).
        ckpt_path, old_vocab_file, new_vocab_file, old_vocab_size, num_oov_buckets, max_rows_in_memory: as
            `load_and_remap_matrix_initializer` has them for rows.
    """
    if initializer is None:
        initializer = tf.truncated_normal_initializer(stddev=1 / math.sqrt(embedding_dim))
    return load_and_remap_matrix_initializer(
        ckpt_path,
        embedding_tensor_name,
        new_vocab_size,
        embedding_dim,
        old_vocab_size,
        old_vocab_file,
        new_vocab_file,
        num_row_oov_buckets=num_oov_buckets,
        initializer=initializer,
        max_rows_in_memory=max_rows_in_memory,
    )


def load_linear_multiclass_bias_initializer(
    ckpt_path: TensorLike,
    bias_tensor_name: TensorLike,
    new_class_vocab_size: int,
    old_class_vocab_file: TensorLike,
    new_class_vocab_file: TensorLike,
    num_class_oov_buckets: int = 0,
    initializer: Make | None = None,
    max_rows_in_memory: int = -1,
) -> Make:
    """An initializer of the biases [new_class_vocab_size + num_class_oov_buckets, 1] of a linear model's classes.

    Args:
        bias_tensor_name: of the biases in the checkpoint, [classes, 1].
        new_class_vocab_size: int: classes of the new model.
        old_class_vocab_file, new_class_vocab_file: a class for each line.
        num_class_oov_buckets: int: further classes.
        ckpt_path, initializer, max_rows_in_memory: as `load_and_remap_matrix_initializer` has them.
    """
    return load_and_remap_matrix_initializer(
        ckpt_path,
        bias_tensor_name,
        new_class_vocab_size,
        1,
        old_row_vocab_file=old_class_vocab_file,
        new_row_vocab_file=new_class_vocab_file,
        num_row_oov_buckets=num_class_oov_buckets,
        initializer=initializer,
        max_rows_in_memory=max_rows_in_memory,
    )


def load_variable_slot_initializer(
    ckpt_path: TensorLike,
    old_tensor_name: TensorLike,
    primary_partition_info: PassedOn,
    new_row_vocab_size: int,
    new_col_vocab_size: int,
    old_row_vocab_file: TensorLike | None = None,
    new_row_vocab_file: TensorLike | None = None,
    old_col_vocab_file: TensorLike | None = None,
    new_col_vocab_file: TensorLike | None = None,
    num_row_oov_buckets: int = 0,
    num_col_oov_buckets: int = 0,
    initializer: Make | None = None,
    max_rows_in_memory: int = -1,
) -> Make:
    """An initializer of an optimizer's slot, which belongs to a part of a variable that is known beforehand.

    Args:
        primary_partition_info: where the variable's part lies, as initializers are told; None: it is the whole.
        ckpt_path, old_tensor_name, new_row_vocab_size, new_col_vocab_size, old_row_vocab_file, new_row_vocab_file,
            old_col_vocab_file, new_col_vocab_file, num_row_oov_buckets, num_col_oov_buckets, initializer,
            max_rows_in_memory: as `load_and_remap_matrix_initializer` has them.
    """
    whole = load_and_remap_matrix_initializer(
        ckpt_path,
        old_tensor_name,
        new_row_vocab_size,
        new_col_vocab_size,
        -1,
        old_row_vocab_file,
        new_row_vocab_file,
        old_col_vocab_file,
        new_col_vocab_file,
        num_row_oov_buckets,
        num_col_oov_buckets,
        initializer,
        max_rows_in_memory,
    )
    return functools.partial(_at, whole, primary_partition_info)


def _at(
    whole: Make, place: PassedOn, shape: PassedOn, dtype: DTypeLike = tf.float32, partition_info: PassedOn = None
) -> tf.Tensor:
    value: tf.Tensor = whole(shape, dtype, partition_info=place)
    return value
