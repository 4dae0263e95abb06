"""Writes SavedModels with a genuine TensorFlow, for the tests of `anabranch.serving`.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_saved_model_fixtures.py

It writes into `tests/fixtures/saved_model/` the model `builder` (reference and resource variables, a table from an
asset, a main operation, two meta graphs). Fed with the words "b", "z", "a", it computes what `outputs.json` holds.
And the model `functions`, as TensorFlow 2 saves a `tf.Module`: its signatures call functions, which call others, change
a variable, loop and branch; restoring and initializing are functions, too. `functions.json` has the inputs and outputs
of two calls one after the other, and of a table.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
FIXTURES = Path(__file__).parents[1] / "fixtures" / "saved_model"
WORDS = [b"b", b"z", b"a"]
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def build(name: str, vocabulary: str) -> list[list[float]]:
    """Writes the model; returns its outputs for WORDS."""
    builder = tf1.saved_model.Builder(str(FIXTURES / name))
    with tf.Graph().as_default(), tf1.Session() as session:
        words = tf1.placeholder(tf.string, [None], name="words")
        initializer = tf1.lookup.TextFileInitializer(
            vocabulary, tf.string, tf1.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf1.lookup.TextFileIndex.LINE_NUMBER
        )
        table = tf1.lookup.StaticHashTable(initializer, 3)
        rows = tf1.get_variable("rows", initializer=ROWS, use_resource=False)
        scale = tf1.get_variable("scale", initializer=0.5, use_resource=True)
        found = tf.multiply(tf.gather(rows, table.lookup(words)), scale, name="found")
        signature = tf1.saved_model.predict_signature_def({"words": words}, {"found": found})
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf1.tables_initializer(),
            strip_default_attrs=True,
        )
        outputs: list[list[float]] = session.run(found, {words: WORDS}).tolist()
    with tf.Graph().as_default():
        tf1.get_variable("scale", initializer=0.0, use_resource=True)
        builder.add_meta_graph(["train", "gpu"], strip_default_attrs=True)
    builder.save()
    return outputs


class Model(tf.Module):
    """What `functions` computes with."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        self.b = tf.Variable([0.5, -0.5])
        self.calls = tf.Variable(0, dtype=tf.int64)
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
        self.table = tf.lookup.StaticHashTable(pairs, -1.0)

    @tf.function
    def layer(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ self.w + self.b)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.calls.assign_add(1)
        y = self.layer(x)
        for _ in tf.range(3):
            y = self.layer(y) * 0.1
        z = tf.cond(tf.reduce_sum(y) > 1.0, lambda: self.layer(y), lambda: -y)
        return {"y": y, "z": z, "calls": self.calls.read_value(), "x": x}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="keys")])
    def look_up(self, keys: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"values": self.table.lookup(keys)}


def functions(folder: str) -> dict[str, object]:
    """Writes the model; returns its inputs and outputs."""
    model = Model()
    tf.saved_model.save(model, folder, signatures={"serving_default": model.serve, "look_up": model.look_up})
    loaded = tf.saved_model.load(folder).signatures
    inputs = [[[1.0, -1.0], [0.2, 0.3]], [[4.0, 5.0]]]
    served = [loaded["serving_default"](x=tf.constant(x)) for x in inputs]
    values = loaded["look_up"](keys=tf.constant(["a", "c"]))["values"]
    return {
        "inputs": inputs,
        "outputs": [{name: value.numpy().tolist() for name, value in one.items()} for one in served],
        "keys": ["a", "c"],
        "values": values.numpy().tolist(),
    }


def main() -> None:
    shutil.rmtree(FIXTURES, ignore_errors=True)
    FIXTURES.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = os.path.join(folder, "vocabulary.txt")
        Path(vocabulary).write_text("a\nb\nc\n")
        outputs = build("builder", vocabulary)
    (FIXTURES / "outputs.json").write_text(json.dumps(outputs) + "\n")
    (FIXTURES / "functions.json").write_text(json.dumps(functions(str(FIXTURES / "functions"))) + "\n")


if __name__ == "__main__":
    main()
