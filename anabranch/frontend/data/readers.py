"""Datasets of the records of files (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.structure import TensorComponent
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_DEFAULT_BUFFER = 256 * 1024


def _number(value: TensorLike, default: int, name: str) -> Tensor:
    return convert_to_tensor(default if value is None else value, dtypes.int64, name=name)


def _compression(value: TensorLike) -> Tensor:
    return convert_to_tensor("" if value is None else value, dtypes.string, name="compression_type")


def _text() -> TensorComponent:
    return TensorComponent(dtypes.string, TensorShape([]))


class TextLineDataset(Dataset):
    r"""The lines of text files, without line ends.

    Args:
        filenames: string tensor.
        compression_type: "" (none), "ZLIB" or "GZIP".
        buffer_size: bytes to read at a time.
        num_parallel_reads: how many files to read at once; their lines then take turns.

    Raises (in the step):
        NotFoundError: there is no such file.

    Example:
        >>> with tf.gfile.GFile("text", "w") as file:
        ...     file.write("first\nsecond\n")
        >>> lines = tf.data.make_one_shot_iterator(tf.data.TextLineDataset("text")).get_next()
        >>> sess.run(lines), sess.run(lines)
        (b'first', b'second')
    """

    def __init__(
        self,
        filenames: TensorLike,
        compression_type: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
        num_parallel_reads: TensorLike | None = None,
    ) -> None:
        def read(names: TensorLike) -> Tensor:
            compression, size = _compression(compression_type), _number(buffer_size, _DEFAULT_BUFFER, "buffer_size")
            made: Tensor = raw.TextLineDataset(names, compression, size)
            return made

        super().__init__(_read(filenames, read, num_parallel_reads), _text())


class RowDataset(Dataset):
    """The rows of CSV files, not taken apart: lines, and line ends within quotes. Arguments as of `CsvDataset`."""

    def __init__(
        self,
        filenames: TensorLike,
        field_delim: str,
        compression_type: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
    ) -> None:
        compression, size = _compression(compression_type), _number(buffer_size, _DEFAULT_BUFFER, "buffer_size")
        made = raw._CSVRowDataset(filenames, compression, size, field_delim=field_delim)
        super().__init__(made, _text())


class TFRecordDataset(Dataset):
    """The records of TFRecord files.

    Args:
        filenames: string tensor, or a dataset of string scalars.
        compression_type: "" (none), "ZLIB" or "GZIP".
        buffer_size: bytes to read at a time.
        num_parallel_reads: how many files to read at once; their records then take turns.

    Raises:
        TypeError: `filenames` is of another type.
        DataLossError (in the step): a file is corrupt; the message names it and the byte offset.

    Example:
        >>> with tf.python_io.TFRecordWriter("records") as writer:
        ...     writer.write(b"one")
        >>> dataset = tf.data.TFRecordDataset("records")
        >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
        b'one'
    """

    def __init__(
        self,
        filenames: TensorLike,
        compression_type: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
        num_parallel_reads: TensorLike | None = None,
    ) -> None:
        def read(names: TensorLike) -> Tensor:
            compression, size = _compression(compression_type), _number(buffer_size, _DEFAULT_BUFFER, "buffer_size")
            made: Tensor = raw.TFRecordDataset(names, compression, size)
            return made

        super().__init__(_read(filenames, read, num_parallel_reads), _text())


class FixedLengthRecordDataset(Dataset):
    """The records of binary files in which all records have one length.

    Args:
        filenames: string tensor, or a dataset of string scalars.
        record_bytes, header_bytes, footer_bytes: lengths in bytes.
        buffer_size: bytes to read at a time.
        compression_type: "" (none), "ZLIB" or "GZIP".
        num_parallel_reads: how many files to read at once; their records then take turns.

    Raises (in the step):
        InvalidArgumentError: a file holds no whole number of records.
    """

    def __init__(
        self,
        filenames: TensorLike,
        record_bytes: TensorLike,
        header_bytes: TensorLike | None = None,
        footer_bytes: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
        compression_type: TensorLike | None = None,
        num_parallel_reads: TensorLike | None = None,
    ) -> None:
        def read(names: TensorLike) -> Tensor:
            lengths = (
                _number(header_bytes, 0, "header_bytes"),
                _number(record_bytes, 0, "record_bytes"),
                _number(footer_bytes, 0, "footer_bytes"),
            )
            size = _number(buffer_size, _DEFAULT_BUFFER, "buffer_size")
            made: Tensor = raw.FixedLengthRecordDatasetV2(names, *lengths, size, _compression(compression_type))
            return made

        super().__init__(_read(filenames, read, num_parallel_reads), _text())


def _read(filenames: TensorLike, read: Callable[[Tensor], Tensor], parallel: TensorLike) -> Tensor:
    """The variant of a dataset that reads files one after the other, or several of them in turns."""
    if isinstance(filenames, Dataset):
        if filenames.output_types is not dtypes.string:
            raise TypeError(f"`filenames` must be a `tf.data.Dataset` of `tf.string` elements, got {filenames!r}.")
        if filenames.output_shapes.ndims not in (0, None):
            raise ValueError(f"`filenames` must be a `tf.data.Dataset` of scalar elements, got {filenames!r}.")
        names = filenames
    else:
        tensor = convert_to_tensor(filenames, name="filenames")
        if tensor.dtype is not dtypes.string:
            raise TypeError(f"`filenames` must be a `tf.Tensor` of dtype `tf.string`, got {tensor.dtype!r}.")
        if parallel is None:
            made: Tensor = read(tensor)
            return made
        names = Dataset.from_tensor_slices(raw.Reshape(tensor, [-1]))
    if parallel is None:
        return names.flat_map(lambda name: Dataset(read(name), _text()))._variant_tensor
    together = names.interleave(lambda name: Dataset(read(name), _text()), parallel, 1, parallel)
    return together._variant_tensor
