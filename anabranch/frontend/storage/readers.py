"""Readers as users see them  (§4.2, WP4.5)."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import int64
from anabranch.core.values import TensorLike
from anabranch.frontend.resources.queues import QueueBase
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.io.records import TFRecordOptions
from anabranch.ops import raw


class ReaderBase:
    """Gives records out of files whose names it takes from a queue. Use a subclass.

    Args:
        reader_ref: the handle.
        supports_serialize: whether the position can be saved.
    """

    def __init__(self, reader_ref: Tensor, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Tensor:
        """The handle."""
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        """Whether the position can be saved."""
        return self._supports_serialize

    def read(self, queue: QueueBase | Tensor, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The next record: a named tuple of `key` and `value`, two strings. Takes a name from the queue when needed.

        When it runs: `OutOfRangeError` when the queue is closed and all files are read; `DataLossError` for a corrupt
        record.
        """
        result: tuple[Tensor, Tensor] = raw.ReaderReadV2(self._reader_ref, _handle_of(queue), name=name)
        return result

    def read_up_to(
        self, queue: QueueBase | Tensor, num_records: TensorLike, name: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next records, at least one and at most `num_records`: vectors of keys and of values."""
        count = convert_to_tensor(num_records, int64)
        result: tuple[Tensor, Tensor] = raw.ReaderReadUpToV2(self._reader_ref, _handle_of(queue), count, name=name)
        return result

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """How many records were read, an int64."""
        result: Tensor = raw.ReaderNumRecordsProducedV2(self._reader_ref, name=name)
        return result

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """How many files were read to their end, an int64."""
        result: Tensor = raw.ReaderNumWorkUnitsCompletedV2(self._reader_ref, name=name)
        return result

    def serialize_state(self, name: str | None = None) -> Tensor:
        """The position, a string."""
        result: Tensor = raw.ReaderSerializeStateV2(self._reader_ref, name=name)
        return result

    def restore_state(self, state: TensorLike, name: str | None = None) -> Operation:
        """An operation that goes to a position which `serialize_state` gave."""
        result: Operation = raw.ReaderRestoreStateV2(self._reader_ref, state, name=name)
        return result

    def reset(self, name: str | None = None) -> Operation:
        """An operation that makes the reader as new."""
        result: Operation = raw.ReaderResetV2(self._reader_ref, name=name)
        return result


def _handle_of(queue: QueueBase | Tensor) -> Any:
    return queue.queue_ref if isinstance(queue, QueueBase) else queue


class WholeFileReader(ReaderBase):
    """A record is a whole file: the key its name, the value its content."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(raw.WholeFileReaderV2(name=name), supports_serialize=True)


class TextLineReader(ReaderBase):
    r"""A record is a line: the key "name:number", counted from 1; the value without the line break.

    Args:
        skip_header_lines: how many lines at the beginning of each file are no records.
        name: of the operation.

    Raises:
        nothing

    Example:
        >>> with tf.gfile.GFile("text", "w") as file:
        ...     file.write("first\nsecond\n")
        >>> queue = tf.FIFOQueue(10, tf.string, shapes=[[]])
        >>> key, value = tf.TextLineReader().read(queue)
        >>> sess.run(queue.enqueue("text"))
        >>> sess.run([key, value])
        [b'text:1', b'first']
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(raw.TextLineReaderV2(skip_header_lines=skip_header_lines, name=name), supports_serialize=True)


class FixedLengthRecordReader(ReaderBase):
    """A record is a piece of `record_bytes` bytes: the key "name:number", counted from 0.

    Args:
        header_bytes, footer_bytes: what is skipped at the beginning and at the end of each file.
        hop_bytes: how far the beginnings of two records are apart; 0 or None: `record_bytes`.
        encoding: None, "ZLIB" or "GZIP": how files are compressed.
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        handle = raw.FixedLengthRecordReaderV2(
            record_bytes=record_bytes,
            header_bytes=header_bytes,
            footer_bytes=footer_bytes,
            hop_bytes=hop_bytes,
            encoding=encoding,
            name=name,
        )
        super().__init__(handle, supports_serialize=True)


class TFRecordReader(ReaderBase):
    """A record is one of a record file: the key "name:offset".

    Args:
        name: of the operation.
        options: a `TFRecordOptions`: how files are compressed.

    Raises:
        ValueError: `options` names no compression.

    Example:
        >>> with tf.python_io.TFRecordWriter("records") as writer:
        ...     writer.write(b"one")
        >>> queue = tf.FIFOQueue(10, tf.string, shapes=[[]])
        >>> key, value = tf.TFRecordReader().read(queue)
        >>> sess.run(queue.enqueue("records"))
        >>> sess.run([key, value])
        [b'records:0', b'one']
    """

    def __init__(self, name: str | None = None, options: TFRecordOptions | None = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(raw.TFRecordReaderV2(compression_type=compression, name=name), supports_serialize=True)


class LMDBReader(ReaderBase):
    """A record is one of a database of the library LMDB: with its key, in the order of the keys.

    The names are those of database files, or of the folders that hold `data.mdb`.

    Args:
        name: of the operation.
        options: accepted.
    """

    def __init__(self, name: str | None = None, options: object = None) -> None:
        super().__init__(raw._LMDBReader(name=name))


class IdentityReader(ReaderBase):
    """A record is the name itself, as key and as value."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(raw.IdentityReaderV2(name=name), supports_serialize=True)
