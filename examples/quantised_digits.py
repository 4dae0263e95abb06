"""A network for scikit-learn's digits, trained in floats, frozen, and rewritten for numbers of 8 bits (§5).

    python examples/quantised_digits.py

The ranges of the layers are measured with a few hundred of the training images. What it prints: how many of the
held-out digits either graph gets right, how often they agree, and how large they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.tools.demo.digits import CLASSES, SIDE, Digits, batches, load_digits

BATCH, STEPS = 64, 400


def network(images: Any) -> Any:
    """Two convolutions with pooling, and two dense layers; returns logits."""
    hidden = tf.layers.conv2d(images, 16, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.conv2d(hidden, 32, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.max_pooling2d(hidden, 2, 2)
    hidden = tf.layers.dense(tf.reshape(hidden, [-1, SIDE * SIDE * 8]), 64, activation=tf.nn.relu)
    return tf.layers.dense(hidden, CLASSES)


def trained(digits: Digits) -> Any:
    """The frozen graph of a trained network: "images" to "logits"."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        images = tf.placeholder(tf.float32, [None, SIDE, SIDE, 1], name="images")
        labels = tf.placeholder(tf.int32, [None])
        logits = tf.identity(network(images), name="logits")
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        update = tf.train.AdamOptimizer(2e-3).minimize(loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _, (x, y) in zip(range(STEPS), batches(digits, BATCH, np.random.default_rng(0)), strict=False):
                session.run(update, {images: x, labels: y})
            return tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["logits"])


def classes_of(definition: Any, images: Any) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        (logits,) = tf.import_graph_def(definition, return_elements=["logits:0"], name="")
        return session.run(logits, {"images:0": images}).argmax(1)


def main() -> None:
    digits = load_digits()
    floats = trained(digits)
    samples = [{"images:0": digits.train_images[start : start + BATCH]} for start in range(0, 512, BATCH)]
    integers = tf.graph_util.quantize_graph(floats, ["logits"], samples)
    found = [classes_of(definition, digits.test_images) for definition in (floats, integers)]
    for name, definition, classes in zip(("float32", "int8"), (floats, integers), found, strict=True):
        right = (classes == digits.test_labels).mean()
        print(f"{name}: {right:.2%} right, {definition.ByteSize()} bytes")
    print(f"agreed: {(found[0] == found[1]).mean():.2%}")


if __name__ == "__main__":
    main()
