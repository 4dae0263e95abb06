"""Linear models of columns, columns over time and their features, as `tf.contrib.layers` has them, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

layers = tf.contrib.layers
RNG = np.random.default_rng(3)


def run(*fetches: Any) -> Any:
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return sess.run(fetches)


def test_a_weighted_sum() -> None:
    x = RNG.normal(size=(3, 2)).astype(np.float32)
    words = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], ["a", "b", "b"], [3, 2])
    number, word = layers.real_valued_column("x", 2), layers.sparse_column_with_keys("word", ["a", "b"])
    sums, variables, bias = layers.weighted_sum_from_feature_columns(
        {"x": tf.constant(x), "word": words}, [number, word], 4, scope="linear", weight_collections=["mine"]
    )
    assert {*variables} == {number, word}
    assert len(tf.get_collection("mine")) == 3
    assert all(v.op.name.startswith("linear/") for v in tf.trainable_variables())
    (of_numbers,), (of_words,) = variables[number], variables[word]
    values = [RNG.normal(size=v.shape.as_list()).astype(np.float32) for v in (of_numbers, of_words, bias)]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        assert not sess.run(sums).any()
        sess.run([tf.assign(v, value) for v, value in zip((of_numbers, of_words, bias), values, strict=True)])
        found = sess.run(sums)
    w, u, b = values
    wanted = x @ w + np.array([u[0] + u[1], 0 * u[0], u[1]]) + b
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_joint_sum_is_of_categories() -> None:
    a = layers.sparse_column_with_integerized_feature("a", 3)
    b = layers.sparse_column_with_integerized_feature("b", 2)
    features = {name: tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [1, 1]) for name in ("a", "b")}
    sums, variables, bias = layers.joint_weighted_sum_from_feature_columns(features, [b, a], 2)
    assert [v.shape.as_list() for v in variables] == [[3, 2], [2, 2]]
    assert bias.shape.as_list() == [2]
    with tf.Session() as sess:
        sess.run([tf.assign(v, tf.ones(v.shape)) for v in [*variables, bias]])
        assert sess.run(sums).tolist() == [[3, 3]]
    with pytest.raises(NotImplementedError, match="Real-valued columns are not supported"):
        layers.joint_weighted_sum_from_feature_columns(features, [layers.real_valued_column("x")], 2)


def test_columns_that_are_alike() -> None:
    column = layers.real_valued_column("x")
    with pytest.raises(ValueError, match="Duplicate feature column key found for column: x"):
        layers.check_feature_columns([column, layers.real_valued_column("x")])
    with pytest.raises(ValueError, match="found dict"):
        layers.check_feature_columns({"x": column})


def test_vectors_of_two_columns_from_one_table() -> None:
    columns = [layers.sparse_column_with_integerized_feature(name, 3) for name in ("a", "b")]
    shared = layers.shared_embedding_columns(columns, 2, "sum", shared_embedding_name="table")
    features = {
        name: tf.SparseTensor([[0, 0]], tf.constant([i], tf.int64), [1, 1]) for i, name in enumerate("ab")
    }  # fmt: skip
    layer = layers.input_from_feature_columns(features, shared)
    (table,) = tf.trainable_variables()
    found, values = run(layer, table)
    np.testing.assert_allclose(found, [[*values[0], *values[1]]])


# ---------------------------------------------------------------------- over time
def test_columns_for_each_step() -> None:
    x = RNG.normal(size=(2, 3, 2)).astype(np.float32)
    words = tf.SparseTensor([[0, 0], [0, 2], [1, 1]], tf.constant([2, 1, 0], tf.int64), [2, 3])
    several = tf.SparseTensor([[0, 0, 0], [0, 0, 1], [1, 2, 0]], tf.constant([0, 1, 1], tf.int64), [2, 3, 2])
    word = layers.sparse_column_with_integerized_feature("word", 3)
    columns = [
        layers.real_valued_column("x", 2),
        layers.embedding_column(word, 2, "sum", tf.constant_initializer([[1, 2], [3, 4], [5, 6]])),
        layers.one_hot_column(layers.sparse_column_with_integerized_feature("several", 2)),
    ]
    features = {"x": tf.constant(x), "word": words, "several": several, "other": tf.constant("a")}
    over_time = layers.sequence_input_from_feature_columns(features, columns)
    assert over_time.shape.as_list() == [2, 3, 6]
    (found,) = run(over_time)
    np.testing.assert_array_equal(found[..., :2], [[[1, 1], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 1]]])
    np.testing.assert_array_equal(found[..., 2:4], [[[5, 6], [0, 0], [3, 4]], [[0, 0], [1, 2], [0, 0]]])
    np.testing.assert_array_equal(found[..., 4:], x)


def test_features_that_are_no_sequences() -> None:
    column = layers.real_valued_column("x")
    with pytest.raises(ValueError, match="2 or 3 dimensions, not 1"):
        layers.sequence_input_from_feature_columns({"x": tf.ones([3])}, [column])
    with pytest.raises(ValueError, match="no features"):
        layers.sequence_input_from_feature_columns({"y": tf.ones([3, 1])}, [column])
    longer = {"x": tf.ones([2, 3]), "y": tf.placeholder_with_default(np.ones([2, 4], np.float32), [None, None])}
    both = layers.sequence_input_from_feature_columns(longer, [column, layers.real_valued_column("y")])
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(both)


# ---------------------------------------------------------------------- parsing
def feature(*values: Any) -> tf.train.Feature:
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def test_examples_are_parsed_for_columns() -> None:
    columns = [layers.real_valued_column("x", 2), layers.sparse_column_with_hash_bucket("word", 5)]
    examples = [
        tf.train.Example(features=tf.train.Features(feature={"x": feature(1.0, 2.0), "word": feature(b"a", b"b")})),
        tf.train.Example(features=tf.train.Features(feature={"x": feature(3.0, 4.0)})),
    ]
    parsed = layers.parse_feature_columns_from_examples([e.SerializeToString() for e in examples], columns)
    (found,) = run(parsed)
    assert found["x"].tolist() == [[1, 2], [3, 4]]
    assert found["word"].values.tolist() == [b"a", b"b"]
    assert found["word"].dense_shape.tolist() == [2, 2]


def test_a_sequence_example_is_parsed_for_columns() -> None:
    steps = tf.train.FeatureLists(
        feature_list={
            "x": tf.train.FeatureList(feature=[feature(1.0), feature(2.0)]),
            "word": tf.train.FeatureList(feature=[feature(b"a"), feature(b"b", b"c")]),
        }
    )
    example = tf.train.SequenceExample(
        context=tf.train.Features(feature={"whole": feature(7.0)}), feature_lists=steps
    )  # fmt: skip
    context, sequence = layers.parse_feature_columns_from_sequence_examples(
        example.SerializeToString(),
        [layers.real_valued_column("whole")],
        [layers.real_valued_column("x"), layers.sparse_column_with_hash_bucket("word", 5)],
    )
    whole, over_time = run(context, sequence)
    assert whole["whole"].tolist() == [7]
    assert over_time["x"].tolist() == [[1], [2]]
    assert over_time["word"].values.tolist() == [b"a", b"b", b"c"]


def test_placeholders_and_columns_for_features() -> None:
    columns = [layers.real_valued_column("x", 2), layers.sparse_column_with_hash_bucket("word", 5)]
    places = layers.make_place_holder_tensors_for_base_features(columns)
    assert places["x"].shape.as_list() == [None, 2]
    assert isinstance(places["word"], tf.SparseTensor)
    assert places["word"].dtype == tf.string
    (column,) = layers.infer_real_valued_columns({"x": tf.ones([5, 3, 2], tf.int32)})
    assert (column.key, column.shape, column.dtype) == ("x", (6,), tf.int32)
    with pytest.raises(ValueError, match="SparseTensor is not supported"):
        layers.infer_real_valued_columns({"word": places["word"]})
    with pytest.raises(ValueError, match="Non integer or non floating"):
        layers.infer_real_valued_columns(tf.constant(["a"]))
