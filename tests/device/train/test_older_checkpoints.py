"""Checkpoints in the format that TensorFlow had before 2017."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.io import checkpoint_store, sstable

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow" / "older_checkpoint"
WHOLE = str(FOLDER / "whole")
TENSORS: dict[str, Any] = {
    "float": np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.array([1.5, -2.5]),
    "half": np.array([0.5, -3.0], np.float16),
    "int32": np.array([3, -4], np.int32),
    "int64": np.array(-(1 << 40)),
    "int16": np.array([-5], np.int16),
    "int8": np.array([-1, 127], np.int8),
    "uint8": np.array([200], np.uint8),
    "bool": np.array([[True, False]]),
    "string": np.array([b"a", b"\xff\0c"], object),
    "complex64": np.array([1 + 2j], np.complex64),
    "complex128": np.array([3 - 4j]),
    "empty": np.zeros((0, 3), np.float32),
    "global_step": np.array(12),
}
raw = tf.raw_ops


def restored(path: str, name: str, dtype: Any, spec: str | None = None) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        if spec is None:
            return session.run(raw.Restore(file_pattern=path, tensor_name=name, dt=dtype))
        return session.run(raw.RestoreSlice(file_pattern=path, tensor_name=name, shape_and_slice=spec, dt=dtype))


def saved(path: Path, specs: list[str], parts: list[Any]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        names = ["v"] * len(specs)
        session.run(raw.SaveSlices(filename=str(path), tensor_names=names, shapes_and_slices=specs, data=parts))


@pytest.mark.parametrize("name", TENSORS)
def test_what_tensorflow_saved(name: str) -> None:
    value = TENSORS[name]
    dtype = tf.string if value.dtype == object else value.dtype
    np.testing.assert_array_equal(restored(WHOLE, name, dtype), value, strict=True)


def test_the_parts_of_a_variable_lie_in_several_files() -> None:
    pattern = str(FOLDER / "shard-?????-of-00002")
    whole = [[0, 1], [2, 3], [10, 11], [12, 13], [20, 21], [22, 23]]
    assert restored(pattern, "v", tf.float32).tolist() == whole
    assert restored(pattern, "v", tf.float32, "6 2 1,4:-").tolist() == whole[1:5]
    with pytest.raises(errors.InvalidArgumentError, match="holds only 8 of the 12"):
        restored(str(FOLDER / "shard-00000-of-00002"), "v", tf.float32)


def test_a_saver_restores_such_a_checkpoint() -> None:
    assert tf.train.checkpoint_exists(WHOLE)
    assert dict(tf.train.list_variables(WHOLE))["float"] == [2, 3]
    with checkpoint_store.open_checkpoint(WHOLE) as reader:
        assert reader.step == 12
        reader.verify()
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("float", [2, 3])
        tf.train.Saver([v]).restore(session, WHOLE)
        assert session.run(v).tolist() == TENSORS["float"].tolist()


def test_what_is_saved_here_comes_back_and_is_what_tensorflow_saves(tmp_path: Path) -> None:
    path = tmp_path / "ours"
    with tf.Graph().as_default(), tf.Session() as session:
        names = np.array(list(TENSORS), object)
        session.run(raw.Save(filename=str(path), tensor_names=names, data=list(TENSORS.values())))
    theirs = sstable.read_table(Path(WHOLE).read_bytes())
    assert sstable.read_table(path.read_bytes()) == theirs
    saved(
        tmp_path / "shard", ["6 2 0,2:-", "6 2 2,2:-"], [np.float32([[0, 1], [2, 3]]), np.float32([[10, 11], [12, 13]])]
    )
    expected = sstable.read_table((FOLDER / "shard-00000-of-00002").read_bytes())
    assert sstable.read_table((tmp_path / "shard").read_bytes()) == expected


def test_a_checkpoint_of_today_is_restored_by_the_older_operations(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(raw.SaveV2(prefix=path, tensor_names=["x"], shape_and_slices=[""], tensors=[np.float32([1, 2])]))
    assert restored(path, "x", tf.float32, "2 1,1").tolist() == [2]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="not found in checkpoint"):
        restored(WHOLE, "flaot", tf.float32)
    with pytest.raises(errors.NotFoundError, match="Failed to find any files"):
        restored(str(tmp_path / "none-*"), "x", tf.float32)
    with pytest.raises(errors.InvalidArgumentError, match="does not equal original dtype"):
        restored(WHOLE, "float", tf.int32)
    with pytest.raises(errors.InvalidArgumentError, match="given twice"):
        saved(tmp_path / "twice", ["2 0,2", "2 0,2"], [np.zeros(2), np.zeros(2)])
    with pytest.raises(errors.InvalidArgumentError, match="has another shape"):
        saved(tmp_path / "other", ["2 0,1"], [np.zeros(2)])
    with pytest.raises(errors.InvalidArgumentError, match="cannot hold"):
        saved(tmp_path / "types", ["2 0,2"], [np.zeros(2, np.uint32)])
    assert list(tmp_path.iterdir()) == []
    with tf.Graph().as_default(), pytest.raises(ValueError, match="1 entries, but there are 2 tensors"):
        raw.Save(filename="x", tensor_names=["a"], data=[1.0, 2.0])


def test_damage_is_found(tmp_path: Path) -> None:
    data = bytearray(Path(WHOLE).read_bytes())
    data[len(data) // 3] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(errors.DataLossError, match="is damaged"):
        restored(str(path), "float", tf.float32)
    table = sstable.read_table(Path(WHOLE).read_bytes())
    for key, value in table.items():
        if key:
            table[key] = value[:-2]
    path.write_bytes(sstable.write_table(table))
    with pytest.raises(errors.DataLossError, match="tensor 'float'"):
        restored(str(path), "float", tf.float32)
    field = table[next(key for key in table if b"int32" in key)]
    for at in range(len(field)):  # the numbers are a message in the entry, which the table's checksum does not judge
        path.write_bytes(
            sstable.write_table({k: field[:at] + b"\xff" * 3 if v is field else v for k, v in table.items()})
        )
        with pytest.raises(errors.OpError, match=r"'int32'|is damaged"):
            restored(str(path), "int32", tf.int32)
    shutil.copy(WHOLE, path)
    assert restored(str(path), "int32", tf.int32).tolist() == [3, -4]
