"""Layers of `tf.keras` that the package keras 2.3 has otherwise, each beside what NumPy computes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow import keras

backend = keras.backend
rng = np.random.RandomState(5)


def value(tensor: tf.Tensor) -> np.ndarray:
    """The value of a tensor, with variables that are initialized."""
    return backend.get_session().run(tensor)


def sigmoid(numbers: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1 / (1 + np.exp(-numbers))


# --------------------------------------------------------------------------- locally connected layers
series = rng.normal(size=(2, 5, 3)).astype("float32")
wide = keras.layers.LocallyConnected1D(4, 3, padding="same", implementation=2, use_bias=False)
found = value(wide(tf.constant(series)))
kernel = value(wide.kernel)
assert kernel.shape == (5, 3, 5, 4)
for end in range(5):
    near = slice(max(0, end - 1), end + 2)
    np.testing.assert_allclose(
        found[:, end], np.einsum("bsc,scf->bf", series[:, near], kernel[near, :, end]), rtol=1e-4, atol=1e-5
    )
sparse = keras.layers.LocallyConnected1D(4, 3, padding="same", implementation=3, use_bias=False)
sparse.build((None, 5, 3))
pairs = sparse.kernel_idxs
backend.set_value(sparse.kernel, [kernel[i // 3, i % 3, o // 4, o % 4] for o, i in pairs])
np.testing.assert_allclose(value(sparse(tf.constant(series))), found, rtol=1e-4, atol=1e-5)
pictures = rng.normal(size=(2, 2, 4, 5)).astype("float32")
by_places = keras.layers.LocallyConnected2D(3, (2, 3), strides=(2, 1), data_format="channels_first")
found = value(by_places(tf.constant(pictures)))
kernel = value(by_places.kernel)
assert (found.shape, kernel.shape) == ((2, 3, 2, 3), (6, 12, 3))
for row in range(2):
    for column in range(3):
        under = pictures[:, :, 2 * row : 2 * row + 2, column : column + 3].reshape(2, -1)
        np.testing.assert_allclose(found[:, :, row, column], under @ kernel[3 * row + column], rtol=1e-4, atol=1e-5)

# --------------------------------------------------------------------------- backend
mean, variance, beta, gamma = (rng.uniform(0.5, 1.5, size=2).astype("float32") for _ in range(4))
of_channels = [one[:, None, None] for one in (mean, variance, beta, gamma)]
np.testing.assert_allclose(
    value(backend.batch_normalization(tf.constant(pictures), mean, variance, beta, gamma, axis=1)),
    (pictures - of_channels[0]) / np.sqrt(of_channels[1] + 1e-3) * of_channels[3] + of_channels[2],
    rtol=1e-4,
    atol=1e-5,
)
filters = rng.normal(size=(3, 3, 2)).astype("float32")
np.testing.assert_allclose(
    value(backend.conv1d(tf.constant(series), tf.constant(filters), strides=(2,))),
    np.stack([np.einsum("bkc,kcf->bf", series[:, start : start + 3], filters) for start in (0, 2)], 1),
    rtol=1e-4,
    atol=1e-5,
)
with backend.learning_phase_scope(1):
    assert backend.learning_phase() == 1
assert isinstance(backend.learning_phase(), tf.Tensor)

# --------------------------------------------------------------------------- recurrent layers
inputs = keras.Input((4, 3))
masked = keras.layers.Masking()(inputs)
both = keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True, activity_regularizer="l1"))
outputs = both(masked)
assert (len(both.losses), len(both.get_losses_for(inputs)), len(both.get_losses_for(None))) == (2, 2, 0)
rows = rng.normal(size=(2, 4, 3)).astype("float32")
rows[0, 3] = 0
found = keras.Model(inputs, outputs).predict(rows)
assert not found[0, 3].any(), "nothing comes of a step that is not there"
assert found[1, 3].all()


class Doubling(keras.layers.SimpleRNNCell):
    """A cell whose outputs are twice its state."""

    def call(self, inputs: tf.Tensor, states: list[tf.Tensor], training: bool | None = None) -> object:
        """One step."""
        outputs, states = super().call(inputs, states)
        return 2 * outputs, states


custom = keras.layers.Bidirectional(keras.layers.RNN(Doubling(2)), merge_mode="sum")
single = keras.layers.SimpleRNN(2)
result, once = custom(tf.constant(rows)), single(tf.constant(rows))
single.set_weights(custom.forward_layer.get_weights())
back = keras.layers.SimpleRNN(2, go_backwards=True)
other = back(tf.constant(rows))
back.set_weights(custom.backward_layer.get_weights())
np.testing.assert_allclose(value(result), 2 * (value(once) + value(other)), rtol=1e-4, atol=1e-5)

cell = keras.experimental.PeepholeLSTMCell(2, recurrent_activation="sigmoid")
outputs = keras.layers.RNN(cell)(tf.constant(rows))
kernel, recurrent, bias, of_input, of_forget, of_output = (value(weight) for weight in cell.weights)
assert [weight.shape for weight in (kernel, recurrent, bias, of_input)] == [(3, 8), (2, 8), (8,), (2,)]
hidden, memory = np.zeros((2, 2)), np.zeros((2, 2))
for step in range(4):
    i, f, c, o = np.split(rows[:, step] @ kernel + hidden @ recurrent + bias, 4, axis=1)
    new = sigmoid(f + of_forget * memory) * memory + sigmoid(i + of_input * memory) * np.tanh(c)
    hidden, memory = sigmoid(o + of_output * new) * np.tanh(new), new
np.testing.assert_allclose(value(outputs), hidden, rtol=1e-4, atol=1e-5)

# --------------------------------------------------------------------------- others
causal = keras.layers.SeparableConv1D(4, 3, padding="causal", dilation_rate=2)
changed = series.copy()
changed[:, 3:] += 1
early, late = value(causal(tf.constant(series))), value(causal(tf.constant(changed)))
assert early.shape == (2, 5, 4)
assert np.allclose(early[:, :3], late[:, :3]), "what comes later is not seen"
assert not np.allclose(early[:, 3:], late[:, 3:])
assert keras.layers.BatchNormalization().fused is True
print("layers:", found.shape)

# --------------------------------------------------------------------------- what layers are told
pictures = rng.normal(size=(2, 6, 6, 3)).astype("float32")
by_position = keras.layers.Conv2D(4, 3, 2, "same", kernel_initializer=None, bias_initializer=None)
assert by_position.strides == (2, 2), "a third argument is the stride, not a length of the kernel"
outputs = by_position(tf.constant(pictures))
assert outputs.shape.as_list() == [2, 3, 3, 4]
assert by_position.get_config()["kernel_initializer"] is None
assert 0 < np.abs(value(by_position.kernel)).max() < 1
assert np.abs(value(by_position.bias)).max() > 0, "no initializer means that of the dtype"
assert keras.initializers.get(None) is None
recurrent = keras.layers.LSTM(3, kernel_initializer=None)
assert np.abs(value(recurrent(tf.constant(series)))).max() > 0
node = by_position.inbound_nodes[-1] if by_position.inbound_nodes else None
assert node is None, "what comes from no input is in no network"
source = keras.Input((3,))
dense = keras.layers.Dense(2)
joined = keras.layers.Add()
given = [dense(source), dense(source)]
joined(given)
assert dense.inbound_nodes[0].input_tensors is source
assert dense.inbound_nodes[0].output_tensors is given[0]
assert joined.inbound_nodes[0].input_tensors == given
assert joined.inbound_nodes[0].inbound_layers == [dense, dense]
assert backend.get_value(1) == 1
assert keras.Sequential([keras.layers.Dense(1)]).inputs == [], "of a model that has seen no data"


class Halving(keras.optimizers.Optimizer):
    """An optimizer of a program's own, which is given no name."""

    def __init__(self) -> None:
        super().__init__(None)


assert Halving()._name == "halving"
assert Halving()._name == "halving_1"

model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
model.compile("sgd", "mse")
rows, targets = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
fed = {model.inputs[0]: rows, model.targets[0]: targets}
plain = backend.get_session().run(model.total_loss, fed)  # no weights of examples are fed
np.testing.assert_allclose(plain, np.mean((model.predict(rows) - targets) ** 2), rtol=1e-5)
np.testing.assert_allclose(model.evaluate(rows, targets, verbose=0), plain, rtol=1e-5)
weighed = model.evaluate(rows, targets, verbose=0, sample_weight=np.array([0.0, 0, 0, 0, 5]))
np.testing.assert_allclose(weighed, np.mean((model.predict(rows) - targets)[4] ** 2), rtol=1e-5)


# --------------------------------------------------------------------------- layers of both kinds
class Standardized(keras.layers.Conv2D, tf.layers.Layer):
    """A convolution whose weights have no mean, in variable scopes."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The convolution."""
        return self._convolution_op(inputs, self.kernel - tf.reduce_mean(self.kernel, [0, 1, 2]))


with tf.Graph().as_default():
    x = tf.constant(pictures)
    with tf.variable_scope("net") as scope:
        layer = Standardized(
            *(4, 2),
            kernel_regularizer=lambda w: tf.reduce_sum(w * w),
            name="conv",
            dtype=tf.float32,
            _scope=scope,
            _reuse=None,
        )
        once = layer.apply(x)
        twice = Standardized(4, 2, name="conv", _scope=scope, _reuse=True)(x)
    assert [v.op.name for v in layer.variables] == ["net/kernel", "net/bias"]
    assert tf.trainable_variables() == layer.trainable_variables
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == len(layer.losses) == 1
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second, weights = session.run([once, twice, layer.kernel])
    np.testing.assert_array_equal(first, second)
    weights = weights - weights.mean((0, 1, 2))
    by_hand = sum(pictures[:, i : i + 5, j : j + 5] @ weights[i, j] for i in (0, 1) for j in (0, 1))
    np.testing.assert_allclose(first, by_hand, atol=1e-5)
    message = ""
    try:
        layer(x[0])
    except ValueError as error:
        message = str(error)
    assert "ndim" in message, "a picture is no batch of pictures"

# --------------------------------------------------------------------------- names of nodes
with tf.Graph().as_default() as graph:
    made = [
        keras.layers.Conv2D(4, 3, name=f"pictures_{order}", data_format=order, dilation_rate=rate)(
            tf.ones([2, 8, 8, 8])
        )
        for order, rate in (("channels_last", 1), ("channels_first", 2))
    ]
    assert [tensor.name for tensor in made] == ["pictures_channels_last/BiasAdd:0", "pictures_channels_first/BiasAdd:0"]
    assert graph.get_operation_by_name("pictures_channels_last/Conv2D").type == "Conv2D"
    assert made[1].shape.as_list() == [2, 4, 4, 4]
with tf.Graph().as_default() as graph:
    series, volumes, first = tf.ones([2, 9, 4]), tf.ones([2, 4, 4, 4, 4]), {"data_format": "channels_first"}
    layers = keras.layers
    names = {
        layers.Conv1D(4, 3, padding="causal", name="a")(series): ("a/BiasAdd", "a/conv1d", "Conv2D"),
        layers.Conv1D(4, 3, name="b", **first)(series): ("b/add", "b/conv1d/Squeeze", "Squeeze"),
        layers.SeparableConv1D(4, 3, name="c")(series): ("c/Squeeze", "c/BiasAdd", "BiasAdd"),
        layers.SeparableConv1D(4, 3, name="d", **first)(series): ("d/Squeeze", "d/separable_conv2d", "Conv2D"),
        layers.Conv3D(4, 3, name="e")(volumes): ("e/BiasAdd", "e/Conv3D", "Conv3D"),
        layers.Conv3D(4, 3, name="f", **first)(volumes): ("f/BiasAdd", "f/Conv3D", "Conv3D"),
        layers.Conv3DTranspose(4, 3, name="g")(volumes): ("g/BiasAdd", "g/conv3d_transpose", "Conv3DBackpropInputV2"),
        layers.LeakyReLU(name="h")(series): ("h/LeakyRelu", "h/LeakyRelu", "LeakyRelu"),
    }
    for tensor, (name, inner, kind) in names.items():
        assert (tensor.op.name, graph.get_operation_by_name(inner).type) == (name, kind), tensor.op.name
with tf.Graph().as_default(), tf.Session() as session:
    given = rng.normal(size=(2, 9, 4)).astype("float32")
    for kind in (keras.layers.Conv1D, keras.layers.SeparableConv1D):
        last, first = (
            kind(5, 3, strides=2, activation="relu", data_format=f"channels_{order}") for order in ("last", "first")
        )
        pair = last(tf.constant(given)), first(tf.constant(given.transpose(0, 2, 1)))
        session.run(tf.global_variables_initializer())
        first.set_weights(last.get_weights())
        one, other = session.run(pair)
        np.testing.assert_allclose(one, other.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
        assert (one > 0).any()
