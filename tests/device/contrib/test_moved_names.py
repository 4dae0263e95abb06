"""Names of `tf.contrib` that live on elsewhere, and small functions that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

contrib = tf.contrib
RNG = np.random.default_rng(6)


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_names_are_those_of_their_new_homes() -> None:
    assert contrib.checkpoint.CheckpointManager is tf.train.CheckpointManager
    assert contrib.hooks.ProfilerHook is tf.train.ProfilerHook
    assert contrib.proto.decode_proto is tf.io.decode_proto
    assert contrib.compiler.xla.compile is tf.xla.experimental.compile
    assert contrib.compiler.jit.experimental_jit_scope is tf.xla.experimental.jit_scope
    assert contrib.nn.conv1d_transpose is tf.nn.conv1d_transpose
    assert contrib.metrics.set_union is tf.sets.union
    assert contrib.metrics.confusion_matrix is tf.math.confusion_matrix
    for name in ("make_csv_dataset", "CsvDataset", "SqlDataset", "TFRecordWriter", "rejection_resample", "Optional"):
        assert getattr(contrib.data, name) is getattr(tf.data.experimental, name)
    for name in ("sequence_numeric_column", "sequence_categorical_column_with_identity"):
        assert getattr(contrib.feature_column, name) is getattr(tf.feature_column, name)


def test_framework_has_checks_and_names_in_scopes() -> None:
    framework = contrib.framework
    for name in ("assert_same_float_dtype", "assert_scalar", "is_non_decreasing", "is_strictly_increasing"):
        assert getattr(framework, name) is getattr(tf.debugging, name)
    assert framework.is_numeric_tensor(tf.constant(1))
    assert not framework.is_numeric_tensor(tf.constant("a"))
    sparse = tf.SparseTensor([[0]], [1.0], [2])
    assert framework.convert_to_tensor_or_sparse_tensor(sparse) is sparse
    assert framework.prepend_name_scope("^a/b", "s") == "^s/a/b"
    assert framework.strip_name_scope("^s/a/b", "s") == "^a/b"
    assert framework.smart_constant_value(True) is True
    assert framework.smart_constant_value(tf.placeholder(tf.bool, [])) is None
    assert framework.smart_case([(False, lambda: 1), (True, lambda: 2)], default=lambda: 3) == 2


def test_summaries_have_the_tags_that_they_are_given() -> None:
    old = contrib.deprecated
    with tf.name_scope("scope"):
        old.scalar_summary(["a", "b"], [1.0, 2.0])
        old.histogram_summary("spread", [1.0, 5.0])
        old.image_summary("picture", tf.zeros([1, 2, 2, 1]), collections=["others"])
        old.audio_summary("sound", tf.zeros([1, 8]), 8000, collections=["others"])
    tags = [value.tag for value in tf.Summary.FromString(run(old.merge_all_summaries())).value]
    assert tags == ["a", "b", "spread"]
    others = tf.Summary.FromString(run(old.merge_all_summaries("others")))
    assert [value.tag for value in others.value] == ["picture/image/0", "sound/audio/0"]
    assert old.merge_all_summaries("nothing") is None


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = RNG.normal(size=(400, 500)).astype(np.float32)
    for keep in (0.9, 0.6):
        dropped = run(contrib.nn.alpha_dropout(x, keep, seed=3))
        assert abs(dropped.mean()) < 0.02
        assert abs(dropped.std() - 1) < 0.02
        values, counts = np.unique(dropped, return_counts=True)
        assert abs(counts.max() / x.size - (1 - keep)) < 0.01  # what is dropped has one value
        assert values[counts.argmax()] < -0.5
    assert run(contrib.nn.alpha_dropout(x, 1.0)) is not None
    with pytest.raises(ValueError, match=r"range \(0, 1\]"):
        contrib.nn.alpha_dropout(x, 1.5)


def test_softplus_and_nth_elements() -> None:
    x = np.linspace(-3, 3, 7).astype(np.float32)
    ramp, clipped = run([contrib.nn.scaled_softplus(x, 0.5), contrib.nn.scaled_softplus(x, 0.5, clip=1.0)])
    np.testing.assert_allclose(ramp, 0.5 * np.log1p(np.exp(x / 0.5)), rtol=1e-5)
    np.testing.assert_allclose(clipped, np.minimum(ramp, 1), rtol=1e-6)
    rows = RNG.normal(size=(3, 5)).astype(np.float32)
    least, largest = run([contrib.nn.nth_element(rows, 1), contrib.nn.nth_element(rows, 1, reverse=True)])
    np.testing.assert_array_equal(least, np.sort(rows)[:, 1])
    np.testing.assert_array_equal(largest, np.sort(rows)[:, -2])


def test_embeddings() -> None:
    table = RNG.normal(size=(6, 3)).astype(np.float32)
    ids = np.array([[1, 4, 1], [0, 0, 2]])
    found = run(contrib.layers.embedding_lookup_unique(tf.constant(table), ids))
    np.testing.assert_array_equal(found, table[ids])
    for sparse in (True, False):
        given = tf.constant_initializer(table)
        bags = contrib.layers.bow_encoder(ids, 6, 3, sparse, given, scope=f"bag_{sparse}")
        expected = [table[row[row > 0] if sparse else row].mean(0) for row in ids]
        np.testing.assert_allclose(run(bags), expected, rtol=1e-5)
    rows = tf.SparseTensor([[0, 0], [0, 1]], [1, 2], [2, 3])
    bags = contrib.layers.bow_encoder(rows, 6, 3, initializer=given, scope="of_sparse")
    np.testing.assert_allclose(run(bags), [table[1:3].mean(0), table[0]], rtol=1e-5)
    with pytest.raises(TypeError, match="dense"):
        contrib.layers.bow_encoder(rows, 6, 3, sparse_lookup=False, scope="wrong")


def test_a_large_shape_may_hold_a_size_that_was_halved() -> None:
    assert tf.zeros([500, 64 / 2, 32]).shape.as_list() == [500, 32, 32]
    assert run(tf.ones([500, 64 / 2, 32])).sum() == 500 * 32 * 32
