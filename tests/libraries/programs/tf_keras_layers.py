"""Layers and models of `tf.keras` that a program writes itself and trains with `tf.train`, in plain graphs."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.RandomState(0)


def run(loss: tf.Tensor, steps: list[tf.Operation], count: int) -> tuple[float, float]:
    """The loss before and after so many rounds of steps."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        for _ in range(count):
            session.run(steps)
        return float(before), float(session.run(loss))


# --------------------------------------------------------------------------- a transformer's encoder
class MultiHeadAttention(keras.layers.Layer):
    """Attention by several heads."""

    def __init__(self, width: int, heads: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.width, self.heads, self.depth = width, heads, width // heads
        self.of_queries, self.of_keys, self.of_values = (keras.layers.Dense(width) for _ in range(3))
        self.dense = keras.layers.Dense(width)

    def split(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, time, width] as [batch, heads, time, depth]."""
        return tf.transpose(tf.reshape(x, (tf.shape(x)[0], -1, self.heads, self.depth)), [0, 2, 1, 3])

    def call(self, values: tf.Tensor, queries: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """What the queries find among the values."""
        q, k, v = (
            self.split(self.of_queries(queries)),
            self.split(self.of_keys(values)),
            self.split(self.of_values(values)),
        )
        scores = tf.matmul(q, k, transpose_b=True) / np.sqrt(self.depth)
        if mask is not None:
            scores += mask * -1e9
        found = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        return self.dense(tf.reshape(found, (tf.shape(found)[0], -1, self.width)))


class EncoderLayer(keras.layers.Layer):
    """Attention and a network for each place, each with a shortcut and normalized."""

    def __init__(self, width: int, heads: int, rate: float = 0.1) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, heads)
        self.network = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(width)])
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.dropout = keras.layers.Dropout(rate)

    def call(self, x: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        """The encoded sequence."""
        x = self.norms[0](x + self.dropout(self.attention(x, x, mask=mask), training=training))
        return self.norms[1](x + self.dropout(self.network(x), training=training))


class Encoder(keras.Model):
    """Embedded words, encoded by layers, with a class for each sequence."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__(name="encoder")
        self.embedding = keras.layers.Embedding(words, width)
        self.encoders = [EncoderLayer(width, 2) for _ in range(layers)]
        self.classes = keras.layers.Dense(2)

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """The classes' logits."""
        mask = tf.cast(tf.equal(x, 0), tf.float32)[:, tf.newaxis, tf.newaxis, :]
        x = self.embedding(x)
        for encoder in self.encoders:
            x = encoder(x, training=training, mask=mask)
        return self.classes(tf.reduce_mean(x, axis=1))


words = rng.randint(1, 8, size=(32, 6)).astype("int32")
words[:, 4:] *= rng.randint(0, 2, size=(32, 2)).astype("int32")
classes = (words[:, 0] > 4).astype("int64")
with tf.Graph().as_default():
    tf.set_random_seed(3)
    encoder = Encoder(8, 8, 2)
    logits = encoder(tf.constant(words), training=True)
    loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(tf.constant(classes), logits, from_logits=True))
    # an embedding, and for each of two layers 8 of attention, 4 of the network and 4 of the norms; 2 of the classes
    assert len(encoder.trainable_variables) == 1 + 2 * 16 + 2, len(encoder.trainable_variables)
    assert encoder.variables[0].name == "encoder/embedding/embeddings:0", encoder.variables[0].name
    train = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=encoder.trainable_variables)
    before, after = run(loss, [train], 60)
    print("transformer", before, after)
    assert after < 0.45


# --------------------------------------------------------------------------- two networks against each other
def generator() -> keras.Model:
    """From noise to images of 8 by 8."""
    model = keras.Sequential()
    model.add(keras.layers.Dense(4 * 4 * 8, use_bias=False, input_shape=(5,)))
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.LeakyReLU())
    model.add(keras.layers.Reshape((4, 4, 8)))
    model.add(keras.layers.Conv2DTranspose(1, (5, 5), strides=(2, 2), padding="same", activation="tanh"))
    assert model.output_shape == (None, 8, 8, 1)
    return model


def discriminator() -> keras.Model:
    """From images to a logit."""
    model = keras.Sequential()
    model.add(keras.layers.Conv2D(8, (5, 5), strides=(2, 2), padding="same"))
    model.add(keras.layers.LeakyReLU())
    model.add(keras.layers.Dropout(0.3))
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(1))
    return model


with tf.Graph().as_default():
    tf.set_random_seed(3)
    images = tf.constant(np.tile(np.linspace(-1, 1, 8), (16, 8, 1))[..., None].astype("float32"))
    make, judge = generator(), discriminator()
    noise = tf.random_normal([16, 5])
    made = make(noise, training=True)
    real, fake = judge(images, training=True), judge(made, training=True)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    of_judge = entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)
    of_maker = entropy(tf.ones_like(fake), fake)
    optimizers = keras.optimizers.Adam(1e-2), tf.train.AdamOptimizer(1e-2)
    steps = [
        optimizers[0].minimize(of_judge, var_list=judge.trainable_variables),
        optimizers[1].minimize(of_maker, var_list=make.trainable_variables),
        *make.get_updates_for(noise),
    ]
    assert (len(make.updates), len(make.get_updates_for(noise))) == (4, 2), (
        "those of its own input, and those of this call"
    )
    assert len(judge.trainable_variables) == 4
    distance = tf.reduce_mean(tf.abs(tf.reduce_mean(made, 0) - images[0]))
    before, after = run(distance, steps, 80)
    print("adversarial networks", before, after)
    assert after != before
    assert after < 1.0  # the two learn against each other, for a few steps only


# --------------------------------------------------------------------------- captions: attention over features
class BahdanauAttention(keras.Model):
    """Additive attention of a state to features."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.W1, self.W2, self.V = keras.layers.Dense(units), keras.layers.Dense(units), keras.layers.Dense(1)

    def call(self, features: tf.Tensor, hidden: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The features' weighted sum, and the weights."""
        score = self.V(tf.nn.tanh(self.W1(features) + self.W2(tf.expand_dims(hidden, 1))))
        weights = tf.nn.softmax(score, axis=1)
        return tf.reduce_sum(weights * features, axis=1), weights


class Decoder(keras.Model):
    """A word after another, by a GRU that looks at features."""

    def __init__(self, width: int, units: int, words: int) -> None:
        super().__init__()
        self.units = units
        self.embedding = keras.layers.Embedding(words, width)
        self.gru = keras.layers.GRU(
            units, return_sequences=True, return_state=True, recurrent_initializer="glorot_uniform"
        )
        self.fc = keras.layers.Dense(words)
        self.attention = BahdanauAttention(units)

    def call(self, x: tf.Tensor, features: tf.Tensor, hidden: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The logits of the next word, and the state."""
        context, _ = self.attention(features, hidden)
        x = tf.concat([tf.expand_dims(context, 1), self.embedding(x)], axis=-1)
        output, state = self.gru(x, initial_state=hidden)
        return self.fc(tf.reshape(output, (-1, output.shape[2]))), state


captions = rng.randint(1, 6, size=(12, 4)).astype("int32")
pictures = np.eye(6, dtype="float32")[captions]  # what is to be said
with tf.Graph().as_default():
    tf.set_random_seed(3)
    decoder = Decoder(5, 10, 6)
    features, hidden, loss = tf.constant(pictures), tf.zeros([12, 10]), 0.0
    for place in range(1, 4):
        logits, hidden = decoder(tf.constant(captions[:, place - 1 : place]), features, hidden)
        loss += tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=captions[:, place], logits=logits))
    assert len(decoder.trainable_variables) == 1 + 3 + 2 + 6
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    before, after = run(loss, [train], 60)
    print("captions", before, after)
    assert after < 0.6 * before


# --------------------------------------------------------------------------- a cell of two inputs and two states
class Pairs(keras.layers.AbstractRNNCell):
    """Sums vectors and matrices apart, and gives both."""

    state_size = (2, tf.TensorShape([2, 3]))
    output_size = (2, tf.TensorShape([2, 3]))

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor], states: tuple[tf.Tensor, tf.Tensor]) -> tuple[object, object]:
        """The sums so far."""
        sums = [one + state for one, state in zip(inputs, states, strict=True)]
        return sums, sums


with tf.Graph().as_default(), tf.Session() as session:
    vectors, matrices = keras.Input((4, 2)), keras.Input((4, 2, 3))
    first, second, state, _ = keras.layers.RNN(Pairs(), return_sequences=True, return_state=True)((vectors, matrices))
    assert (first.shape.as_list(), second.shape.as_list()) == ([None, 4, 2], [None, 4, 2, 3])
    given = {vectors: rng.normal(size=(3, 4, 2)), matrices: rng.normal(size=(3, 4, 2, 3))}
    sums = session.run([first, second, state], given)
    np.testing.assert_allclose(sums[0], given[vectors].cumsum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums[1], given[matrices].cumsum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums[2], given[vectors].sum(1), rtol=1e-5, atol=1e-6)

    masked = keras.layers.Masking()(vectors)
    zeros = keras.layers.RNN(keras.layers.SimpleRNNCell(3), return_sequences=True, zero_output_for_mask=True)(masked)
    session.run(tf.global_variables_initializer())
    holed = given[vectors] * (np.arange(4) != 2)[None, :, None]
    found = session.run(zeros, {vectors: holed})
    assert not found[:, 2].any()
    assert found[:, 3].all()

    kernel = keras.constraints.RadialConstraint()(tf.constant(rng.normal(size=(5, 5, 1, 1))))
    assert len(np.unique(session.run(kernel))) == 3


# --------------------------------------------------------------------------- sequences of features; weights of steps
with tf.Graph().as_default(), tf.Session() as session:
    of_words = tf.feature_column.sequence_categorical_column_with_identity("words", 5)
    columns = [tf.feature_column.embedding_column(of_words, 3), tf.feature_column.sequence_numeric_column("heights")]
    layer = keras.experimental.SequenceFeatures(columns)
    places = [[0, 0], [0, 1], [1, 0]]
    examples = {
        "words": tf.SparseTensor(places, [2, 4, 1], [2, 3]),
        "heights": tf.SparseTensor(places, [0.5, 1.5, 2.5], [2, 3]),
    }
    sequences, lengths = layer(examples)
    again, _ = layer(examples)
    (embeddings,) = layer.trainable_variables
    session.run(tf.global_variables_initializer())
    found, same, counts, table = session.run([sequences, again, lengths, embeddings])
    assert found.shape == (2, 3, 4), found.shape
    np.testing.assert_array_equal(counts, [2, 1])
    np.testing.assert_array_equal(same, found)  # the layer has its variables once
    np.testing.assert_allclose(found[0, :2, 0], [0.5, 1.5])
    np.testing.assert_allclose(found[0, :2, 1:], table[[2, 4]])
    np.testing.assert_allclose(found[1, 0, 1:], table[1])
    assert not found[1, 1:].any()


class Unchanged(keras.Model):
    """Each step as it is."""

    def __init__(self) -> None:
        super().__init__()
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.steps = keras.layers.TimeDistributed(dense)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The steps."""
        return self.steps(x)


with tf.Graph().as_default():
    model = Unchanged()
    model.compile(tf.train.GradientDescentOptimizer(0.0), "mse", sample_weight_mode="temporal")
    x = np.array([[[1.0], [2.0], [3.0]]], np.float32)
    loss = model.train_on_batch(x, np.zeros_like(x), sample_weight=np.array([[1.0, 0.0, 2.0]]))
    assert abs(loss - (1 * 1 + 0 * 4 + 2 * 9) / 3) < 1e-6, loss

# --------------------------------------------------------------------------------------- second names of layers
for name, second in (("Conv2DTranspose", "Convolution2DTranspose"), ("Conv3DTranspose", "Convolution3DTranspose")):
    assert getattr(keras.layers, second) is getattr(keras.layers, name)
assert issubclass(keras.layers.TimeDistributed, keras.layers.Wrapper)


# ----------------------------------------------------------------------------- what libraries of agents do with layers
class Chain(keras.layers.Layer):
    """Layers one after the other, which are trained together or not."""

    def __init__(self, layers: list[keras.layers.Layer]) -> None:
        super().__init__()
        self.layers = layers

    @property
    def trainable(self) -> bool:
        """Whether any of them is trained."""
        return any(layer.trainable for layer in self.layers)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self.layers:
            layer.trainable = value

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The last one's output."""
        for layer in self.layers:
            x = layer(x)
        return x


class Listed(keras.Model):
    """A model that fills the list of its layers itself."""

    def __init__(self) -> None:
        super().__init__()
        self._layers = [keras.layers.Dense(2), keras.layers.Dense(1)]

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The last one's output."""
        for layer in self.layers:
            x = layer(x)
        return x


def scaled(x: tf.Tensor) -> tf.Tensor:
    """Twice."""
    return x * 2


with tf.Graph().as_default():
    chain = Chain([keras.layers.Dense(2), keras.layers.Dense(1)])
    chain(tf.zeros([1, 3]))
    assert len(chain.trainable_weights) == 4
    chain.trainable = False
    assert chain.trainable_weights == []
    assert not chain.layers[0].trainable
    listed = Listed()
    assert listed(tf.zeros([1, 3])).shape.as_list() == [1, 1]
    assert len(listed.layers) == 2
    assert len(listed.trainable_weights) == 4
    assert copy.copy(listed).layers == listed.layers
    assert keras.layers.LSTMCell(3).state_size == [3, 3]
    state = keras.layers.LSTMCell(3).get_initial_state(batch_size=2, dtype=tf.float32)
    tf.nest.assert_same_structure(state, keras.layers.LSTMCell(3).state_size)

for cls in (keras.layers.Dense, keras.layers.LSTMCell, keras.layers.Conv2D):
    assert "kernel_regularizer" in inspect.signature(cls.__init__).parameters
words = tf.feature_column.categorical_column_with_vocabulary_list("word", ["a", "b"])
columns = {
    "number": tf.feature_column.numeric_column("number", (2,), normalizer_fn=scaled),
    "word": tf.feature_column.embedding_column(words, 3, initializer=tf.ones_initializer()),
}
with tf.Graph().as_default(), tf.Session() as session:
    layer = tf.compat.v2.keras.layers.DenseFeatures(columns.values())
    assert isinstance(layer, keras.layers.DenseFeatures)
    assert type(layer) is not tf.compat.v1.keras.layers.DenseFeatures
    with keras.utils.CustomObjectScope({"scaled": scaled}):
        described = type(layer).from_config(layer.get_config())
    outputs = described({"number": tf.constant([[1.0, 2.0]]), "word": tf.constant([["b"]])})
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    np.testing.assert_allclose(session.run(outputs), [[2, 4, 1, 1, 1]])
