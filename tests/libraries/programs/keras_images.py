"""Trains a convolutional network of Keras' functional interface on made images, with a generator that changes them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from keras import backend as K
from keras.layers import (
    Activation,
    Add,
    BatchNormalization,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    concatenate,
)
from keras.models import Model, load_model
from keras.optimizers import SGD
from keras.preprocessing.image import ImageDataGenerator

np.random.seed(2)  # of the initial weights
tf.set_random_seed(5)
rng = np.random.RandomState(3)
count = 256
classes = rng.randint(0, 3, size=count)
images = rng.normal(scale=0.3, size=(count, 16, 16, 1)).astype("float32")
for at, kind in enumerate(classes):  # a bar that stands, one that lies, or a square
    r, c = rng.randint(2, 9, size=2)
    height, width = ((6, 2), (2, 6), (4, 4))[kind]
    images[at, r : r + height, c : c + width] += 2.0

inputs = Input(shape=(16, 16, 1))
x = Conv2D(12, 3, padding="same", use_bias=False)(inputs)
x = BatchNormalization(momentum=0.8)(x)
x = Activation("relu")(x)
shortcut = x
x = DepthwiseConv2D(3, padding="same", activation="relu")(x)
x = Add()([shortcut, x])
x = MaxPooling2D()(x)
x = Conv2D(16, 3, activation="relu", name="last")(x)
x = concatenate([GlobalAveragePooling2D()(x), Dense(8, activation="relu")(Flatten()(x))])
model = Model(inputs, Dense(3, activation="softmax")(x))
model.compile(SGD(lr=0.05, momentum=0.9), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
before = model.evaluate(images, classes, verbose=0)
model.fit(images, classes, epochs=8, batch_size=32, verbose=0)
after = model.evaluate(images, classes, verbose=0)
print("loss and accuracy before", before, "after", after)
assert after[0] < 0.7 * before[0]
assert after[1] > 0.8

generator = ImageDataGenerator(width_shift_range=1, height_shift_range=1)
model.fit_generator(generator.flow(images, classes, batch_size=32), steps_per_epoch=4, epochs=1, verbose=0)

wanted = model.predict(images)
model.save("images.h5")
K.clear_session()
loaded = load_model("images.h5")
np.testing.assert_allclose(loaded.predict(images), wanted, rtol=1e-4, atol=1e-5)

features = K.function([loaded.input, K.learning_phase()], [loaded.get_layer("last").output])([images[:4], 0])[0]
assert features.shape == (4, 6, 6, 16)
slopes = K.function([loaded.input], K.gradients(loaded.output[:, 0], [loaded.input]))([images[:4]])[0]
assert slopes.shape == (4, 16, 16, 1)
assert np.abs(slopes).max() > 0
