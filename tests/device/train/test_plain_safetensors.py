"""A safetensors file that another program wrote, read as a checkpoint."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import anabranch as tf

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    tensors: dict[str, Any] = {name: (np.arange(6).reshape(2, 3) % 2).astype(name) for name in DTYPES}
    tensors |= {"scope/w": np.arange(4, dtype=np.float32), "scalar": np.array(3, np.int64), "none": np.zeros((0, 2))}
    tensors["brain"] = np.arange(3).astype(ml_dtypes.bfloat16)
    name = str(tmp_path / "model.safetensors")
    safetensors.numpy.save_file(tensors, name, metadata={"format": "np"})
    return name


def test_it_is_read_as_a_checkpoint(path: str) -> None:
    expected = safetensors.numpy.load_file(path)
    assert dict(tf.train.list_variables(path)) == {name: list(value.shape) for name, value in expected.items()}
    assert tf.train.checkpoint_exists(path)
    reader = tf.train.load_checkpoint(path)
    for name, value in expected.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value, strict=True)
    np.testing.assert_array_equal(tf.train.load_variable(path, "scope/w:0"), [0, 1, 2, 3])
    np.testing.assert_array_equal(reader.get_slice("scope/w", "4 1,2"), [1, 2])
    assert len(tf.train.get_checkpoint_mtimes([path])) == 1


def test_variables_are_restored_from_it(path: str) -> None:
    with tf.Graph().as_default():
        tf.get_variable("scope/w", [4])
        tf.get_variable("other", [4])
        fed = tf.get_variable("mine/w", [4])
        tf.train.init_from_checkpoint(path, {"scope/": "mine/"})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(fed), [0, 1, 2, 3])
            tf.train.Saver({"scope/w": fed}).restore(session, path)
            np.testing.assert_array_equal(session.run(fed), [0, 1, 2, 3])
            with pytest.raises(tf.errors.NotFoundError, match="other"):
                tf.train.Saver().restore(session, path)


def test_partitioned_variables_take_their_parts_from_it(path: str) -> None:
    with tf.Graph().as_default():
        parts = tf.get_variable("scope/w", [4], partitioner=tf.fixed_size_partitioner(2))
        with tf.Session() as session:
            tf.train.Saver().restore(session, path)
            np.testing.assert_array_equal(session.run(tf.convert_to_tensor(parts)), [0, 1, 2, 3])


def header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        header(b"{")[:9],
        struct.pack("<Q", 1 << 62),
        header(b'{"a": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 4]}}') + bytes(4),
        header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}') + bytes(4),
        header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}'),
        header(b'{"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}') + bytes(1),
        header(b"[" * 5000),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "bad.safetensors"
    file.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError, match="no safetensors file, or damaged"):
        tf.train.load_checkpoint(str(file))


def test_bytes_that_are_no_booleans_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.safetensors"
    file.write_bytes(header(b'{"a": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}') + b"\1\2")
    with pytest.raises(tf.errors.DataLossError, match="neither 0 nor 1"):
        tf.train.load_variable(str(file), "a")


def test_tensors_may_lie_at_any_place(tmp_path: Path) -> None:
    file = tmp_path / "odd.safetensors"
    entries = (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[2],"data_offsets":[1,17]}}'
    )
    file.write_bytes(header(entries) + b"\7" + np.array([1.5, -2.0]).tobytes())
    np.testing.assert_array_equal(tf.train.load_variable(str(file), "b"), [1.5, -2.0])
