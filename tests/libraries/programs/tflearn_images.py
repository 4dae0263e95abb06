"""Trains a convolutional network of TFLearn's on made images, normalized and shifted; saves and loads it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tflearn
from tflearn.layers.conv import conv_2d, global_avg_pool, max_pool_2d
from tflearn.layers.core import fully_connected, input_data
from tflearn.layers.estimator import regression
from tflearn.layers.normalization import local_response_normalization

rng = np.random.RandomState(3)
classes = rng.randint(0, 2, size=256)
images = rng.normal(scale=0.3, size=(256, 12, 12, 1)).astype("float32")
for at, kind in enumerate(classes):  # a bar that stands, or one that lies
    r, c = rng.randint(0, 6, size=2)
    height, width = ((6, 2), (2, 6))[kind]
    images[at, r : r + height, c : c + width] += 2.0
labels = tflearn.data_utils.to_categorical(classes, 2)


def model() -> tflearn.DNN:
    """A convolutional network with a residual block."""
    preprocessing = tflearn.ImagePreprocessing()
    preprocessing.add_featurewise_zero_center()
    preprocessing.add_featurewise_stdnorm()
    augmentation = tflearn.ImageAugmentation()
    augmentation.add_random_crop([12, 12], padding=1)
    net = input_data(shape=[None, 12, 12, 1], data_preprocessing=preprocessing, data_augmentation=augmentation)
    net = conv_2d(net, 8, 3, activation="relu")
    net = local_response_normalization(max_pool_2d(net, 2))
    net = tflearn.residual_block(net, 1, 16)
    net = fully_connected(global_avg_pool(net), 2, activation="softmax")
    net = regression(net, optimizer="momentum", learning_rate=0.05, loss="categorical_crossentropy")
    return tflearn.DNN(net, tensorboard_verbose=0, tensorboard_dir="logs")


with tf.Graph().as_default():
    tflearn.init_graph(seed=3)
    trained = model()
    trained.fit(images.copy(), labels, n_epoch=12, batch_size=32, shuffle=True, run_id="images")
    accuracy = trained.evaluate(images.copy(), labels)[0]
    print("accuracy", accuracy)
    assert accuracy > 0.85
    # a copy: TFLearn normalizes what it is given in place
    wanted = np.array(trained.predict(images.copy()))
    trained.save("images.tfl")

with tf.Graph().as_default():
    loaded = model()
    loaded.load("./images.tfl")
    np.testing.assert_allclose(loaded.predict(images.copy()), wanted, rtol=1e-3, atol=1e-4)
