"""Saves checkpoints with a genuine TensorFlow, for the tests of `anabranch.io.tensor_bundle`.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_checkpoint_fixture.py

It writes into `tests/fixtures/tensor_bundle/`: the checkpoint `variables` (all dtypes, a partitioned variable,
strings), the checkpoint `sharded` (two data files), and for each an `.npz` with what it holds, strings as JSON text.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
FIXTURES = Path(__file__).parents[1] / "fixtures" / "tensor_bundle"
NUMERIC = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16")
NUMERIC += ("uint32", "uint64", "complex64", "complex128", "bool")


def variables() -> dict[str, Any]:
    """Variables of all dtypes in the default graph, by the names under which they are saved."""
    random = np.random.default_rng(0)
    made = {}
    for name in NUMERIC:
        dtype = tf.as_dtype(name)
        value = (random.standard_normal((3, 4)) * 50).astype(dtype.as_numpy_dtype)
        made[f"dtypes/{name}"] = tf1.Variable(value, name=f"dtypes/{name}", use_resource=True)
    for name, text in (("words", [[b"one", b"", b"\0\xff"], [b"x" * 300, b"five", b"six"]]), ("scalar", b"alone")):
        made[f"strings/{name}"] = tf1.Variable(tf.constant(text), name=f"strings/{name}", use_resource=True)
    made["global_step"] = tf1.Variable(np.int64(1234), name="global_step", use_resource=True)
    made["empty"] = tf1.Variable(np.zeros((0, 3), np.float32), name="empty", use_resource=True)
    with tf1.variable_scope("", partitioner=tf1.fixed_size_partitioner(3, axis=1)):
        made["partitioned"] = tf1.get_variable(
            "partitioned", initializer=tf.constant(random.standard_normal((5, 300)).astype(np.float32))
        )
    return made


def save(name: str, made: dict[str, Any], config: Any = None, **saver_options: Any) -> None:
    """Saves the default graph's variables as checkpoint `name`, and what they hold as `name.npz`."""
    with tf1.Session(config=config) as session:
        session.run(tf1.global_variables_initializer())
        prefix = str(FIXTURES / name)
        saver = tf1.train.Saver(made, **saver_options)
        saver.save(session, prefix, write_meta_graph=False, write_state=False)
        values = {key: session.run(tf.convert_to_tensor(variable)) for key, variable in made.items()}
    arrays = {}
    for key, value in values.items():
        array = np.asarray(value, object if isinstance(value, bytes) else None)
        if array.dtype == object:
            text = np.array(np.frompyfunc(lambda item: item.decode("latin-1"), 1, 1)(array), object)
            array = np.array(json.dumps(text.tolist()))
        elif array.dtype.kind == "V":  # bfloat16, which an npz file does not know
            array = array.astype(np.float32)
        arrays[key] = array
    np.savez_compressed(FIXTURES / f"{name}.npz", **arrays)


def main() -> None:
    shutil.rmtree(FIXTURES, ignore_errors=True)
    FIXTURES.mkdir(parents=True)
    with tf.Graph().as_default():
        save("variables", variables())
    with tf.Graph().as_default():
        made = {}
        for task in range(2):
            with tf.device(f"/cpu:{task}"):
                made[f"v{task}"] = tf1.Variable(np.arange(5, dtype=np.float32) + task, name=f"v{task}")
        save("sharded", made, tf1.ConfigProto(device_count={"CPU": 2}), sharded=True)


if __name__ == "__main__":
    main()
