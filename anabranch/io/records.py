"""TFRecord files: a sequence of byte strings, each framed by its length and two checksums.

    uint64 length | uint32 masked CRC-32C of the length | `length` bytes | uint32 masked CRC-32C of the bytes

All numbers are little-endian. A file may be compressed as a whole, with zlib or gzip.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from anabranch import errors
from anabranch.io import crc32c, os_errors, remote
from anabranch.io.byte_sources import ByteSource, InflatedSource, PlainSource

_HEADER: Final = struct.Struct("<QI")
_FOOTER: Final = struct.Struct("<I")
#: so many bytes are read without asking the system first whether they follow, which takes as long as a small record
_BELIEVED: Final = 1 << 16


class TFRecordCompressionType:
    """How a record file is compressed, as a whole."""

    NONE: Final = 0
    ZLIB: Final = 1
    GZIP: Final = 2


class TFRecordOptions:
    """How to read or write record files.

    Args:
      compression_type: `"GZIP"`, `"ZLIB"`, `""` or None (not compressed), or one of `TFRecordCompressionType`.
      flush_mode: zlib's flush mode when `flush` is called on a writer, `zlib.Z_NO_FLUSH` by default.
      input_buffer_size: how many compressed bytes to take from the file at a time.
      output_buffer_size: how many bytes to collect before they are written.
      window_bits, compression_level, compression_method, mem_level, compression_strategy: zlib's parameters.

    Raises:
      ValueError: no such compression.
    """

    compression_type_map: Final[dict[int, str]] = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: str | int | TFRecordOptions | None = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: str | int | TFRecordOptions | None) -> str:
        """`"ZLIB"`, `"GZIP"` or `""`, from options, a name or one of `TFRecordCompressionType`.

        Raises:
          ValueError: no such compression.
        """
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        if not options:
            return ""
        name = cls.compression_type_map.get(options) if isinstance(options, int) else options
        if name not in ("ZLIB", "GZIP"):
            raise ValueError(f"Not a valid compression_type: {options!r}; use 'GZIP', 'ZLIB' or ''.")
        return name


def _as_options(options: TFRecordOptions | str | int | None) -> TFRecordOptions:
    return options if isinstance(options, TFRecordOptions) else TFRecordOptions(options)


def frame(record: bytes) -> bytes:
    """`record` with its length and checksums, as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, _FOOTER.pack(crc32c.masked_crc32c(length)), record, _FOOTER.pack(crc32c.masked_crc32c(record)))
    )


class TFRecordWriter:
    """Writes records to a file, which it creates or truncates. A context manager.

    Args:
        path: the file.
        options: `TFRecordOptions`, or a compression as it accepts it.

    Raises:
        NotFoundError: the directory does not exist.
        PermissionDeniedError: the user may not write there.

    Example:
        >>> with tf.python_io.TFRecordWriter("records") as writer:
        ...     writer.write(b"one")
        ...     writer.write(b"two")
        >>> list(tf.python_io.tf_record_iterator("records"))
        [b'one', b'two']
    """

    def __init__(self, path: str | os.PathLike[str], options: TFRecordOptions | str | int | None = None) -> None:
        self._file: BinaryIO | None = None
        self._path = os.fsdecode(path)
        self._options = _as_options(options)
        self._compressor = _make_compressor(self._options)
        with os_errors.translated("open", self._path):
            buffering = max(2, self._options.output_buffer_size or 1 << 18)
            self._file = remote.open_file(self._path, "wb", buffering)

    def write(self, record: bytes) -> None:
        """Appends a record.

        Raises:
          TypeError: `record` is not bytes.
          FailedPreconditionError: the writer is closed.
          ResourceExhaustedError: the disk is full.
        """
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(f"A record is bytes, got {type(record).__name__} for {self._path!r}: encode it first.")
        framed = frame(bytes(record))
        with os_errors.translated("write", self._path):
            self._opened().write(self._compressor.compress(framed) if self._compressor else framed)

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        with os_errors.translated("write", self._path):
            opened = self._opened()
            flush_mode = self._options.flush_mode
            if self._compressor and flush_mode not in (None, zlib.Z_NO_FLUSH, zlib.Z_FINISH):
                opened.write(self._compressor.flush(flush_mode))
            opened.flush()

    def close(self) -> None:
        """Flushes and closes. Closing twice is allowed."""
        if self._file is None:
            return
        with os_errors.translated("write", self._path):
            opened, self._file = self._file, None
            with opened:
                if self._compressor:
                    opened.write(self._compressor.flush(zlib.Z_FINISH))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # Programs of TensorFlow's time leave that to the garbage collector.

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise errors.FailedPreconditionError(None, None, f"The writer of {self._path!r} is closed: make a new one.")
        return self._file


def _window_bits(options: TFRecordOptions, compression: str) -> int:
    bits = options.window_bits if options.window_bits is not None else zlib.MAX_WBITS
    return bits + 16 if compression == "GZIP" and bits <= zlib.MAX_WBITS else bits


def _make_compressor(options: TFRecordOptions) -> Any:
    compression = TFRecordOptions.get_compression_type_string(options)
    if not compression:
        return None
    return zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if options.compression_level is None else options.compression_level,
        zlib.DEFLATED if options.compression_method is None else options.compression_method,
        _window_bits(options, compression),
        zlib.DEF_MEM_LEVEL if options.mem_level is None else options.mem_level,
        zlib.Z_DEFAULT_STRATEGY if options.compression_strategy is None else options.compression_strategy,
    )


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | str | int | None = None
) -> Iterator[bytes]:
    """The records of a file, one after the other.

    Args:
      path: the file.
      options: `TFRecordOptions`, or a compression as it accepts it.

    Raises:
      NotFoundError: the file does not exist.
      DataLossError: the file is truncated or corrupt; the message names the byte offset of the record (in the
        decompressed data if the file is compressed). All records before it were yielded.
    """
    name = os.fsdecode(path)
    parsed = _as_options(options)
    with os_errors.translated("open", name):
        file = remote.open_file(name, "rb", buffering=1 << 18)
    return _records(file, name, parsed)


def _records(file: BinaryIO, name: str, options: TFRecordOptions) -> Iterator[bytes]:
    with file:
        source = _source(file, name, options)
        offset = 0
        while (record := next_record(source, name, offset)) is not None:
            yield record
            offset += frame_size(record)


def _source(file: BinaryIO, name: str, options: TFRecordOptions) -> ByteSource:
    compression = TFRecordOptions.get_compression_type_string(options)
    if not compression:
        return PlainSource(file, name)
    bits = _window_bits(options, compression)
    take = {} if options.input_buffer_size is None else {"take": options.input_buffer_size}
    return InflatedSource(file, name, bits, whole=False, **take)


def frame_size(record: bytes) -> int:
    """How many bytes a record takes in a file."""
    return _HEADER.size + len(record) + _FOOTER.size


def next_record(source: ByteSource, name: str, offset: int) -> bytes | None:
    """The next record of a file that is read; None at its end.

    Args:
      name, offset: the file and the place of the record in it, for messages.

    Raises:
      DataLossError: the file is truncated or corrupt here. A record's length is believed only as far as bytes follow.
    """
    header = source.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise _data_loss(name, offset, f"truncated record: only {len(header)} of {_HEADER.size} header bytes follow")
    length, length_crc = _HEADER.unpack(header)
    if crc32c.masked_crc32c(header[:8]) != length_crc:
        raise _data_loss(name, offset, "corrupted record: the checksum of its length does not match")
    if length > _BELIEVED:
        bound = source.bound()
        if bound is not None and length + _FOOTER.size > bound:
            raise _data_loss(name, offset, f"truncated record: its length is {length} bytes but {bound} bytes follow")
    body = source.read(length + _FOOTER.size)
    if len(body) < length + _FOOTER.size:
        raise _data_loss(name, offset, f"truncated record: its length is {length} bytes but {len(body)} bytes follow")
    record = body[:length]
    if crc32c.masked_crc32c(record) != _FOOTER.unpack_from(body, length)[0]:
        raise _data_loss(name, offset, "corrupted record: the checksum of its data does not match")
    return record


def _data_loss(name: str, offset: int, reason: str) -> errors.DataLossError:
    return errors.DataLossError(
        None, None, f"Corrupt record file {name!r} at byte offset {offset}: {reason}. The records before it are intact."
    )
