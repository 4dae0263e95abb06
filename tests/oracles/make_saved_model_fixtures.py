"""Writes SavedModels with a genuine TensorFlow, for the tests of `anabranch.serving`.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_saved_model_fixtures.py

It writes into `tests/fixtures/saved_model/` the model `builder` (reference and resource variables, a table from an
asset, a main operation, two meta graphs). Fed with the words "b", "z", "a", it computes what `outputs.json` holds.
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


def main() -> None:
    shutil.rmtree(FIXTURES, ignore_errors=True)
    FIXTURES.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = os.path.join(folder, "vocabulary.txt")
        Path(vocabulary).write_text("a\nb\nc\n")
        outputs = build("builder", vocabulary)
    (FIXTURES / "outputs.json").write_text(json.dumps(outputs) + "\n")


if __name__ == "__main__":
    main()
