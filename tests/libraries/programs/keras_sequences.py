"""Trains recurrent networks of Keras on made sequences: embedding, masks, LSTM both ways, GRU with state, a Lambda."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from keras import backend as K
from keras.layers import GRU, LSTM, Bidirectional, Dense, Embedding, Lambda, SimpleRNN, TimeDistributed
from keras.models import Sequential, load_model
from keras.preprocessing.sequence import pad_sequences

np.random.seed(5)  # of the initial weights
tf.set_random_seed(5)
rng = np.random.RandomState(11)
sequences = [rng.randint(1, 10, size=rng.randint(4, 12)) for _ in range(384)]
y = np.array([int((s > 5).mean() > 0.45) for s in sequences])
x = pad_sequences(sequences, maxlen=12)

model = Sequential(
    [
        Embedding(10, 8, mask_zero=True),
        Bidirectional(LSTM(12, dropout=0.1, recurrent_dropout=0.1)),
        Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="rmsprop", loss="binary_crossentropy", metrics=["accuracy"])
before = model.evaluate(x, y, verbose=0)
model.fit(x, y, epochs=15, batch_size=32, verbose=0)
after = model.evaluate(x, y, verbose=0)
print("loss and accuracy before", before, "after", after)
assert after[0] < 0.8 * before[0]
assert after[1] > 0.8
wanted = model.predict(x)
model.save("sequences.h5")
np.testing.assert_allclose(load_model("sequences.h5").predict(x), wanted, rtol=1e-4, atol=1e-5)

waves = np.stack([np.sin(np.arange(25) * step) for step in rng.uniform(0.2, 0.6, size=64)])[..., None]
forecast = Sequential(
    [
        GRU(12, return_sequences=True, stateful=True, batch_input_shape=(32, 24, 1)),
        SimpleRNN(8, return_sequences=True, unroll=True),
        TimeDistributed(Dense(1)),
        Lambda(lambda values: K.clip(values, -1.5, 1.5)),
    ]
)
forecast.compile(optimizer="adam", loss="mse")
first = forecast.evaluate(waves[:, :-1], waves[:, 1:], batch_size=32, verbose=0)
for _ in range(20):
    forecast.fit(waves[:, :-1], waves[:, 1:], batch_size=32, epochs=1, shuffle=False, verbose=0)
    forecast.reset_states()
last = forecast.evaluate(waves[:, :-1], waves[:, 1:], batch_size=32, verbose=0)
print("mean squared error before", first, "after", last)
assert last < 0.5 * first
