"""Steps over sparse tensors: only what has as many elements as these runs on the host, all else is one program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import Plan, plan_listeners
from anabranch.xla.executable import EAGER_VARIANTS
from anabranch.xla.islands import Island

rng = np.random.default_rng(0)


@pytest.fixture
def plans() -> Iterator[list[Plan]]:
    made: list[Plan] = []
    plan_listeners.append(made.append)
    yield made
    plan_listeners.remove(made.append)


def on_host(plan: Plan) -> Counter[str]:
    return Counter(item.operation.type for item in plan.items if not isinstance(item, Island))


def ragged(rows: int, most: int, ids: int) -> tf.SparseTensorValue:
    """Up to `most` ids in each row; the longest has as many."""
    lengths = rng.integers(1, most + 1, rows)
    lengths[0] = most
    places = np.array([(row, i) for row, length in enumerate(lengths) for i in range(length)])
    return tf.SparseTensorValue(places, rng.integers(0, ids, len(places)), np.array([rows, most]))


def trained(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
    logits = tf.layers.dense(rows, 2)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.ones_like(logits) / 2, logits=logits))
    return loss, tf.train.AdagradOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize("parsed_in", ["pipeline", "step"])
def test_a_linear_model_of_parsed_features_is_one_program_around_its_ids(plans: list[Plan], parsed_in: str) -> None:
    feature, text = tf.train.Feature, [[b"a"], [b"b", b"c"], [], [b"a", b"b", b"d"]] * 4
    records = [
        tf.train.Example(
            features=tf.train.Features(feature={"tags": feature(bytes_list=tf.train.BytesList(value=words))})
        ).SerializeToString()
        for words in text
    ]
    column = tf.feature_column.categorical_column_with_hash_bucket("tags", 50)
    spec = tf.feature_column.make_parse_example_spec([column])
    batches = tf.data.Dataset.from_tensor_slices(records).repeat().batch(4)
    if parsed_in == "pipeline":
        features = batches.map(lambda batch: tf.io.parse_example(batch, spec)).make_one_shot_iterator().get_next()
    else:
        features = tf.io.parse_example(batches.make_one_shot_iterator().get_next(), spec)
    logits = tf.feature_column.linear_model(features, [column])
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones_like(logits), logits=logits))
    train = tf.train.FtrlOptimizer(0.1).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        plans.clear()
        losses = [session.run([loss, train])[0] for _ in range(8)]
    assert losses[0] == pytest.approx(np.log(2))
    assert losses[-1] < losses[0]
    plan = plans[0]
    # the dense part, and the update of the rows
    assert len(plan.islands) == 2
    assert len(plan.items) < 30
    assert not on_host(plan) & Counter(["Identity", "BiasAdd", "Exp", "Mul", "Sum", "Mean", "BroadcastGradientArgs"])


@pytest.mark.parametrize("ranked", [True, False])
def test_of_a_fed_sparse_tensor_the_number_of_elements_is_taken_to_change(
    plans: list[Plan], compilations: list[Any], ranked: bool
) -> None:
    """The same model is trained on dense matrices that say which part of a row each id has."""
    ids, parts = tf.sparse_placeholder(tf.int64, [None, None] if ranked else None), tf.placeholder(tf.float32, [8, 40])
    start, labels = rng.standard_normal((40, 3)).astype(np.float32), tf.constant(rng.random((8, 3)), tf.float32)
    table, dense_table = tf.Variable(start), tf.Variable(start)
    rows = tf.reshape(tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean"), [-1, 3])
    optimizer = tf.train.AdagradOptimizer(0.1)
    train = optimizer.minimize(tf.reduce_sum(tf.square(tf.tanh(rows) - labels)), var_list=[table])
    dense_loss = tf.reduce_sum(tf.square(tf.tanh(parts @ dense_table) - labels))
    dense_train = optimizer.minimize(dense_loss, var_list=[dense_table])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        plans.clear()
        for most in [3, 3, 3, *range(1, 40)]:
            if most == 1:  # the first runs of a program run its kernels
                compilations.clear()
            given = ragged(8, most, 40)
            session.run(train, {ids: given})
            if most == 39:
                made = len(compilations)
            where = np.asarray(given.indices)[:, 0]
            counts = np.zeros((8, 40), np.float32)
            np.add.at(counts, (where, np.asarray(given.values)), 1 / np.bincount(where)[where])
            session.run(dense_train, {parts: counts})
        np.testing.assert_allclose(*session.run([table, dense_table]), rtol=1e-3, atol=1e-4)
    assert {"Tanh", "RealDiv"} <= {op.type for island in plans[0].islands for op in island.operations}
    assert len(plans[0].islands) == 2
    # neither the number of ids nor the longest row makes another program: those are of the dense model, and of updates
    assert made <= 2 + EAGER_VARIANTS


def test_what_partitioned_tables_give_has_the_size_of_what_was_dealt_out(plans: list[Plan]) -> None:
    ids = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [40, 3], partitioner=tf.fixed_size_partitioner(4))
    rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
    loss, train = trained(rows)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        whole = session.run(tf.convert_to_tensor(table))
        wanted = rng.integers(0, 40, 16)
        np.testing.assert_array_equal(session.run(rows, {ids: wanted}), whole[wanted])
        plans.clear()
        losses = [session.run([loss, train], {ids: wanted})[0] for _ in range(10)]
    assert losses[-1] < losses[0]
    host = on_host(plans[0])
    assert host.keys() == {"DynamicPartition", "ResourceGather", "ParallelDynamicStitch", "GatherV2"}
    assert len(plans[0].islands) == 3


def test_a_reshape_to_a_steady_shape_ends_what_changes(plans: list[Plan]) -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    kept = tf.boolean_mask(x, x > 0)
    filled = tf.concat([kept, tf.zeros([tf.size(x) - tf.size(kept)])], 0)
    steady = tf.exp(tf.reshape(filled, tf.shape(x)))
    open_ended = tf.exp(tf.reshape(kept, [-1, 1]))
    given = np.array([[1, -1, 2, -2], [3, -3, 4, -4]], np.float32)
    with tf.Session() as session:
        plans.clear()
        got, rest = session.run([steady, open_ended], {x: given})
    np.testing.assert_allclose(got, np.exp([[1, 2, 3, 4], [0, 0, 0, 0]]), rtol=1e-6)
    np.testing.assert_allclose(rest, np.exp([[1], [2], [3], [4]]), rtol=1e-6)
    assert on_host(plans[0])["Exp"] == 1


def test_a_size_picked_out_of_a_fed_shape_is_all_that_a_program_is_compiled_for(compilations: list[Any]) -> None:
    shape, x = tf.placeholder(tf.int64, [2]), tf.placeholder(tf.float32, [6])
    y = tf.reduce_sum(tf.tanh(tf.reshape(x, tf.stack([shape[0], -1]))), 1)
    with tf.Session() as session:
        for columns in range(40):
            assert session.run(y, {shape: [2, columns], x: np.ones(6)}).shape == (2,)
    assert len(compilations) == 1


def test_updates_of_changing_rows_are_not_compiled_in_a_session_either(compilations: list[Any]) -> None:
    ids = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [40, 3], initializer=tf.zeros_initializer())
    grad = tf.placeholder(tf.float32, [None, 3])
    train = tf.train.AdagradOptimizer(1.0).apply_gradients([(tf.IndexedSlices(grad, ids), table)])
    expected, squares = np.zeros((40, 3)), np.full((40, 3), 0.1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        compilations.clear()
        for size in [5, 6, 7, 8, 9] * 20:
            wanted = rng.integers(0, 40, size)
            session.run(train, {ids: wanted, grad: np.ones((size, 3))})
            summed = np.bincount(wanted, minlength=40)[:, None]
            squares += summed**2
            expected -= summed / np.sqrt(squares)
        np.testing.assert_allclose(session.run(table), expected, rtol=1e-4)
    assert len(compilations) <= EAGER_VARIANTS


def test_a_shape_of_unknown_rank_that_is_fed_does_not_cut_what_follows(
    plans: list[Plan], compilations: list[Any]
) -> None:
    """All but its last element becomes a part of the shape of what was looked up."""
    ids = tf.sparse_placeholder(tf.int64)
    table = tf.get_variable("table", [40, 3])
    rows = tf.nn.safe_embedding_lookup_sparse(table, ids, None, combiner="mean")
    loss, train = trained(tf.reshape(rows, [-1, 3]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        whole = session.run(table)

        def fed(*shape: int) -> Any:
            at = np.argwhere(rng.random(shape) < 0.5)
            return tf.SparseTensorValue(at, rng.integers(0, 40, len(at)), shape)

        for shape in ((4, 3), (2, 3, 2), (6, 5)):
            given = fed(*shape)
            expected = np.zeros((*shape[:-1], 3), np.float32)
            for place in np.ndindex(shape[:-1]):
                here = given.values[(given.indices[:, :-1] == place).all(1)]
                expected[place] = whole[here].mean(0) if len(here) else 0
            np.testing.assert_allclose(session.run(rows, {ids: given}), expected, rtol=1e-5)
        plans.clear()
        session.run([loss, train], {ids: fed(8, 4)})
        assert len(plans[0].islands) == 2, "the loss with its gradients, and the update of the table"
        compilations.clear()
        for longest in range(2, 30):
            session.run([loss, train], {ids: fed(8, longest)})
        assert len(compilations) <= 1, "how long a row is does not matter"
