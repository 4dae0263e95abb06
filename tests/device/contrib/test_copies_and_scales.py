"""`tf.contrib.copy_graph`, `mixed_precision`, `text` and `util`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf


def test_operations_go_to_another_graph() -> None:
    copies = tf.contrib.copy_graph
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        w = tf.get_variable("w", initializer=3.0, collections=["global_variables", "own"])
        with tf.control_dependencies([tf.Assert(x > 0, [x])]):
            y = tf.cond(x > 1.0, lambda: w * x, lambda: x) + 1.0
        tf.add_to_collection("results", y)
    other = tf.Graph()
    for scope in ("", "copy"):
        prefix = f"{scope}/" if scope else ""
        variable = copies.copy_variable_to_graph(w, other, scope)
        assert variable.op.name == f"{prefix}w"
        assert other.get_collection(f"{prefix}own") == [variable]
        copied = copies.copy_op_to_graph(y, other, [variable], scope)
        assert copies.copy_op_to_graph(y, other, [variable], scope) is copied
        assert copies.get_copied_op(y, other, scope) is copied
        assert other.get_collection(f"{prefix}results") == [copied]
        with tf.Session(graph=other) as session:
            session.run(variable.initializer)
            assert session.run(copied, {f"{prefix}x:0": 2.0}) == 7.0
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(copied, {f"{prefix}x:0": -2.0})
    with pytest.raises(TypeError, match="is not a Variable"):
        copies.copy_variable_to_graph(y, other)
    with pytest.raises(TypeError, match="Could not copy"):
        copies.copy_op_to_graph("y", other, [])
    with pytest.raises(KeyError):
        copies.get_copied_op(y, other, "elsewhere")


def test_a_scale_follows_the_gradients() -> None:
    mixed = tf.contrib.mixed_precision
    manager = mixed.ExponentialUpdateLossScaleManager(8.0, 2, 2, 2.0, 0.5)
    factor, w = tf.placeholder(tf.float32, []), tf.get_variable("w", initializer=[1.0, 2.0])
    optimizer = mixed.LossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager)
    train = optimizer.minimize(tf.reduce_sum(tf.gather(w, [0]) * factor) + w[1])
    scales = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for given in (0.5, 0.5, 0.5, np.inf, 0.5, np.inf, 0.5):
            session.run(train, {factor: given})
            scales.append(float(session.run(manager.get_loss_scale())))
        np.testing.assert_allclose(session.run(w), [1.0 - 5 * 0.5, 2.0 - 5])
    assert scales == [8.0, 16.0, 16.0, 16.0, 16.0, 8.0, 8.0]
    with pytest.raises(ValueError, match="at least 1"):
        mixed.FixedLossScaleManager(0.5)


@pytest.mark.parametrize("with_self", [False, True])
def test_words_and_those_around(with_self: bool, tmp_path: Path) -> None:
    words = ["a", "b", "c", "d", "e"]
    pairs = tf.contrib.text.skip_gram_sample(words, 2, 2, 1, 3, with_self)
    near = tf.contrib.text.skip_gram_sample(words, 0, 2, emit_self_as_target=with_self, seed=1)
    (tmp_path / "counts.csv").write_text("a,5\nb,1\nd,4\n")
    known = tf.contrib.text.skip_gram_sample_with_text_vocab(
        words, str(tmp_path / "counts.csv"), vocab_min_count=2, emit_self_as_target=with_self
    )
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        got, few, listed = session.run([pairs, near, known])

    def joined(found: Any) -> set[bytes]:
        return {a + b for a, b in zip(*found, strict=True)}

    def expected(text: str, reach: int) -> set[bytes]:
        places = [(i, j) for i in range(len(text)) for j in range(len(text)) if abs(i - j) <= reach]
        return {(text[i] + text[j]).encode() for i, j in places if with_self or i != j}

    assert joined(got) == expected("bcd", 2)
    assert joined(listed) == expected("ad", 5)
    assert joined(few) <= expected("abcde", 2)
    if with_self:
        assert expected("abcde", 0) <= joined(few)


def test_what_is_refused_of_words() -> None:
    sample = tf.contrib.text.skip_gram_sample
    with pytest.raises(ValueError, match="vocab_freq_table is not provided"):
        sample(["a"], vocab_min_count=1)
    with pytest.raises(ValueError, match="both must be provided"):
        sample(["a"], vocab_freq_table=object(), corpus_size=4)
    with pytest.raises(ValueError, match="rank 1"):
        sample([["a"]])
    with tf.Session() as session:
        for least, largest in ((-1, 2), (1, -1), (3, 2)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="skips"):
                session.run(sample(["a"], least, largest))


def test_types_of_a_graph() -> None:
    with tf.Graph().as_default() as graph:
        tf.cond(tf.placeholder(tf.bool, []), lambda: tf.sin(1.0), lambda: 0.0)
    message = graph.as_graph_def()
    used = tf.contrib.util.ops_used_by_graph_def(message)
    assert {"Placeholder", "Sin"} <= set(used)
    assert not set(used) & {function.signature.name for function in message.library.function}
    assert [op.name for op in tf.contrib.util.stripped_op_list_for_graph(message).op] == sorted(used)
