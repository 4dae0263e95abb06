"""`tf.contrib.framework.RecordInput`: batches of the records of many files."""

from __future__ import annotations

import anabranch as tf


class RecordBatches:
    """Reads the records of files over and over, in an order that a seed says, in batches.

    Args:
        file_pattern: of TFRecord files; all that fit are read in each round.
        batch_size: how many records a batch has.
        buffer_size: among how many records that were read the next is drawn.
        parallelism: how many threads read.
        shift_ratio: by which share of the files each round begins later.
        seed: of the order.
        name: of the operation.
        batches: how many batches a step gives, in a list of lists of scalars; None: one, as a tensor.
        compression_type: a number of `tf.python_io.TFRecordCompressionType`; None: none.
    """

    def __init__(
        self,
        file_pattern: str,
        batch_size: int = 1,
        buffer_size: int = 1,
        parallelism: int = 1,
        shift_ratio: float = 0,
        seed: int = 0,
        name: str | None = None,
        batches: int | None = None,
        compression_type: int | None = None,
    ) -> None:
        types = tf.python_io.TFRecordCompressionType
        kind = types.NONE if compression_type is None else compression_type
        self._compression = tf.python_io.TFRecordOptions.get_compression_type_string(tf.python_io.TFRecordOptions(kind))
        self._pattern, self._size, self._batches = file_pattern, batch_size, batches
        self._buffer_size, self._parallelism, self._shift_ratio = buffer_size, parallelism, shift_ratio
        self._seed, self._name = seed, name

    def get_yield_op(self) -> tf.Tensor | list[list[tf.Tensor]]:
        """The records of a step.

        Returns:
            A string tensor [batch_size]; with `batches`, so many lists of `batch_size` scalars.
        """
        records: tf.Tensor = tf.raw_ops.RecordInput(
            file_pattern=self._pattern,
            file_buffer_size=self._buffer_size,
            file_parallelism=self._parallelism,
            file_shuffle_shift_ratio=float(self._shift_ratio),
            batch_size=self._size * (self._batches or 1),
            file_random_seed=self._seed,
            compression_type=self._compression,
            name=self._name,
        )
        if self._batches is None:
            return records
        with tf.name_scope(self._name, "RecordInput"):
            return [tf.unstack(records[index :: self._batches], self._size) for index in range(self._batches)]
