"""Transformations of data sets that left `tf.data`, and losses over some of many classes, beside NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import sampled_losses

RNG = np.random.default_rng(8)
data = tf.contrib.data


def elements(dataset: Any) -> list[Any]:
    following = dataset.make_one_shot_iterator().get_next()
    found = []
    with tf.Session() as sess:
        while True:
            try:
                found.append(sess.run(following))
            except tf.errors.OutOfRangeError:
                return found


@pytest.mark.parametrize(("size", "shift", "stride"), [(2, 1, 1), (3, 2, 1), (2, 3, 2), (4, 1, 3)])
def test_windows(size: int, shift: int, stride: int) -> None:
    given = tf.data.Dataset.range(9).map(lambda i: (i, {"twice": 2 * i}))
    found = elements(given.apply(data.sliding_window_batch(size, window_shift=shift, window_stride=stride)))
    reach = (size - 1) * stride
    wanted = [[start + stride * i for i in range(size)] for start in range(0, 9 - reach, shift)]
    assert [window.tolist() for window, _ in found] == wanted
    assert [window["twice"].tolist() for _, window in found] == (2 * np.array(wanted)).tolist()


def test_an_older_name_of_the_shift() -> None:
    found = elements(tf.data.Dataset.range(4).apply(data.sliding_window_batch(2, stride=2)))
    assert [window.tolist() for window in found] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="both"):
        data.sliding_window_batch(2, stride=2, window_shift=1)


def test_elements_of_several_data_sets() -> None:
    found = elements(tf.data.Dataset.range(3).apply(data.sloppy_interleave(tf.data.Dataset.range, 2)))
    assert sorted(found) == [0, 0, 1]


def test_shapes_of_elements() -> None:
    def ones(i: Any) -> Any:
        return tf.ones([2, i]), tf.zeros([3])

    def shapes(columns: int | None, size: int) -> Any:
        return tf.TensorShape([2, columns]), tf.TensorShape([size])

    checked = tf.data.Dataset.range(1, 4).map(ones).apply(data.assert_element_shape(shapes(None, 3)))
    assert [shape.as_list() for shape in checked.output_shapes] == [[2, None], [3]]
    assert [first.shape for first, _ in elements(checked)] == [(2, 1), (2, 2), (2, 3)]
    other = tf.data.Dataset.range(1, 4).map(ones).apply(data.assert_element_shape(shapes(1, 3)))
    with pytest.raises(tf.errors.InvalidArgumentError):
        elements(other)
    with pytest.raises(ValueError):
        tf.data.Dataset.range(1, 4).map(ones).apply(data.assert_element_shape(shapes(None, 4)))


def test_all_elements_together() -> None:
    reducer = tf.contrib.data.Reducer(
        lambda _: (np.int64(0), np.int64(0)),
        lambda s, x: (s[0] + x, s[1] + 1),
        lambda a, b: tf.cast(a, tf.float32) / tf.cast(b, tf.float32),
    )
    mean = data.reduce_dataset(tf.data.Dataset.range(10), reducer)
    with tf.Session() as sess:
        assert sess.run(mean) == pytest.approx(4.5)
    with pytest.raises(TypeError, match=r"must be a `tf.data.Dataset`"):
        data.reduce_dataset([1, 2], reducer)


def test_parsed_batches_of_files(tmp_path: Path) -> None:
    path = str(tmp_path / "examples")
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(4):
            feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    spec = {"x": tf.FixedLenFeature([], tf.int64)}
    batch = data.read_batch_features(path, 2, spec, randomize_input=False, num_epochs=1)
    with tf.Session() as sess:
        assert [sess.run(batch)["x"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]


# ---------------------------------------------------------------------- some of many classes
def softmax_loss(logits: Any, labels: Any) -> Any:
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]


def sampled(*classes: int) -> Any:
    """What a sampler gives that drew these classes, each expected as often as not."""
    return np.array(classes), np.full([3, 1], 0.5, np.float32), np.full(len(classes), 0.5, np.float32)


def test_a_loss_over_drawn_classes() -> None:
    weights, biases, x = (RNG.normal(size=shape).astype(np.float32) for shape in ([6, 4], [6], [3, 4]))
    labels = np.array([[0], [5], [2]])
    loss = tf.contrib.nn.sampled_sparse_softmax_loss(
        weights, biases, labels, x, 2, 6, sampled_values=sampled(1, 4), remove_accidental_hits=False
    )
    with tf.Session() as sess:
        found = sess.run(loss)
    logits = (x @ weights.T + biases) - np.log(0.5)
    seen = np.stack([logits[row, [int(labels[row, 0]), 1, 4]] for row in range(3)])
    np.testing.assert_allclose(found, softmax_loss(seen, [0, 0, 0]), rtol=1e-5)


def test_derivatives_in_one_direction() -> None:
    x, w = tf.constant([0.3, -1.2, 2.0]), tf.constant(0.7)
    outputs = [tf.sin(x * w), tf.reduce_sum(x**2) * w, tf.constant(1.0) * 2]
    direction = [np.float32([1, -2, 0.5]), np.float32(3)]
    along = sampled_losses.fwd_gradients(outputs[:2], [x, w], direction)
    of_ones = sampled_losses.fwd_gradients(outputs[:1], [x])
    values = [np.array([0.3, -1.2, 2.0]), 0.7]
    with tf.Session() as sess:
        first, second, ones = sess.run([*along, *of_ones])
        # the derivatives do not need the gradients from which they are made
        assert sess.run(sampled_losses.fwd_gradients(outputs[:1], [x], assert_unused=True))
    cosine = np.cos(values[0] * values[1])
    np.testing.assert_allclose(first, cosine * (direction[0] * values[1] + values[0] * direction[1]), rtol=1e-5)
    wanted = 2 * (values[0] @ direction[0]) * values[1] + values[0] @ values[0] * direction[1]
    np.testing.assert_allclose(second, wanted, rtol=1e-5)
    np.testing.assert_allclose(ones, cosine * values[1], rtol=1e-5)
    assert sampled_losses.fwd_gradients(outputs[2:], [x]) == [None]


def test_a_loss_over_the_nearest_of_drawn_classes() -> None:
    weights, biases, x = (RNG.normal(size=shape).astype(np.float32) for shape in ([6, 4], [6], [3, 4]))
    labels, drawn = np.array([[0], [5], [2]]), np.array([1, 3, 4, 0])
    loss = tf.contrib.nn.rank_sampled_softmax_loss(
        weights, biases, labels, x, 4, 2, 6, 1, sampled(*drawn), 0.5, False, "div"
    )
    with tf.Session() as sess:
        found = sess.run(loss)
    near = np.log(np.exp((weights[drawn] @ x.T + biases[drawn, None]) / 0.5).sum(1))
    kept = drawn[np.argsort(-near)[:2]]
    logits = (x @ weights.T + biases) - np.log(0.5)
    seen = np.stack([logits[row, [int(labels[row, 0]), *kept]] for row in range(3)])
    np.testing.assert_allclose(found, softmax_loss(seen, [0, 0, 0]), rtol=1e-5)
    for wrong, said in (((4, 4, 6), "less than"), ((7, 2, 6), "greater than")):
        with pytest.raises(ValueError, match=said):
            tf.contrib.nn.rank_sampled_softmax_loss(weights, biases, labels, x, *wrong, 1, None, 1.0, False, "div")
    with pytest.raises(ValueError, match="partition_strategy"):
        tf.contrib.nn.rank_sampled_softmax_loss(weights, biases, labels, x, 4, 2, 6, 1, None, 1.0, False, "all")
