"""A user's program that `mypy --strict` accepts: `make types` checks it, and a test runs it.

Each `assert_type` says what type checkers and editors know of a result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np

import anabranch as tf

FEATURES, CLASSES, BATCH = 4, 3, 8


def examples() -> Iterator[tuple[list[float], int]]:
    random = np.random.default_rng(0)
    for _ in range(5 * BATCH):
        label = int(random.integers(CLASSES))
        yield [float(label + random.normal(scale=0.1)) for _ in range(FEATURES)], label


def input_pipeline() -> tuple[tf.Tensor, tf.Tensor]:
    dataset = tf.data.Dataset.from_generator(examples, (tf.float32, tf.int64), ([FEATURES], []))
    dataset = dataset.shuffle(40, seed=1).repeat().batch(BATCH, drop_remainder=True).prefetch(1)
    assert_type(dataset, tf.data.Dataset)
    iterator = tf.data.make_one_shot_iterator(dataset)
    features, labels = iterator.get_next()
    return features, labels


def network(features: tf.Tensor, training: tf.Tensor) -> tf.Tensor:
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE) as scope:
        assert_type(scope, tf.VariableScope)
        hidden = tf.layers.dense(features, 16, activation=tf.nn.relu, name="hidden")
        assert_type(hidden, tf.Tensor)
        hidden = tf.layers.dropout(hidden, rate=0.1, training=training)
        hidden = tf.layers.batch_normalization(hidden, training=training)
        weights = tf.get_variable("weights", [16, CLASSES], initializer=tf.glorot_uniform_initializer(seed=2))
        assert_type(weights, tf.Variable)
        bias = tf.get_variable("bias", shape=[CLASSES], initializer=tf.zeros_initializer())
        return tf.matmul(hidden, weights) + bias


def control_flow(x: tf.Tensor) -> tf.Tensor:
    scaled = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: -x)
    assert_type(scaled, tf.Tensor)

    def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, total + tf.cast(i, tf.float32)

    looped: tuple[tf.Tensor, tf.Tensor] = tf.while_loop(
        lambda i, total: i < 5, body, (tf.constant(0), tf.constant(0.0))
    )
    squares = tf.map_fn(tf.square, scaled)
    assert_type(squares, tf.Tensor)
    running = tf.scan(tf.add, scaled, initializer=tf.constant(0.0))
    assert_type(running, tf.Tensor)
    result = tf.reduce_sum(squares) + running[-1] + looped[1]
    assert_type(result, tf.Tensor)
    return result


def training_step(loss: tf.Tensor) -> tf.Operation:
    step = tf.train.get_or_create_global_step()
    assert_type(step, tf.Variable)
    rate = tf.train.exponential_decay(0.05, step, decay_steps=100, decay_rate=0.9)
    optimizer = tf.train.AdamOptimizer(rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, 5.0)
    tf.summary.scalar("norm", norm)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)


class Counter(tf.train.SessionRunHook):
    """Counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        assert_type(run_context.session, tf.Session)
        self.steps += 1


def train_in_a_session(directory: str) -> None:
    training = tf.placeholder_with_default(False, [])
    features, labels = input_pipeline()
    logits = network(features, training)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    assert_type(loss, tf.Tensor)
    hits = tf.equal(tf.argmax(logits, axis=1), labels)
    accuracy = tf.reduce_mean(tf.to_float(hits))
    train_op = training_step(loss)
    tf.summary.scalar("loss", loss)
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        assert_type(sess, tf.Session)
        sess.run(tf.global_variables_initializer())
        for _ in range(20):
            values = sess.run([loss, accuracy, train_op], feed_dict={training: True})
            assert_type(values, list[Any])
        named = sess.run({"loss": loss, "accuracy": accuracy})
        assert_type(named, dict[str, Any])
        print("trained:", bool(named["loss"] < 1.0))
        path = saver.save(sess, directory + "/model", global_step=tf.train.get_global_step())
        assert_type(path, str | None)  # None where there is nothing to save
        saver.restore(sess, path)


def train_in_a_monitored_session(directory: str) -> int:
    counter = Counter()
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(
        tf.square(weight - 3.0), global_step=tf.train.get_or_create_global_step()
    )
    hooks: list[tf.train.SessionRunHook] = [counter, tf.train.StopAtStepHook(last_step=4)]
    with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
        while not session.should_stop():
            session.run(train_op)
    return counter.steps


def raw_operations(x: tf.Tensor) -> tf.Tensor:
    product = tf.raw_ops.MatMul(a=x, b=[[1.0], [2.0]], transpose_a=False, name="product")
    assert_type(product, tf.Tensor)
    top = tf.raw_ops.TopKV2(input=[3.0, 5.0], k=1, index_type=tf.int64)
    assert_type(top.indices, tf.Tensor)
    assert_type(tf.raw_ops.Split(axis=0, value=product, num_split=2), list[tf.Tensor])
    with tf.control_dependencies([tf.raw_ops.NoOp()]):
        cast = tf.raw_ops.Cast(x=top.indices, DstT="float32")
    return tf.raw_ops.AddN(inputs=[tf.raw_ops.Sum(input=product, axis=[0, 1]), tf.raw_ops.Sum(input=cast, axis=0)])


def what_type_checkers_refuse(x: tf.Tensor) -> None:
    tf.raw_ops.MatMul(x, x)  # type: ignore[call-arg]
    tf.raw_ops.MatMul(a=x)  # type: ignore[call-arg]
    tf.raw_ops.MatMul(a=x, b=x, transpose_a="yes")  # type: ignore[arg-type]
    tf.raw_ops.MatMull(a=x, b=x)  # type: ignore[attr-defined]
    tf.raw_ops.AddN(inputs=3)  # type: ignore[arg-type]
    tf.raw_ops.TopKV2(input=x, k=1).keys  # type: ignore[attr-defined]
    tf.placeholder(3.5)  # type: ignore[arg-type]
    tf.get_variable("weights", shape="large")  # type: ignore[arg-type]
    tf.nn.dynamic_rnn(x, x)  # type: ignore[arg-type]
    tf.train.AdamOptimizer().minimize(x, global_step=1)  # type: ignore[arg-type]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            train_in_a_session(directory)
        with tf.Graph().as_default():
            print("steps:", train_in_a_monitored_session(directory + "/monitored"))
        with tf.Graph().as_default(), tf.Session() as sess:
            print("control flow:", float(sess.run(control_flow(tf.constant([1.0, 2.0])))))
        with tf.Graph().as_default(), tf.Session() as sess:
            print("raw operations:", float(sess.run(raw_operations(tf.constant([[1.0, 2.0], [3.0, 4.0]])))))


if __name__ == "__main__":
    main()
