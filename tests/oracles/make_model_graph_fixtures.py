"""Writes frozen graphs of well-known models, small and with made weights, and what TensorFlow computes with them.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_model_graph_fixtures.py

They are built as their repositories built them (layers of tf-slim, control flow of primitives), and frozen. Each
`tests/fixtures/tensorflow/model_NAME.pb.gz` has a `.npz` beside it: `graph_files.py` says what is in it. Further
entries "gradient/TENSOR" are gradients, with respect to TENSOR, of the sum of the squares of the first fetch.
Weights are 0 or one of two numbers of unlike signs, so that the files are small.
"""

from __future__ import annotations

import gzip
import importlib
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf-slim needs the layers of version 1
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import tensorflow as tf
import tf_slim as slim
from graph_files import _ramp
from tf_slim.nets import inception_v3

# the layers of version 1 that tf-slim builds with, where TensorFlow looks for them
for _module in ("", ".base", ".convolutional", ".core", ".normalization", ".pooling"):
    sys.modules[f"tf_keras.legacy_tf_layers{_module}"] = importlib.import_module(
        f"tf_keras.src.legacy_tf_layers{_module}"
    )

tf1 = tf.compat.v1
FILES = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow"

#: feeds, fetches (the first is differentiated), and with respect to what
Run = tuple[dict[Any, Any], list[Any], list[Any]]


def inception() -> Run:
    """Inception-v3 up to the first of its modules with factorized convolutions, and logits."""
    images = tf1.placeholder(tf.float32, [None, 75, 75, 3], name="input")
    with slim.arg_scope(inception_v3.inception_v3_arg_scope()), slim.arg_scope([slim.batch_norm], is_training=False):
        net, _ = inception_v3.inception_v3_base(
            images, final_endpoint="Mixed_6b", min_depth=4, depth_multiplier=0.05, scope="InceptionV3"
        )
        with tf1.variable_scope("InceptionV3/Logits"):
            pooled = tf1.reduce_mean(net, [1, 2], keep_dims=True, name="AvgPool")
            logits = slim.conv2d(pooled, 5, [1, 1], activation_fn=None, normalizer_fn=None, scope="Conv2d_1c_1x1")
            logits = tf.squeeze(logits, [1, 2], name="SpatialSqueeze")
    predictions = slim.softmax(logits, scope="InceptionV3/Predictions")
    return {images: _ramp([2, 75, 75, 3])}, [logits, predictions], [pooled, net]


def _mobilenet(images: Any, depths: list[tuple[int, int]]) -> Any:
    """Depthwise separable convolutions; depth and stride of each."""
    with (
        slim.arg_scope([slim.conv2d, slim.separable_conv2d], activation_fn=tf.nn.relu6, normalizer_fn=slim.batch_norm),
        slim.arg_scope([slim.batch_norm], is_training=False, center=True, scale=True, decay=0.9997, epsilon=0.001),
    ):
        net = slim.conv2d(images, depths[0][0], [3, 3], stride=depths[0][1], scope="Conv2d_0")
        for index, (depth, stride) in enumerate(depths[1:], 1):
            net = slim.separable_conv2d(net, None, [3, 3], 1, stride=stride, scope=f"Conv2d_{index}_depthwise")
            net = slim.conv2d(net, depth, [1, 1], scope=f"Conv2d_{index}_pointwise")
    return net


def _pictures(height: int, width: int) -> np.ndarray[Any, Any]:
    """Two pictures: waves of unlike lengths."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin(rows * a + columns * b)[..., None] * [1.0, 0.7, -0.4] for a, b in ((0.9, 0.2), (0.1, 1.3))]
    return (np.stack(waves) * 127 + 128).astype(np.uint8)


def mobilenet() -> Run:
    """MobileNet-v1 with its pictures decoded to [-1, 1] in the graph."""
    pixels = tf1.placeholder(tf.uint8, [None, 32, 32, 3], name="input")
    images = (tf1.to_float(pixels) - 127.5) * (1.0 / 127.5)
    with tf1.variable_scope("MobilenetV1"):
        net = _mobilenet(images, [(4, 2), (8, 1), (16, 2), (16, 1), (24, 2), (24, 1)])
        pooled = slim.avg_pool2d(net, net.shape[1:3], padding="VALID", scope="AvgPool_1a")
        pooled = slim.dropout(pooled, keep_prob=0.999, is_training=False)
        logits = slim.conv2d(pooled, 6, [1, 1], activation_fn=None, normalizer_fn=None, scope="Logits/Conv2d_1c_1x1")
        logits = tf.squeeze(logits, [1, 2], name="Logits/SpatialSqueeze")
        shape = tf.shape(logits)
        flat = tf.nn.softmax(tf.reshape(logits, [-1, shape[-1]]))
        predictions = tf.reshape(flat, shape, name="Predictions")
    return {pixels: _pictures(32, 32)}, [logits, predictions], [images, net]


def ssd() -> Run:
    """A single-shot detector: resized pictures, two layers of boxes, decoding, suppression of classes, in loops."""
    pixels = tf1.placeholder(tf.uint8, [None, None, None, 3], name="image_tensor")
    images = tf.map_fn(
        lambda image: tf1.image.resize_bilinear(image[None], [32, 32], align_corners=False)[0],
        tf1.to_float(pixels),
        dtype=tf.float32,
        name="Preprocessor/map",
    )
    images = (2.0 / 255.0) * images - 1.0
    with tf1.variable_scope("FeatureExtractor"):
        first = _mobilenet(images, [(4, 2), (8, 2), (12, 2)])
        second = slim.conv2d(first, 12, [3, 3], stride=2, scope="extra")
    boxes, scores, anchors = [], [], []
    for index, layer in enumerate((first, second)):
        with tf1.variable_scope(f"BoxPredictor_{index}"):
            encoded = slim.conv2d(layer, 2 * 4, [1, 1], activation_fn=None, scope="BoxEncodingPredictor")
            classes = slim.conv2d(layer, 2 * 4, [1, 1], activation_fn=None, scope="ClassPredictor")
            batch = tf.shape(layer)[0]
            side = int(layer.shape[1])
            boxes.append(tf.reshape(encoded, tf.stack([batch, side * side * 2, 4])))
            scores.append(tf.reshape(classes, tf.stack([batch, side * side * 2, 4])))
            anchors.append(_anchors(side))
    encodings = tf.concat(boxes, 1, name="encodings")
    class_scores = tf.sigmoid(tf.concat(scores, 1))[:, :, 1:]  # without the background
    decoded = _decoded(encodings, tf.constant(np.concatenate(anchors), name="anchors"))
    detected = tf.map_fn(
        _suppressed, (decoded, class_scores), (tf.float32, tf.float32, tf.float32, tf.int32), name="Postprocessor/map"
    )
    names = ("detection_boxes", "detection_scores", "detection_classes", "num_detections")
    fetches = [tf.identity(value, name=name) for name, value in zip(names, detected, strict=True)]
    return {pixels: _pictures(40, 28)}, fetches, [encodings, second]


def _anchors(side: int) -> np.ndarray[Any, Any]:
    """Center y, center x, height, width of two boxes for each cell."""
    centers = (np.arange(side) + 0.5) / side
    rows = [(y, x, s, s * r) for y in centers for x in centers for s, r in ((1.2 / side, 1.0), (1.6 / side, 0.5))]
    return np.array(rows, np.float32)


def _decoded(encodings: Any, anchors: Any) -> Any:
    y, x, height, width = tf.unstack(tf.transpose(anchors))
    ty, tx, th, tw = tf.unstack(tf.transpose(encodings, [2, 0, 1]))
    h, w = tf.exp(th / 5.0) * height, tf.exp(tw / 5.0) * width
    middle_y, middle_x = ty / 10.0 * height + y, tx / 10.0 * width + x
    corners = [middle_y - h / 2.0, middle_x - w / 2.0, middle_y + h / 2.0, middle_x + w / 2.0]
    return tf.transpose(tf.stack(corners), [1, 2, 0], name="decoded")


def _suppressed(boxes_and_scores: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The best boxes of one picture: of each class on its own, then of all, padded."""
    boxes, scores = boxes_and_scores
    found = []
    for index in range(3):
        of_class = tf.reshape(scores[:, index], [-1])
        limit = tf.minimum(8, tf.shape(boxes)[0])
        kept = tf1.image.non_max_suppression(boxes, of_class, limit, iou_threshold=0.4)
        enough = tf.gather(of_class, kept) > 0.55
        kept = tf1.boolean_mask(kept, enough)
        found.append((tf.gather(boxes, kept), tf.gather(of_class, kept), tf.zeros_like(kept, tf.float32) + index))
    boxes, best, classes = (tf.concat(values, 0) for values in zip(*found, strict=True))
    best, order = tf.nn.top_k(best, tf.minimum(10, tf.shape(best)[0]), sorted=True)
    boxes = tf.clip_by_value(tf.gather(boxes, order), 0.0, 1.0)
    missing = 10 - tf.shape(best)[0]
    boxes = tf.reshape(tf.pad(boxes, [[0, missing], [0, 0]]), [10, 4])
    classes = tf.reshape(tf.pad(tf.gather(classes, order) + 1.0, [[0, missing]]), [10])
    return boxes, tf.reshape(tf.pad(best, [[0, missing]]), [10]), classes, tf.shape(order)[0]


def bert() -> Run:
    """BERT with two layers of 16, and a classifier over its first word."""
    ids, mask, kinds = (
        tf1.placeholder(tf.int32, [None, 12], name=n) for n in ("input_ids", "input_mask", "segment_ids")
    )
    with tf1.variable_scope("bert"):
        with tf1.variable_scope("embeddings"):
            table = tf1.get_variable("word_embeddings", [40, 16])
            words = tf.reshape(tf.gather(table, tf.reshape(ids, [-1])), [-1, 12, 16], name="words")
            kind_table = tf1.get_variable("token_type_embeddings", [2, 16])
            segments = tf.reshape(tf.matmul(tf.one_hot(tf.reshape(kinds, [-1]), 2), kind_table), tf.shape(words))
            positions = tf.slice(tf1.get_variable("position_embeddings", [32, 16]), [0, 0], [12, -1])
            hidden = _normalized(words + segments + tf.reshape(positions, [1, 12, 16]))
        batch = tf.shape(ids)[0]
        visible = tf.ones(tf.stack([batch, 12, 1])) * tf.cast(tf.reshape(mask, tf.stack([batch, 1, 12])), tf.float32)
        hidden = tf.reshape(hidden, [-1, 16])
        for index in range(2):
            with tf1.variable_scope(f"encoder/layer_{index}"):
                hidden = _encoded(hidden, (1.0 - tf.expand_dims(visible, 1)) * -10000.0)
        sequence = tf.reshape(hidden, tf.stack([batch, 12, 16]))
        first = tf.squeeze(sequence[:, 0:1, :], 1)
        pooled = tf1.layers.dense(first, 16, tf.tanh, name="pooler")
    weights = tf1.get_variable("output_weights", [3, 16])
    logits = tf.nn.bias_add(tf.matmul(pooled, weights, transpose_b=True), tf1.get_variable("output_bias", [3]))
    logits = tf.identity(logits, name="logits")
    probabilities = tf.nn.softmax(logits, name="probabilities")
    feeds = {
        ids: (np.arange(36) * 7 % 40).reshape(3, 12).astype(np.int32),
        mask: (np.arange(12) < np.array([[12], [7], [3]])).astype(np.int32),
        kinds: (np.arange(36) % 12 > 5).astype(np.int32).reshape(3, 12),
    }
    return feeds, [logits, probabilities, sequence], [pooled, words]


def _normalized(x: Any) -> Any:
    with tf1.variable_scope(None, "LayerNorm"):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        beta, gamma = tf1.get_variable("beta", [16]), tf1.get_variable("gamma", [16])
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


def _encoded(hidden: Any, adder: Any) -> Any:
    def heads(name: str) -> Any:
        return tf.transpose(tf.reshape(tf1.layers.dense(hidden, 16, name=name), [-1, 12, 2, 8]), [0, 2, 1, 3])

    with tf1.variable_scope("attention"):
        query, key, value = heads("query"), heads("key"), heads("value")
        scores = tf.matmul(query, key, transpose_b=True) * (1.0 / np.sqrt(8.0).astype(np.float32)) + adder
        context = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        hidden = _normalized(tf1.layers.dense(tf.reshape(context, [-1, 16]), 16, name="output") + hidden)
    wide = tf1.layers.dense(hidden, 32, name="intermediate")
    wide = wide * 0.5 * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (wide + 0.044715 * tf.pow(wide, 3))))
    return _normalized(tf1.layers.dense(wide, 16, name="output") + hidden)


MODELS: tuple[Callable[[], Run], ...] = (inception, mobilenet, ssd, bert)


def _weights(variable: Any) -> np.ndarray[Any, Any]:
    """Values of three kinds, whose sums over a unit's inputs have a variance near 1."""
    name, shape = variable.op.name, variable.shape.as_list()
    if name.endswith(("gamma", "moving_variance")):
        return np.ones(shape, np.float32)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if len(shape) == 1:  # all unlike, so that no unit gets exactly zero, where either slope is right
        return (random.random(shape) * 0.2 - 0.1).astype(np.float32)
    scale = (3.0 / np.prod(shape[:2] if "depthwise" in name else shape[:-1])) ** 0.5
    return (random.integers(-1, 2, shape) * scale).astype(np.float32)


def write(build: Callable[[], Run]) -> None:
    name = f"model_{build.__name__}"
    with tf.Graph().as_default(), tf1.Session() as session:
        feeds, fetches, sources = build()
        session.run(tf1.global_variables_initializer())
        for variable in tf1.global_variables():
            variable.load(_weights(variable), session)
        frozen = tf1.graph_util.convert_variables_to_constants(
            session, session.graph_def, [tensor.op.name for tensor in (*fetches, *sources)]
        )
        # in the graph that has not been frozen: TensorFlow does not differentiate imported loops
        gradients = tf1.gradients(tf.reduce_sum(tf.square(fetches[0])), sources)
        values = session.run([*fetches, *gradients], feeds)
    keys = [f"fetch/{t.name}" for t in fetches] + [f"gradient/{t.name}" for t in sources]
    arrays = {f"feed/{t.name}": value for t, value in feeds.items()} | dict(zip(keys, values, strict=True))
    data = frozen.SerializeToString(deterministic=True)
    (FILES / f"{name}.pb.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    np.savez_compressed(FILES / f"{name}.npz", targets=np.array([], np.str_), **arrays)


def main() -> None:
    tf1.disable_v2_behavior()
    tf1.disable_control_flow_v2()
    for build in MODELS:
        write(build)


if __name__ == "__main__":
    main()
