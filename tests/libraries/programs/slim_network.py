"""Trains a network of tf-slim's layers on made images, with its loop of training; restores it and predicts."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_slim as slim

tf.logging.set_verbosity(tf.logging.WARN)
rng = np.random.RandomState(2)
classes = rng.randint(0, 2, size=256).astype("int64")
images = rng.normal(scale=0.3, size=(256, 12, 12, 1)).astype("float32")
for at, kind in enumerate(classes):  # a bar that stands, or one that lies
    r, c = rng.randint(0, 6, size=2)
    height, width = ((6, 2), (2, 6))[kind]
    images[at, r : r + height, c : c + width] += 2.0


def network(x: tf.Tensor, is_training: bool) -> tf.Tensor:
    """The logits of two classes (batch, 2), for images (batch, 12, 12, 1)."""
    with (
        slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-4)),
        slim.arg_scope([slim.batch_norm], is_training=is_training, decay=0.8),
    ):
        x = slim.repeat(x, 2, slim.conv2d, 8, [3, 3], normalizer_fn=slim.batch_norm, scope="conv")
        x = slim.max_pool2d(x, [2, 2], scope="pool")
        x = slim.dropout(slim.flatten(x), 0.9, is_training=is_training)
        return slim.fully_connected(x, 2, activation_fn=None, scope="logits")


with tf.Graph().as_default():
    tf.set_random_seed(4)
    data = tf.data.Dataset.from_tensor_slices((images, classes)).shuffle(256, seed=1).repeat().batch(32)
    batch, labels = data.make_one_shot_iterator().get_next()
    tf.losses.sparse_softmax_cross_entropy(labels, network(batch, is_training=True))
    loss = tf.losses.get_total_loss()
    train_op = slim.learning.create_train_op(loss, tf.train.AdamOptimizer(0.01), clip_gradient_norm=5.0)
    slim.model_analyzer.analyze_vars(slim.get_model_variables())
    last = slim.learning.train(train_op, "logs", number_of_steps=60, log_every_n_steps=20, save_summaries_secs=600)
    print("loss of the last step", last)
    assert last < 0.4

with tf.Graph().as_default(), tf.Session() as session:
    logits = network(tf.constant(images), is_training=False)
    restore = slim.assign_from_checkpoint_fn(tf.train.latest_checkpoint("logs"), slim.get_variables_to_restore())
    restore(session)
    right = session.run(logits).argmax(axis=1) == classes
    print("accuracy", right.mean())
    assert right.mean() > 0.9

with tf.Graph().as_default():
    predictions = tf.argmax(network(tf.constant(images), is_training=False), axis=1)
    tf.train.create_global_step()
    value, update = slim.metrics.streaming_accuracy(predictions, tf.constant(classes))
    (accuracy,) = slim.evaluation.evaluate_once(
        "", tf.train.latest_checkpoint("logs"), "logs/eval", eval_op=[update], final_op=[value]
    )
    assert np.isclose(accuracy, right.mean())
