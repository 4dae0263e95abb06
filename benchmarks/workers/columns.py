"""Worker: a training step of a wide and deep model over feature columns: eight columns of strings, hashed to ids.

The strings go into a linear model, which Ftrl trains, and as embeddings, with 13 numbers, into a small network, which
Adagrad trains. Everything is fed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from typing import Any

import numpy as np
from timing import seconds_per_call

COLUMNS = 8
BUCKETS = 1000
WORDS = 5000
NUMBERS = 13
BATCHES = (32, 512)


def main(tf: Any) -> dict[str, float]:
    return {f"batch {batch}": _step_time(tf, batch) for batch in BATCHES}


def _step_time(tf: Any, batch: int) -> float:
    with tf.Graph().as_default(), tf.Session() as session:
        features = {f"word{i}": tf.placeholder(tf.string, [None]) for i in range(COLUMNS)}
        features["numbers"] = tf.placeholder(tf.float32, [None, NUMBERS])
        labels = tf.placeholder(tf.float32, [None, 1])
        train = _train(tf, features, labels)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        feeds = itertools.cycle(_feeds(features, labels, batch))
        return seconds_per_call(lambda: session.run(train, next(feeds)), 200)


def _train(tf: Any, features: dict[str, Any], labels: Any) -> list[Any]:
    fc = tf.feature_column
    words = [fc.categorical_column_with_hash_bucket(f"word{i}", BUCKETS) for i in range(COLUMNS)]
    wide = fc.linear_model(features, words)
    embedded = [fc.embedding_column(column, 8) for column in words]
    deep = fc.input_layer(features, [fc.numeric_column("numbers", [NUMBERS]), *embedded])
    for units in (64, 32):
        deep = tf.layers.dense(deep, units, tf.nn.relu)
    logits = wide + tf.layers.dense(deep, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    linear = [v for v in tf.trainable_variables() if v.name.startswith("linear_model")]
    others = [v for v in tf.trainable_variables() if not v.name.startswith("linear_model")]
    return [
        loss,
        tf.train.FtrlOptimizer(0.1).minimize(loss, var_list=linear),
        tf.train.AdagradOptimizer(0.05).minimize(loss, var_list=others),
    ]


def _feeds(features: dict[str, Any], labels: Any, batch: int) -> list[dict[Any, Any]]:
    rng = np.random.default_rng(0)
    words = np.array([f"v{i}" for i in range(WORDS)], object)
    return [
        {
            **{features[f"word{i}"]: words[rng.integers(0, WORDS, batch)] for i in range(COLUMNS)},
            features["numbers"]: rng.normal(size=(batch, NUMBERS)).astype(np.float32),
            labels: rng.integers(0, 2, (batch, 1)).astype(np.float32),
        }
        for _ in range(20)
    ]


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"  # `tf.layers` needs the older Keras
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf)))
