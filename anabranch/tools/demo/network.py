"""The graph: two convolutions, one hidden layer, Adam; summaries of everything worth looking at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anabranch as tf
from anabranch.tools.demo.digits import CLASSES, SIDE


@dataclass(frozen=True)
class Network:
    """Names for the tensors and operations of the graph that the demonstration runs."""

    images: Any
    labels: Any
    training: Any
    loss: Any
    accuracy: Any
    correct: Any
    predictions: Any
    probabilities: Any
    train: Any
    global_step: Any
    train_summaries: Any
    test_summaries: Any


def build_network(learning_rate: float = 2e-3, decay_steps: int = 300) -> Network:
    """Builds training and evaluation into the default graph.

    images: float32 [batch, 8, 8, 1]; labels: int32 [batch]; training: bool [], fed False for evaluation.
    """
    images = tf.placeholder(tf.float32, [None, SIDE, SIDE, 1], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    training = tf.placeholder_with_default(False, [], name="training")
    logits = _logits(images, training)
    with tf.name_scope("loss"):
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    with tf.name_scope("evaluation"):
        predictions = tf.argmax(logits, 1, output_type=tf.int32, name="predictions")
        hits = tf.equal(predictions, labels)
        accuracy = tf.reduce_mean(tf.cast(hits, tf.float32))
        correct = tf.reduce_sum(tf.cast(hits, tf.int32))
        probabilities = tf.nn.softmax(logits, name="probabilities")
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(learning_rate, global_step, decay_steps, 0.7, staircase=True)
    train = tf.train.AdamOptimizer(rate).minimize(loss, global_step=global_step)
    curves = [tf.summary.scalar("loss", loss), tf.summary.scalar("accuracy", accuracy)]
    weights = [tf.summary.histogram(v.op.name, v) for v in tf.trainable_variables()]
    train_summaries = tf.summary.merge([*curves, *weights, tf.summary.scalar("learning_rate", rate)])
    test_summaries = tf.summary.merge([*curves, tf.summary.image("digits", images, max_outputs=4)])
    return Network(
        images,
        labels,
        training,
        loss,
        accuracy,
        correct,
        predictions,
        probabilities,
        train,
        global_step,
        train_summaries,
        test_summaries,
    )


def _logits(images: tf.Tensor, training: tf.Tensor) -> Any:
    with tf.variable_scope("network"):
        hidden = tf.layers.conv2d(images, 32, 3, padding="same", activation=tf.nn.relu, name="convolution_1")
        hidden = tf.layers.conv2d(hidden, 64, 3, padding="same", activation=tf.nn.relu, name="convolution_2")
        hidden = tf.layers.max_pooling2d(hidden, 2, 2, name="pool")
        hidden = tf.layers.flatten(hidden)
        hidden = tf.layers.dense(hidden, 128, activation=tf.nn.relu, name="dense")
        hidden = tf.layers.dropout(hidden, 0.4, training=training)
        return tf.layers.dense(hidden, CLASSES, name="logits")
