"""Frozen graphs of well-known models, small ones that TensorFlow built, run, are differentiated and fine-tuned here."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow"


def load(name: str) -> tuple[tf.GraphDef, dict[str, dict[str, Any]]]:
    """The graph, and what is in its record by kind: "feed", "fetch", "gradient"."""
    graph_def = tf.GraphDef.FromString(gzip.decompress((FIXTURES / f"model_{name}.pb.gz").read_bytes()))
    record: dict[str, dict[str, Any]] = {"feed": {}, "fetch": {}, "gradient": {}}
    with np.load(FIXTURES / f"model_{name}.npz", allow_pickle=False) as arrays:
        for key in arrays:
            kind, _, tensor = key.partition("/")
            if kind in record:
                record[kind][tensor] = arrays[key]
    return graph_def, record


@pytest.mark.parametrize("name", ["inception", "mobilenet", "ssd", "bert"])
def test_it_computes_and_is_differentiated_as_by_tensorflow(name: str) -> None:
    graph_def, record = load(name)
    expected = {**record["fetch"], **{f"gradient of {key}": value for key, value in record["gradient"].items()}}
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = tf.import_graph_def(graph_def, return_elements=[*record["fetch"], *record["gradient"]], name="")
        outputs, sources = tensors[: len(record["fetch"])], tensors[len(record["fetch"]) :]
        gradients = tf.gradients(tf.reduce_sum(tf.square(outputs[0])), sources)
        values = session.run([*outputs, *gradients], record["feed"])
    for (key, wanted), value in zip(expected.items(), values, strict=True):
        limit = 1e-6 + 1e-5 * np.abs(wanted).max()
        np.testing.assert_allclose(value, wanted, rtol=2e-4, atol=limit, err_msg=f"{name}, {key}")


def test_it_is_fine_tuned() -> None:
    """The usual way: a layer of one's own takes the features of the frozen graph."""
    graph_def, record = load("mobilenet")
    with tf.Graph().as_default(), tf.Session() as session:
        pictures = tf.placeholder(tf.uint8, [None, 32, 32, 3])
        (features,) = tf.import_graph_def(
            graph_def, {"input:0": pictures}, ["MobilenetV1/Conv2d_5_pointwise/Relu6:0"], name="frozen"
        )
        logits = tf.layers.dense(tf.reduce_mean(features, [1, 2]), 2)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1], logits=logits))
        train = tf.train.AdamOptimizer(0.1).minimize(loss)
        assert [v.op.name for v in tf.trainable_variables()] == ["dense/kernel", "dense/bias"]
        session.run(tf.global_variables_initializer())
        feed = {pictures: record["feed"]["input:0"]}
        first = session.run(loss, feed)
        for _ in range(50):
            session.run(train, feed)
        assert session.run(loss, feed) < 0.3 * first


def test_boxes_are_found() -> None:
    """The recorded detector keeps some boxes, and not all that it may: its loops and suppression have work to do."""
    _, record = load("ssd")
    assert np.all(record["fetch"]["num_detections:0"] > 1)
    assert np.any(record["fetch"]["num_detections:0"] < 10)
