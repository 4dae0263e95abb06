"""Small modules of `tf.contrib`, beside NumPy: clusters in a graph, pictures between pixels, models as functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(2)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("distance", ["squared_euclidean", "cosine"])
@pytest.mark.parametrize("use_mini_batch", [False, True])
def test_clusters_in_a_graph(distance: str, use_mini_batch: bool) -> None:
    groups = np.array([[0.0, 8.0], [8.0, 0.0]])
    points = np.concatenate([group + RNG.normal(size=(20, 2)) * 0.3 for group in groups]).astype(np.float32)
    given = tf.placeholder(tf.float32, [None, 2])
    model = tf.contrib.factorization.KMeans(
        given, 2, "kmeans_plus_plus", distance_metric=distance, use_mini_batch=use_mini_batch
    )
    all_scores, cluster_idx, scores, is_initialized, init_op, training_op = model.training_graph()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(init_op, {given: points})
        assert sess.run(is_initialized)
        for _ in range(5):
            sess.run(training_op, {given: points})
        distances, found, nearest = sess.run([all_scores[0], cluster_idx[0], scores[0]], {given: points})
    assert {*found[:20]} | {*found[20:]} == {0, 1}
    assert len({*found[:20]}) == len({*found[20:]}) == 1
    np.testing.assert_allclose(nearest, distances.min(1), atol=1e-3)
    assert nearest.mean() < (1.0 if distance == "squared_euclidean" else 0.01)


def test_clusters_need_a_known_number_of_features() -> None:
    with pytest.raises(ValueError, match="a known number of features"):
        tf.contrib.factorization.KMeans(tf.placeholder(tf.float32), 2).training_graph()


def test_clusters_by_an_estimator() -> None:
    points = np.concatenate([np.zeros([5, 2]), np.ones([5, 2])]).astype(np.float32)
    model = tf.contrib.factorization.KMeansClustering(2, random_seed=1, use_mini_batch=False)
    model.train(lambda: tf.train.limit_epochs(tf.constant(points), 4))
    assert sorted(map(tuple, np.round(model.cluster_centers()).tolist())) == [(0.0, 0.0), (1.0, 1.0)]


def between_pixels(data: Any, x: float, y: float) -> Any:
    """The definition: four pixels, those outside are zero."""
    total = np.zeros(data.shape[-1])
    for column in (int(np.floor(x)), int(np.floor(x)) + 1):
        for row in (int(np.floor(y)), int(np.floor(y)) + 1):
            if 0 <= column < data.shape[1] and 0 <= row < data.shape[0]:
                total += (1 - abs(x - column)) * (1 - abs(y - row)) * data[row, column]
    return total


def test_pictures_between_pixels() -> None:
    data = RNG.normal(size=(2, 4, 5, 3))
    warp = RNG.uniform(-1.5, 5.5, size=(2, 6, 2))
    pictures, places = tf.constant(data), tf.constant(warp)
    found = tf.contrib.resampler.resampler(pictures, places)
    assert found.shape == [2, 6, 3]
    with tf.Session() as sess:
        expected = [[between_pixels(data[i], x, y) for x, y in warp[i]] for i in range(2)]
        np.testing.assert_allclose(sess.run(found), expected, atol=1e-12)
        for tensor, value in ((pictures, data), (places, warp)):
            error = tf.test.compute_gradient_error(tensor, value.shape, found, [2, 6, 3], x_init_value=value)
            assert error < 1e-4


def test_a_saved_model_as_a_function(tmp_path: Path) -> None:
    folder = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None])
        factor = tf.get_variable("factor", initializer=3.0)
        sess.run(factor.initializer)
        tf.saved_model.simple_save(sess, folder, {"x": x}, {"y": factor * x})
    predict = tf.contrib.predictor.from_saved_model(folder)
    assert predict({"x": [1.0, 2.0]})["y"].tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="unexpected keys"):
        predict({"z": [1.0]})
    with pytest.raises(ValueError, match=r"Available signatures are \['serving_default'\]"):
        tf.contrib.predictor.from_saved_model(folder, "other")
    with pytest.raises(ValueError, match="specify one of"):
        tf.contrib.predictor.from_saved_model(folder, "a", input_names={})
    own = tf.contrib.predictor.from_saved_model(
        folder,
        input_names={"in": predict.feed_tensors["x"].name},
        output_names={"out": predict.fetch_tensors["y"].name},
    )
    assert own({"in": [4.0]})["out"].tolist() == [12.0]
    assert "feed tensors" in repr(own)


def test_a_trained_model_as_a_function(tmp_path: Path) -> None:
    model = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], str(tmp_path))
    model.train(lambda: ({"x": tf.constant([[1.0]])}, tf.constant([[1.0]])), steps=1)
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 1])})
    predict = tf.contrib.predictor.from_estimator(model, receiver, "predict")
    (said,) = model.predict(lambda: tf.data.Dataset.from_tensors({"x": [[2.0]]}))
    assert predict({"x": [[2.0]]})["predictions"][0] == pytest.approx(said["predictions"])


def test_heads_and_hooks_by_their_former_names() -> None:
    head = tf.contrib.estimator.multi_class_head(3)
    assert head.logits_dimension == 3
    assert tf.contrib.estimator.stop_if_no_decrease_hook is tf.estimator.experimental.stop_if_no_decrease_hook


@pytest.mark.parametrize("skip_connection", [False, True])
def test_a_cell_of_sequences_with_channels(skip_connection: bool) -> None:
    inputs = RNG.normal(size=(2, 3, 5, 2)).astype(np.float32)  # [batch, time, length, channels]
    cell = tf.contrib.rnn.Conv1DLSTMCell(
        input_shape=[5, 2], output_channels=3, kernel_shape=[1], skip_connection=skip_connection
    )
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float32)
    variables = tf.trainable_variables()
    assert [v.op.name for v in variables] == ["rnn/conv_1d_lstm_cell/kernel", "rnn/conv_1d_lstm_cell/biases"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(variables[1].assign(np.linspace(-1, 1, 12)))
        found, last, (kernel, bias) = sess.run([outputs, state, variables])
    c = h = np.zeros([2, 5, 3])
    for t in range(3):  # with a kernel of one element, each place is an LSTM of its own
        i, j, f, o = np.split(np.concatenate([inputs[:, t], h], -1) @ kernel[0] + bias, 4, -1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        shown = np.concatenate([h, inputs[:, t]], -1) if skip_connection else h
        np.testing.assert_allclose(found[:, t], shown, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last.c, c, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "sizes"), [("Conv2DLSTMCell", [4, 6]), ("Conv3DLSTMCell", [3, 4, 5])])
def test_cells_of_pictures(kind: str, sizes: list[int]) -> None:
    cell = getattr(tf.contrib.rnn, kind)(
        input_shape=[*sizes, 2], output_channels=3, kernel_shape=[3] * len(sizes), use_bias=False
    )
    x = tf.constant(RNG.normal(size=(2, *sizes, 2)), tf.float32)
    output, state = cell(x, cell.zero_state(2, tf.float32))
    assert output.shape == [2, *sizes, 3]
    assert cell.output_size == [*sizes, 3]
    (kernel,) = tf.trainable_variables()
    convolve = tf.nn.conv2d if len(sizes) == 2 else tf.nn.conv3d
    gates = convolve(tf.concat([x, tf.zeros([2, *sizes, 3])], -1), kernel, [1] * (len(sizes) + 2), padding="SAME")
    i, j, _, o = tf.split(gates, 4, -1)
    expected = tf.tanh(tf.sigmoid(i) * tf.tanh(j)) * tf.sigmoid(o)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for found, wanted in (sess.run([output, expected]), sess.run([state.h, expected])):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="Invalid input_shape"):
        tf.contrib.rnn.ConvLSTMCell(2, [4, 2], 3, [3, 3])


@pytest.mark.parametrize("use_peepholes", [False, True])
def test_a_cell_that_is_open_at_times(use_peepholes: bool) -> None:
    units, x = 4, RNG.normal(size=(2, 3)).astype(np.float32)
    c, h = (RNG.normal(size=(2, units)).astype(np.float32) for _ in range(2))
    time = np.array([[3.0], [57.5]], np.float32)
    cell = tf.contrib.rnn.PhasedLSTMCell(units, use_peepholes, ratio_on=0.4)
    output, state = cell(
        (tf.constant(time), tf.constant(x)), tf.nn.rnn_cell.LSTMStateTuple(tf.constant(c), tf.constant(h))
    )
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values = {v.op.name.split("phased_lstm_cell/")[1]: sess.run(v) for v in tf.global_variables()}
        shown, after = sess.run([output, state])
    assert np.all((values["period"] >= 1) & (values["period"] <= 1000))
    assert np.all((values["phase"] >= 0) & (values["phase"] <= values["period"]))

    def linear(parts: list[Any], scope: str) -> Any:
        return np.concatenate(parts, 1) @ values[f"{scope}/kernel"] + values[f"{scope}/bias"]

    i, f = np.split(sigmoid(linear([x, h, c] if use_peepholes else [x, h], "mask_gates")), 2, 1)
    new = c * f + i * np.tanh(linear([x, h], "new_input"))
    gate = sigmoid(linear([x, h, new] if use_peepholes else [x, h], "output_gate"))
    cycle = np.mod(time - values["phase"], values["period"]) / values["period"]
    ratio = values["ratio_on"]
    is_open = np.where(
        cycle < ratio / 2, 2 * cycle / ratio, np.where(cycle < ratio, 2 - 2 * cycle / ratio, 0.001 * cycle)
    )
    np.testing.assert_allclose(after.c, is_open * new + (1 - is_open) * c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(shown, is_open * np.tanh(new) * gate + (1 - is_open) * h, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(shown, after.h)
