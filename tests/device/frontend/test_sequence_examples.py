"""Sequence examples through the front end; the values are those that TensorFlow gives for the same messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


def feature(values: Any) -> Any:
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def sequence(context: dict[str, Any], lists: dict[str, Any]) -> bytes:
    found = {k: tf.train.FeatureList(feature=[feature(v) for v in steps]) for k, steps in lists.items()}
    message = tf.train.SequenceExample(
        context=tf.train.Features(feature={k: feature(v) for k, v in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list=found),
    )
    data: bytes = message.SerializeToString()
    return data


LONG = sequence(
    {"n": [3], "w": [b"a", b"b"]}, {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "t": [[b"p"], [b"q", b"r"], [b"s"]]}
)
SHORT = sequence({"w": [b"c"]}, {"x": [[7.0, 8.0]], "t": [[b"z"]]})
BARE = sequence({"n": [5]}, {})
CONTEXT = {"n": tf.FixedLenFeature([], tf.int64, default_value=-1), "w": tf.VarLenFeature(tf.string)}


def lists(allow_missing: bool = False) -> dict[str, Any]:
    return {"x": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing), "t": tf.VarLenFeature(tf.string)}


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def dense(sparse: Any) -> Any:
    out = np.full(sparse.dense_shape, b"", np.object_)
    out[tuple(sparse.indices.T)] = sparse.values
    return out.tolist()


def test_one_sequence() -> None:
    record = tf.placeholder(tf.string, [])
    parsed = tf.parse_single_sequence_example(record, CONTEXT, lists(allow_missing=True))
    assert parsed[1]["x"].shape.as_list() == [None, 2]
    assert parsed[0]["n"].op.type == "ParseSingleSequenceExample"
    context, steps = run(parsed, {record: LONG})
    assert context["n"] == 3
    assert dense(context["w"]) == [b"a", b"b"]
    assert steps["x"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert dense(steps["t"]) == [[b"p", b""], [b"q", b"r"], [b"s", b""]]
    context, steps = run(parsed, {record: BARE})
    assert context["n"] == 5
    assert context["w"].dense_shape.tolist() == [0]
    assert steps["x"].shape == (0, 2)
    assert steps["t"].dense_shape.tolist() == [0, 0]


def test_a_batch_of_sequences() -> None:
    records = tf.placeholder(tf.string, [3])
    parsed = tf.io.parse_sequence_example(records, CONTEXT, lists(allow_missing=True))
    assert parsed[1]["x"].shape.as_list() == [3, None, 2]
    mean = tf.reduce_sum(parsed[1]["x"], [1, 2]) / tf.cast(tf.maximum(parsed[2]["x"], 1), tf.float32)
    (context, steps, lengths), means = run([parsed, mean], {records: [LONG, SHORT, BARE]})
    assert context["n"].tolist() == [3, -1, 5]
    assert dense(context["w"]) == [[b"a", b"b"], [b"c", b""], [b"", b""]]
    assert lengths["x"].tolist() == [3, 1, 0]
    assert steps["x"][1].tolist() == [[7, 8], [0, 0], [0, 0]]
    assert steps["t"].dense_shape.tolist() == [3, 3, 2]
    assert dense(steps["t"])[0] == [[b"p", b""], [b"q", b"r"], [b"s", b""]]
    assert means.tolist() == [7, 15, 0]


@pytest.mark.parametrize(
    ("record", "context", "steps", "message"),
    [
        (BARE, None, lists(), "Name: that one, Feature list 'x' is required but could not be found"),
        (SHORT, {"n": tf.FixedLenFeature([], tf.int64)}, None, "that one, Feature: n .data type: int64. is required"),
        (LONG, {"n": tf.FixedLenFeature([2], tf.int64)}, None, "Key: n, Index: 0.  Number of int64 values != expected"),
        (LONG, {"n": tf.FixedLenFeature([], tf.float32)}, None, "Data types don't match. Expected type: float "),
        (
            LONG,
            None,
            {"x": tf.FixedLenSequenceFeature([3], tf.float32)},
            "Key: x, Index: 0.  Number of float values != expected",
        ),
        (LONG, None, {"x": tf.VarLenFeature(tf.int64)}, "that one, Feature list: x, Index: 0.  Data types don't match"),
        (b"\xff\xff", CONTEXT, None, "could not parse that one as a tf.train.SequenceExample"),
    ],
    ids=["list", "feature", "size", "type", "size of a step", "type of a step", "corrupt"],
)
def test_a_bad_record_is_named(record: bytes, context: Any, steps: Any, message: str) -> None:
    parsed = tf.parse_single_sequence_example(record, context, steps, example_name="that one")
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(parsed)
    batch = tf.io.parse_sequence_example([record], context, steps, example_names=["that one"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(batch)


@pytest.mark.parametrize(
    ("context", "steps", "message"),
    [
        (None, None, "both are empty"),
        ({"x": tf.FixedLenSequenceFeature([2], tf.float32)}, None, "Unsupported FixedLenSequenceFeature"),
        (None, {"x": tf.FixedLenFeature([2], tf.float32)}, "Unsupported FixedLenFeature"),
        (None, {"x": tf.FixedLenSequenceFeature([2], tf.float32, default_value=1.0)}, "no default_value"),
        (None, {"x": tf.FixedLenSequenceFeature([None], tf.float32)}, "must be fully known"),
        (None, {"x": tf.VarLenFeature(tf.int32)}, "cannot be parsed as int32"),
    ],
)
def test_bad_descriptions_are_refused(context: Any, steps: Any, message: str) -> None:
    for parse in (tf.io.parse_single_sequence_example, tf.io.parse_sequence_example):
        with pytest.raises(ValueError, match=message):
            parse("", context, steps)
