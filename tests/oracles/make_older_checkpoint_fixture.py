"""Writes tests/fixtures/tensorflow/older_checkpoint/*: checkpoints in TensorFlow's format of before 2017.

Run in an environment that has TensorFlow. With a folder as its argument it reads instead what our `Save` wrote there
(`ours`), and prints what it finds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "older_checkpoint"


def tensors() -> dict[str, Any]:
    return {
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


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    saved = tensors()
    raw = tf.raw_ops
    part = np.arange(4, dtype=np.float32).reshape(2, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        names = np.array(list(saved), object)
        session.run(raw.Save(filename=str(FOLDER / "whole"), tensor_names=names, data=list(saved.values())))
        for shard, (specs, parts) in enumerate(
            [(["6 2 0,2:-", "6 2 2,2:-"], [part, part + 10]), (["6 2 4,2:-"], [part + 20])]
        ):
            path = str(FOLDER / f"shard-{shard:05d}-of-00002")
            session.run(
                raw.SaveSlices(filename=path, tensor_names=["v"] * len(specs), shapes_and_slices=specs, data=parts)
            )


def check(folder: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        for name, value in tensors().items():
            read = tf.raw_ops.Restore(file_pattern=f"{folder}/ours", tensor_name=name, dt=tf.as_dtype(value.dtype))
            np.testing.assert_array_equal(session.run(read), value, err_msg=name, strict=True)
        rows = tf.raw_ops.RestoreSlice(
            file_pattern=f"{folder}/our-*", tensor_name="v", shape_and_slice="6 2 1,4:-", dt=tf.float32
        )
        print(session.run(rows).tolist())


if __name__ == "__main__":
    tf.disable_v2_behavior()
    write() if len(sys.argv) == 1 else check(sys.argv[1])
