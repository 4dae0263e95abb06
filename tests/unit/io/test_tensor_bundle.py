"""Checkpoints that TensorFlow saved (`tests/oracles/make_checkpoint_fixture.py`), whole and damaged."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import crc32c, sstable, tensor_bundle
from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.checkpoint_store import checkpoint_exists, open_checkpoint
from anabranch.io.checkpoint_writer import write_checkpoint
from anabranch.io.tensor_bundle import TensorBundleReader

Array = npt.NDArray[Any]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "tensor_bundle"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True)
    return tmp_path


def expected(name: str) -> dict[str, Array]:
    with np.load(FIXTURES / f"{name}.npz") as file:
        arrays = dict(file)
    for key, array in arrays.items():
        if array.dtype.kind == "U":
            strings = np.array(json.loads(str(array)), object)
            arrays[key] = np.array(np.frompyfunc(lambda text: text.encode("latin-1"), 1, 1)(strings), object)
    arrays["dtypes/bfloat16"] = arrays.get("dtypes/bfloat16", np.zeros(0)).astype(ml_dtypes.bfloat16)
    return arrays


def test_everything_tensorflow_saved_is_read() -> None:
    reader = TensorBundleReader(FIXTURES / "variables")
    reader.verify()
    arrays = expected("variables")
    assert reader.names() == sorted(arrays)
    for name, array in arrays.items():
        for actual in (reader.read_tensor(name), reader.read_tensor(name, copy=False)):
            assert actual.dtype == array.dtype
            np.testing.assert_array_equal(actual, array)
        assert reader.get_variable_to_shape_map()[name] == list(array.shape)
        assert reader.get_variable_to_dtype_map()[name] == dtypes.as_dtype(array.dtype)
    assert reader.step == 1234


def test_partitioned_variable() -> None:
    reader = TensorBundleReader(FIXTURES / "variables")
    whole = expected("variables")["partitioned"]
    assert len(reader._entries["partitioned"].pieces) == 3
    np.testing.assert_array_equal(reader.get_slice("partitioned", "5 300 1,3:90,150"), whole[1:4, 90:240])


def test_several_data_files() -> None:
    reader = TensorBundleReader(FIXTURES / "sharded")
    reader.verify()
    np.testing.assert_array_equal(reader.get_tensor("v1"), np.arange(5) + 1)
    assert reader.step is None


def test_open_checkpoint_takes_either_format(copies: Path) -> None:
    prefix = copies / "sharded"
    assert checkpoint_exists(prefix)
    assert isinstance(open_checkpoint(prefix), TensorBundleReader)
    write_checkpoint(str(prefix), {"v0": np.zeros(1)})
    assert isinstance(open_checkpoint(prefix), CheckpointReader)
    assert not checkpoint_exists(copies / "none")
    with pytest.raises(errors.NotFoundError):
        open_checkpoint(copies / "none")
    with pytest.raises(errors.NotFoundError, match="TensorFlow checkpoint"):
        TensorBundleReader(copies / "none")


def test_every_flipped_bit_of_the_index_is_found(copies: Path) -> None:
    path = copies / "sharded.index"
    data = path.read_bytes()
    padding = range(len(data) - 44, len(data) - 8)  # In the footer, after four bytes of handles.
    for position in set(range(len(data))) - set(padding):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match=str(path)):
            TensorBundleReader(copies / "sharded")


def test_truncated_index(copies: Path) -> None:
    path = copies / "variables.index"
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(errors.DataLossError):
            TensorBundleReader(copies / "variables")


def test_every_flipped_bit_of_the_data_is_found(copies: Path) -> None:
    path = copies / "variables.data-00000-of-00001"
    data = path.read_bytes()
    for position in range(0, len(data), 37):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match=str(path)):
            TensorBundleReader(copies / "variables").verify()


def test_missing_and_truncated_data(copies: Path) -> None:
    path = copies / "sharded.data-00001-of-00002"
    for size in (19, 0):
        os.truncate(path, size)
        with pytest.raises(errors.DataLossError, match=f"'v1' in checkpoint file '{path}' is damaged: it ends"):
            TensorBundleReader(copies / "sharded").get_tensor("v1")
    path.unlink()
    with pytest.raises(errors.DataLossError, match="file is missing"):
        TensorBundleReader(copies / "sharded").get_tensor("v1")
    reader = TensorBundleReader(copies / "sharded")
    assert reader.get_tensor("v0")[1] == 1
    reader.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        reader.get_tensor("v0")


# -------------------------------------------------------------------------------------- tables made by hand
def varint(value: int) -> bytes:
    content = bytearray()
    while value >= 128:
        content.append(value & 127 | 128)
        value >>= 7
    return bytes([*content, value])


def table(blocks: list[dict[bytes, bytes]], kind: int = 0) -> bytes:
    """A table of these blocks, keys in full."""
    data, index = b"", {}

    def add(entries: dict[bytes, bytes]) -> bytes:
        nonlocal data
        block = b"".join(b"\0" + varint(len(k)) + varint(len(v)) + k + v for k, v in entries.items())
        block += struct.pack("<II", 0, 1)
        handle = varint(len(data)) + varint(len(block))
        data += block + bytes([kind]) + struct.pack("<I", crc32c.masked_crc32c(block + bytes([kind])))
        return handle

    for entries in blocks:
        index[max(entries)] = add(entries)
    footer = add({}) + add(index)
    return data + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def field(number: int, content: int | bytes) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


HEADER = field(1, 1)
FLOATS = field(1, 1) + field(2, field(2, field(1, 2))) + field(5, 8)  # float32 of shape [2]


def test_table_of_many_blocks() -> None:
    blocks = [{b"%03d" % (10 * i + j): bytes([i, j]) for j in range(10)} for i in range(20)]
    assert sstable.read_table(table(blocks)) == dict(itertools.chain.from_iterable(map(dict.items, blocks)))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({b"a": FLOATS}, "no header"),
        ({b"": field(1, 0)}, "claims 0 data files"),
        ({b"": field(1, 1 << 40)}, "data files"),
        ({b"": field(1, b"x")}, "bytes where a number was expected"),
        ({b"": HEADER, b"\xff": FLOATS}, "decode"),
        ({b"": HEADER, b"a": FLOATS + field(3, 1)}, "data file 1 of 1"),
        ({b"": HEADER, b"a": FLOATS + field(5, 9)}, "claims float32"),
        ({b"": HEADER, b"a": FLOATS + field(1, 99)}, "dtype number 99"),
        ({b"": HEADER, b"a": FLOATS + field(2, field(2, field(1, (1 << 64) - 1)))}, "a shape is"),
        ({b"": HEADER, b"a": FLOATS + field(7, field(1, field(2, 1)))}, "slice of tensor 'a' is missing"),
        ({b"": HEADER, b"a": b"\xff" * 11}, "no end"),
        ({b"": HEADER, b"a": b"\x0a\x7f"}, "ends within a field"),
        ({b"": HEADER, b"a": b"\x0c"}, "wire type 4"),
    ],
)
def test_lying_index(tmp_path: Path, entries: dict[bytes, bytes], message: str) -> None:
    (tmp_path / "ckpt.index").write_bytes(table([entries]))
    with pytest.raises(errors.DataLossError, match=message):
        TensorBundleReader(tmp_path / "ckpt")


def sliced(start: int, second_at: int) -> dict[bytes, bytes]:
    """Two slices of two elements, of which the second begins at some place of the tensor and of the data file."""
    boxes = (field(2, 2), field(1, start) + field(2, 2))
    whole = field(1, 1) + field(2, field(2, field(1, 4))) + b"".join(field(7, field(1, box)) for box in boxes)
    keys = (tensor_bundle.slice_key("a", ((0, 2),)), tensor_bundle.slice_key("a", ((start, 2),)))
    return {keys[0]: FLOATS, keys[1]: FLOATS + field(4, second_at), b"a": whole}


@pytest.mark.parametrize(
    ("start", "at", "message"), [(1, 8, "'4 0,2' and '4 1,2' of 'a' overlap"), (2, 4, "share bytes"), (2, 8, None)]
)
def test_slices_tile_and_share_nothing(tmp_path: Path, start: int, at: int, message: str | None) -> None:
    entries = {b"": HEADER, **sliced(start, at)}
    (tmp_path / "ckpt.index").write_bytes(table([entries]))
    (tmp_path / "ckpt.data-00000-of-00001").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    if message is None:
        read = TensorBundleReader(tmp_path / "ckpt", verify_checksums=False).get_tensor("a")
        assert read.tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(errors.DataLossError, match=message):
            TensorBundleReader(tmp_path / "ckpt")


def test_what_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "ckpt.index").write_bytes(table([{b"": HEADER + field(2, 1)}]))
    with pytest.raises(errors.UnimplementedError, match="big-endian"):
        TensorBundleReader(tmp_path / "ckpt")
    (tmp_path / "ckpt.index").write_bytes(table([{b"": HEADER}], kind=1))
    with pytest.raises(errors.DataLossError, match="compressed"):
        TensorBundleReader(tmp_path / "ckpt")
    (tmp_path / "ckpt.index").write_bytes(table([{b"": HEADER, b"a": field(1, 21)}]))
    with pytest.raises(errors.UnimplementedError, match="variant"):
        TensorBundleReader(tmp_path / "ckpt").get_tensor("a")


@pytest.mark.parametrize("content", [b"", b"\x05", b"\x01\0\0\0\0", b"\xff" * 20])
def test_strings_that_are_none(tmp_path: Path, content: bytes) -> None:
    for shape in (1, 1 << 50):
        entry = field(1, 7) + field(2, field(2, field(1, shape))) + field(5, len(content))
        (tmp_path / "ckpt.index").write_bytes(table([{b"": HEADER, b"a": entry}]))
        (tmp_path / "ckpt.data-00000-of-00001").write_bytes(content)
        with pytest.raises(errors.DataLossError, match="'a'"):
            TensorBundleReader(tmp_path / "ckpt").get_tensor("a")


def test_keys_of_slices_sort_as_their_numbers() -> None:
    numbers = [-1, 0, 1, 63, 64, 100, 8191, 8192, 1 << 20, 1 << 27, 1 << 34, 1 << 48, 1 << 55, (1 << 62) - 1, 1 << 62]
    keys = [tensor_bundle._signed_key(number) for number in numbers]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(numbers)
    assert [tensor_bundle._unsigned_key(number).hex() for number in (0, 2, 300)] == ["00", "0102", "02012c"]
