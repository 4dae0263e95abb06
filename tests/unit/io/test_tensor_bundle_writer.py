"""Checkpoints written for TensorFlow: read back here, and by TensorFlow where there is one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import sstable, tensor_bundle
from anabranch.io.tensor_bundle import TensorBundleReader
from anabranch.io.tensor_bundle_writer import write_bundle

Array = npt.NDArray[Any]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "tensor_bundle"
PEERS = Path(__file__).parents[3] / ".venv-peers" / "bin" / "python"

READ_IT = """
import json, sys
import numpy as np, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
found = {}
for name in reader.get_variable_to_shape_map():
    value = reader.get_tensor(name)
    value = np.asarray(value, object if isinstance(value, bytes) else None)
    text = value.tolist() if value.dtype == object else value.tobytes().hex()
    found[name] = [value.dtype.name, list(value.shape), repr(text)]
print(json.dumps(found))
"""


def tensors() -> dict[str, Array]:
    made = {"dtypes/" + np.dtype(t).name: np.arange(6).reshape(2, 3).astype(t) for t in "?bBhHiIlLefdFD"}
    made["dtypes/bfloat16"] = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    made["words"] = np.array([[b"one", b""], [b"\0\xff", b"x" * 300]], object)
    made["scalar"] = np.array(b"alone", object)
    made["empty"] = np.zeros((0, 3), np.float32)
    made["step"] = np.array(7, np.int64)
    return made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = tensors()
    write_bundle(tmp_path / "b", reversed(made.items()))
    with TensorBundleReader(tmp_path / "b") as reader:
        reader.verify()
        assert reader.names() == sorted(made)
        for name, array in made.items():
            read = reader.read_tensor(name)
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.data-00000-of-00001", "b.index"]


def test_the_index_is_the_one_that_tensorflow_wrote(tmp_path: Path) -> None:
    with TensorBundleReader(FIXTURES / "variables") as reader:
        names = [name for name in reader.names() if name != "partitioned"]
        write_bundle(tmp_path / "b", ((name, reader.read_tensor(name)) for name in names))
    theirs = sstable.read_table((FIXTURES / "variables.index").read_bytes())
    ours = sstable.read_table((tmp_path / "b.index").read_bytes())
    assert ours[b""] == theirs[b""]
    for name in names:  # Field 4 is the offset, which differs because one tensor was left out.
        entry, expected = (
            [field for field in tensor_bundle.message_fields(table[name.encode()]) if field[0] != 4]
            for table in (ours, theirs)
        )
        assert entry == expected, name


def test_a_table_of_many_blocks(tmp_path: Path) -> None:
    entries = {f"layer{i % 97}/weights_{i:06d}".encode(): bytes([i % 256]) * 40 for i in range(20_000)}
    assert sstable.read_table(sstable.write_table(entries)) == dict(sorted(entries.items()))
    assert sstable.read_table(sstable.write_table({})) == {}


def test_refusals_leave_nothing_behind(tmp_path: Path) -> None:
    one = np.ones(2, np.float32)
    for bad in ([("a", one), ("a", one)], [("", one)], [("a", np.array([object()], object))]):
        with pytest.raises(errors.InvalidArgumentError, match="cannot be saved as part of .*/b'"):
            write_bundle(tmp_path / "b", bad)
    with pytest.raises(errors.NotFoundError):
        write_bundle(tmp_path / "absent" / "b", [("a", one)])

    def failing() -> Iterator[tuple[str, Array]]:
        yield "a", one
        raise errors.DataLossError(None, None, "the source is damaged")

    with pytest.raises(errors.DataLossError, match="the source"):
        write_bundle(tmp_path / "b", failing())
    assert not list(tmp_path.iterdir())
    write_bundle(tmp_path / "b", [("a", one)])
    with pytest.raises(errors.AlreadyExistsError, match=r"b\.index"):
        write_bundle(tmp_path / "b", [("a", one + 1)])
    np.testing.assert_array_equal(TensorBundleReader(tmp_path / "b").get_tensor("a"), one)


@pytest.mark.skipif(not PEERS.exists(), reason="there is no genuine TensorFlow here")
def test_tensorflow_reads_it(tmp_path: Path) -> None:
    made = tensors()
    write_bundle(tmp_path / "b", made.items())
    done = subprocess.run(
        [PEERS, "-c", READ_IT, str(tmp_path / "b")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, array in made.items():
        text = array.tolist() if array.dtype == object else array.tobytes().hex()
        dtype = "object" if array.dtype == object else dtypes.as_dtype(array.dtype).name
        assert found[name] == [dtype, list(array.shape), repr(text)]
    assert len(found) == len(made)
