"""`tf.contrib.model_pruning`: masks of weights, in variables, layers and cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

pruning = tf.contrib.model_pruning
RNG = np.random.default_rng(5)


def hparams(text: str) -> Any:
    return pruning.get_pruning_hparams().parse(text)


def test_masks_follow_the_steps() -> None:
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=np.arange(1.0, 101.0, dtype=np.float32))
    masked = pruning.apply_mask(w)
    settings = "target_sparsity=0.8,sparsity_function_end_step=10,pruning_frequency=5,sparsity_function_exponent=1"
    update = pruning.Pruning(hparams(settings)).conditional_mask_update_op()
    counts = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(13):
            session.run(step.assign_add(1))
            session.run(update)
            counts.append(np.count_nonzero(session.run(masked)))
        assert counts == [100] * 4 + [60] * 5 + [20] * 4
        assert session.run(pruning.get_weight_sparsity()) == [pytest.approx(0.8)]
        assert session.run(pruning.get_thresholds()) == [81.0]
    assert [len(found()) for found in (pruning.get_weights, pruning.get_masks, pruning.get_masked_weights)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ("block_height=2,block_width=2,block_pooling_function=MAX", [[0, 1], [0, 1]]),
        ("block_height=2,block_width=2,block_pooling_function=AVG", [[1, 0], [1, 0]]),
        ("block_dims_map=[w:2x-1]", [[0, 0], [1, 1]]),
    ],
)
def test_blocks_are_kept_as_a_whole(settings: str, kept: list[list[int]]) -> None:
    values = np.array([[3, 3, 0, 5], [3, -3, 0, 0], [4, 4, 9, 0], [-4, 4, 0, 0]], np.float32)
    mask = pruning.apply_mask(tf.get_variable("w", initializer=values))
    update = pruning.Pruning(hparams(settings), global_step=0, sparsity=0.5).mask_update_op()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(update)
        np.testing.assert_array_equal(session.run(mask), values * np.kron(kept, np.ones([2, 2])))


def test_parts_of_a_partitioned_weight() -> None:
    with tf.variable_scope("scope", partitioner=tf.fixed_size_partitioner(3)):
        w = tf.get_variable("w", initializer=tf.range(1.0, 13.0))
        masked = pruning.apply_mask(w, tf.get_variable_scope())
    update = pruning.Pruning(global_step=0, sparsity=0.75).mask_update_op()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(update)
        np.testing.assert_array_equal(session.run(masked), [0.0] * 9 + [10.0, 11.0, 12.0])


def test_layers_and_cells_compute_with_masked_weights() -> None:
    x = tf.constant(RNG.normal(size=(2, 6, 6, 3)), tf.float32)
    picture = pruning.masked_conv2d(x, 4, 3)
    dense = pruning.masked_fully_connected(tf.layers.flatten(picture), 5)
    steps = tf.reshape(dense, [2, 5, 1])
    cells = [pruning.MaskedBasicLSTMCell(3), pruning.MaskedLSTMCell(4, num_proj=2)]
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), steps, dtype=tf.float32)
    tf.losses.mean_squared_error(tf.zeros_like(outputs), outputs)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.losses.get_total_loss())
    names = {v.op.name for v in tf.global_variables()}
    assert {"Conv/weights", "Conv/mask", "fully_connected/biases", "fully_connected/threshold"} < names
    assert tf.get_collection("model_variables")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(outputs)
        assert np.all(np.isfinite(before))
        assert np.any(before)
        for mask in pruning.get_masks():
            mask.load(np.zeros(mask.shape.as_list(), np.float32), session)
        assert not np.any(session.run(outputs))
        assert not np.any(session.run(pruning.get_masked_weights()[0]))
        for mask in pruning.get_masks():
            mask.load(np.ones(mask.shape.as_list(), np.float32), session)
        session.run(train)
        assert np.square(session.run(outputs)).sum() < np.square(before).sum()
    assert len(pruning.get_masks()) == 4


def test_a_pruned_graph_has_no_masks(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 3], "x")
        y = tf.identity(pruning.masked_fully_connected(x, 2, activation_fn=None), "y")
        update = pruning.Pruning(global_step=0, sparsity=0.5).mask_update_op()
        session.run(tf.global_variables_initializer())
        session.run(update)
        given = RNG.normal(size=(4, 3))
        expected = session.run(y, {x: given})
        tf.train.Saver().save(session, str(tmp_path / "model"))
    with_masks = pruning.graph_def_from_checkpoint(str(tmp_path), ["y"])
    stripped = pruning.strip_pruning_vars_fn(with_masks, ["y"])
    assert any("mask" in node.name.rpartition("/")[2] for node in with_masks.node if node.op == "Const")
    assert not [node.name for node in stripped.node if node.name.endswith("/mask")]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(stripped, name="")
        np.testing.assert_allclose(session.run("y:0", {"x:0": given}), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="Could not find a checkpoint"):
        pruning.graph_def_from_checkpoint(str(tmp_path / "none"), ["y"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("begin_pruning_step=-1", "begin_pruning_step"),
        ("begin_pruning_step=5,end_pruning_step=5", "begin before it can end"),
        ("sparsity_function_begin_step=100", "begin_step < end_step"),
        ("threshold_decay=1.0", "threshold_decay"),
        ("target_sparsity=1.0", "target_sparsity"),
        ("weight_sparsity_map=[w:1.0]", "can not exceed"),
        ("block_dims_map=[w:4]", "Expected 2 values"),
    ],
)
def test_what_is_refused(settings: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pruning.Pruning(hparams(settings), global_step=0)
