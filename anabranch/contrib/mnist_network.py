"""`tensorflow.examples.tutorials.mnist.mnist`: the network of two hidden layers that tutorials train on MNIST."""

from __future__ import annotations

import math
from typing import Final

import anabranch as tf

NUM_CLASSES: Final = 10
IMAGE_SIZE: Final = 28
IMAGE_PIXELS: Final = IMAGE_SIZE * IMAGE_SIZE


def inference(images: tf.Tensor, hidden1_units: int, hidden2_units: int) -> tf.Tensor:
    """The network up to its output.

    Args:
        images: float32, [batch, 784].
        hidden1_units, hidden2_units: how wide the hidden layers are.

    Returns:
        Logits, float32, [batch, 10].
    """
    hidden1 = tf.nn.relu(_linear("hidden1", images, IMAGE_PIXELS, hidden1_units))
    hidden2 = tf.nn.relu(_linear("hidden2", hidden1, hidden1_units, hidden2_units))
    return _linear("softmax_linear", hidden2, hidden2_units, NUM_CLASSES)


def _linear(scope: str, inputs: tf.Tensor, width: int, units: int) -> tf.Tensor:
    with tf.name_scope(scope):
        weights = tf.Variable(tf.truncated_normal([width, units], stddev=1.0 / math.sqrt(width)), name="weights")
        biases = tf.Variable(tf.zeros([units]), name="biases")
        return tf.matmul(inputs, weights) + biases


def loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The mean cross entropy of logits [batch, 10] and labels, int32 or int64, [batch]."""
    labels = tf.cast(labels, tf.int64)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
    mean: tf.Tensor = tf.reduce_mean(each, name="xentropy_mean")
    return mean


def training(loss: tf.Tensor, learning_rate: float) -> tf.Operation:
    """A step of gradient descent, which counts in the variable `global_step`; a summary of the loss."""
    tf.summary.scalar("loss", loss)
    step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=step)


def evaluation(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """How many of a batch are right: int32, a scalar."""
    right: tf.Tensor = tf.nn.in_top_k(logits, labels, 1)
    count: tf.Tensor = tf.reduce_sum(tf.cast(right, tf.int32))
    return count
