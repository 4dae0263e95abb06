"""The operations on ensembles of boosted trees and on streams of quantiles, run by sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import anabranch as tf
from anabranch.ops import raw
from anabranch.proto import boosted_trees_pb2 as pb

Array = np.ndarray[Any, Any]

#: two trees of known leaves, the second not final: its root splits by feature 1
ENSEMBLE = """
    trees {
      nodes { bucketized_split { feature_id: 0 threshold: 2 left_id: 1 right_id: 2 } metadata { gain: 1 } }
      nodes { leaf { scalar: 0.5 } }
      nodes { categorical_split { feature_id: 1 value: 3 left_id: 3 right_id: 4 }
              metadata { gain: 2 original_leaf { scalar: 0.25 } } }
      nodes { leaf { scalar: -1 } }
      nodes { leaf { scalar: 2 } }
    }
    trees {
      nodes { bucketized_split { feature_id: 1 threshold: 1 left_id: 1 right_id: 2 } metadata { gain: -1 } }
      nodes { leaf { scalar: 4 } }
      nodes { leaf { scalar: 8 } }
    }
    tree_weights: 1 tree_weights: 0.5
    tree_metadata { num_layers_grown: 2 is_finalized: true }
    tree_metadata { num_layers_grown: 1 }
    growing_metadata { num_trees_attempted: 2 num_layers_attempted: 3 last_layer_node_start: 1 last_layer_node_end: 3 }
"""
FIRST, SECOND = np.array([0, 2, 3, 5], np.int32), np.array([0, 3, 3, 1], np.int32)
OF_FIRST_TREE = np.array([0.5, 0.5, -1, 2])
OF_SECOND_TREE = np.array([4, 8, 8, 4])


def message(text: str) -> pb.TreeEnsemble:
    return text_format.Parse(text, pb.TreeEnsemble())


def made(session: tf.Session, text: str = ENSEMBLE, stamp: int = 7) -> tf.Tensor:
    """The handle of an ensemble that is there."""
    handle = raw.BoostedTreesEnsembleResourceHandleOp()
    assert not session.run(raw.IsBoostedTreesEnsembleInitialized(handle))
    session.run(raw.BoostedTreesCreateEnsemble(handle, stamp, message(text).SerializeToString()))
    assert session.run(raw.IsBoostedTreesEnsembleInitialized(handle))
    return handle


def found(session: tf.Session, handle: tf.Tensor) -> pb.TreeEnsemble:
    return pb.TreeEnsemble.FromString(session.run(raw.BoostedTreesSerializeEnsemble(handle))[1])


def test_an_ensemble_is_made_once_and_replaced() -> None:
    """BoostedTreesEnsembleResourceHandleOp, IsBoostedTreesEnsembleInitialized, BoostedTreesCreateEnsemble,
    BoostedTreesSerializeEnsemble, BoostedTreesDeserializeEnsemble, BoostedTreesGetEnsembleStates.
    """
    with tf.Session() as session:
        handle = made(session)
        session.run(raw.BoostedTreesCreateEnsemble(handle, 99, b""))  # it is there already
        assert found(session, handle) == message(ENSEMBLE)
        states = session.run(raw.BoostedTreesGetEnsembleStates(handle))
        assert [np.asarray(s).tolist() for s in states] == [7, 2, 1, 3, [1, 3]]
        session.run(raw.BoostedTreesDeserializeEnsemble(handle, 8, b""))
        states = session.run(raw.BoostedTreesGetEnsembleStates(handle))
        assert [np.asarray(s).tolist() for s in states] == [8, 0, 0, 0, [0, 1]]


@pytest.mark.parametrize(
    "text",
    [
        "trees { nodes { leaf { scalar: 1 } } }",
        "trees { } tree_weights: 1",
        "trees { nodes { } } tree_weights: 1",
        "trees { nodes { bucketized_split { left_id: 0 right_id: 1 } } nodes { leaf { } } } tree_weights: 1",
        "trees { nodes { bucketized_split { left_id: 1 right_id: 2 } } nodes { leaf { } } } tree_weights: 1",
        "trees { nodes { dense_split { left_id: 1 right_id: 1 } } nodes { leaf { } } } tree_weights: 1",
    ],
)
def test_no_ensemble_is_used_whose_paths_do_not_end(text: str) -> None:
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="tree ensemble proto"):
        made(session, text)


def test_bytes_that_are_no_message() -> None:
    with tf.Session() as session:
        handle = made(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Unable to parse tree ensemble proto"):
            session.run(raw.BoostedTreesDeserializeEnsemble(handle, 1, b"\xff\xff"))
        with pytest.raises(tf.errors.InvalidArgumentError, match="needs the handle of a boosted trees ensemble"):
            session.run(raw.IsBoostedTreesEnsembleInitialized(raw.BoostedTreesQuantileStreamResourceHandleOp()))


# ---------------------------------------------------------------------- predictions
def test_predictions_are_sums_of_leaves() -> None:
    """BoostedTreesPredict, BoostedTreesExampleDebugOutputs."""
    with tf.Session() as session:
        handle = made(session)
        logits = raw.BoostedTreesPredict(handle, [FIRST, SECOND], logits_dimension=1)
        assert logits.shape.as_list() == [4, 1]
        np.testing.assert_array_equal(session.run(logits)[:, 0], OF_FIRST_TREE + OF_SECOND_TREE / 2)
        outputs = session.run(raw.BoostedTreesExampleDebugOutputs(handle, [FIRST, SECOND], logits_dimension=1))
        paths = [pb.DebugOutput.FromString(output) for output in outputs]
        assert [list(path.feature_ids) for path in paths] == [[0, 1], [0, 1], [0, 1, 1], [0, 1, 1]]
        assert list(paths[2].logits_path) == [0, 0.25, -1, 3]
        with pytest.raises(tf.errors.InternalError, match="3 logits"):
            session.run(raw.BoostedTreesPredict(handle, [FIRST, SECOND], logits_dimension=3))
        with pytest.raises(tf.errors.InvalidArgumentError, match="splits by feature 1, but there are 1"):
            session.run(raw.BoostedTreesPredict(handle, [FIRST], logits_dimension=1))


def test_an_empty_ensemble_predicts_zero() -> None:
    with tf.Session() as session:
        handle = made(session, "")
        assert session.run(raw.BoostedTreesPredict(handle, [FIRST], logits_dimension=2)).tolist() == [[0, 0]] * 4
        cached = raw.BoostedTreesTrainingPredict(handle, FIRST * 0, FIRST * 0 - 1, [FIRST], logits_dimension=1)
        logits, trees, nodes = session.run(cached)
        assert logits.tolist() == [[0]] * 4
        assert (trees.tolist(), nodes.tolist()) == ([0] * 4, [0] * 4)
        with pytest.raises(tf.errors.InvalidArgumentError, match="no trees"):
            session.run(raw.BoostedTreesExampleDebugOutputs(handle, [FIRST], logits_dimension=1))


def test_training_predicts_what_changed_since_a_node() -> None:
    """BoostedTreesTrainingPredict: not seen; at a node split since; at a leaf of the first tree; of the last."""
    tree_ids, node_ids = np.array([0, 0, 0, 1], np.int32), np.array([-1, 1, 2, 1], np.int32)
    with tf.Session() as session:
        handle = made(session)
        outputs = raw.BoostedTreesTrainingPredict(handle, tree_ids, node_ids, [FIRST, SECOND], logits_dimension=1)
        logits, trees, nodes = session.run(outputs)
        whole = OF_FIRST_TREE + OF_SECOND_TREE / 2
        known = np.array([0, 0.5, 0.25, 2 + 4 / 2])
        np.testing.assert_array_equal(logits[:, 0], whole - known)
        assert (trees.tolist(), nodes.tolist()) == ([1] * 4, [1, 2, 2, 1])
        for trees_of, nodes_of in (([0, 0, 0, 2], node_ids), (tree_ids, [9, 0, 0, 0])):
            bad = raw.BoostedTreesTrainingPredict(
                handle, np.array(trees_of, np.int32), np.array(nodes_of, np.int32), [FIRST, SECOND], logits_dimension=1
            )
            with pytest.raises(tf.errors.InvalidArgumentError, match="cached_"):
                session.run(bad)


# ---------------------------------------------------------------------- growth
def update(handle: tf.Tensor, rows: list[tuple[int, int, float, int, float, float]], **options: Any) -> tf.Operation:
    """One split for each (feature, node, gain, threshold, left, right)."""
    columns = [
        [np.array([row[i]], t) for row in rows] for i, t in enumerate([np.int32] * 2 + [np.float32] + [np.int32])
    ]
    sides = [[np.array([[row[i]]], np.float32) for row in rows] for i in (4, 5)]
    depth, rate, pruning = options.get("depth", 2), options.get("rate", 0.5), options.get("pruning", 0)
    ids = np.array([row[0] for row in rows], np.int32)
    if "kind" not in options:
        return raw.BoostedTreesUpdateEnsemble(handle, ids, *columns[1:], *sides, depth, rate, pruning_mode=pruning)
    kinds = [np.array([options["kind"]], object)] * len(rows)
    dimensions = [np.array([5], np.int32)] * len(rows)
    return raw.BoostedTreesUpdateEnsembleV2(
        handle, [ids], dimensions, *columns[1:], *sides, kinds, depth, rate, np.int32(pruning)
    )


def test_a_layer_takes_the_best_split_of_each_node() -> None:
    """BoostedTreesUpdateEnsemble: the greatest gain; of equal ones the lowest feature."""
    with tf.Session() as session:
        handle = made(session, "")
        rows = [(4, 0, 1.5, 6, -2, 4), (1, 0, 1.5, 7, -6, 8), (0, 0, 1.0, 8, 9, 9)]
        session.run(update(handle, rows))
        ensemble = found(session, handle)
        split = ensemble.trees[0].nodes[0].bucketized_split
        assert (split.feature_id, split.threshold, split.left_id, split.right_id) == (1, 7, 1, 2)
        assert [node.leaf.scalar for node in ensemble.trees[0].nodes[1:]] == [-3, 4]
        states = session.run(raw.BoostedTreesGetEnsembleStates(handle))
        assert [np.asarray(s).tolist() for s in states] == [8, 1, 0, 1, [1, 3]]
        session.run(update(handle, [(2, 1, 0.5, 3, 2, 4)]))  # the last layer: the tree is final, the next one begins
        ensemble = found(session, handle)
        assert ensemble.trees[0].nodes[1].metadata.original_leaf.scalar == -3
        assert [node.leaf.scalar for node in ensemble.trees[0].nodes[2:]] == [4, -2, -1]
        assert [data.is_finalized for data in ensemble.tree_metadata] == [True, False]
        assert ensemble.trees[1] == message("trees { nodes { leaf { scalar: 0 } } }").trees[0]
        assert session.run(raw.BoostedTreesGetEnsembleStates(handle).last_layer_nodes_range).tolist() == [0, 1]
        with pytest.raises(tf.errors.InvalidArgumentError, match="node 1 is no leaf"):
            session.run(update(handle, [(2, 1, 0.5, 3, 2, 4)]))


@pytest.mark.parametrize("kind", [b"INEQUALITY_DEFAULT_LEFT", b"INEQUALITY_DEFAULT_RIGHT", b"EQUALITY_DEFAULT_RIGHT"])
def test_the_newer_update_knows_kinds_of_splits(kind: bytes) -> None:
    """BoostedTreesUpdateEnsembleV2."""
    with tf.Session() as session:
        handle = made(session, "")
        session.run(update(handle, [(3, 0, 1.0, 2, -2, 4)], kind=kind))
        node = found(session, handle).trees[0].nodes[0]
        is_equality = kind == b"EQUALITY_DEFAULT_RIGHT"
        split = node.categorical_split if is_equality else node.bucketized_split
        assert (split.feature_id, split.dimension_id, split.left_id, split.right_id) == (3, 5, 1, 2)
        assert (split.value if is_equality else split.threshold) == 2
        if not is_equality:
            assert split.default_direction == (1 if kind.endswith(b"RIGHT") else 0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="split_types"):
            session.run(update(handle, [(3, 1, 1.0, 2, -2, 4)], kind=b"other"))


def test_pruning_before() -> None:
    with tf.Session() as session:
        handle = made(session, "")
        session.run(update(handle, [(0, 0, -0.5, 2, -2, 4)], pruning=1))
        assert len(found(session, handle).trees[0].nodes) == 1
        session.run(update(handle, [(0, 0, 0.0, 2, -2, 4)], pruning=1))
        assert len(found(session, handle).trees[0].nodes) == 3
        assert session.run(raw.BoostedTreesGetEnsembleStates(handle).num_attempted_layers) == 2


@pytest.mark.parametrize("kind", [None, b"EQUALITY_DEFAULT_RIGHT"])
def test_pruning_afterwards_keeps_what_was_predicted(kind: bytes | None) -> None:
    """Cached nodes that went are mapped to where their examples are now, and what they predict changes accordingly."""
    options = {} if kind is None else {"kind": kind}
    with tf.Session() as session:
        handle = made(session, "")
        features = [np.array([0, 0, 1, 2], np.int32), np.array([0, 9, 0, 9], np.int32)]
        session.run(update(handle, [(0, 0, 3.0, 0, -2, 4)], depth=3, pruning=2, **options))
        session.run(update(handle, [(1, 1, -1.0, 0, 6, 8), (1, 2, 2.0, 0, 10, 12)], depth=3, pruning=2, **options))
        none = np.zeros(4, np.int32)
        seen = raw.BoostedTreesTrainingPredict(handle, none, none - 1, features, logits_dimension=1)
        before, trees, nodes = session.run(seen)
        session.run(update(handle, [(0, 3, -2.0, 0, 1, 1)], depth=3, pruning=2, **options))
        ensemble = found(session, handle)
        assert len(ensemble.trees[0].nodes) == 5
        assert ensemble.trees[0].nodes[1].leaf.scalar == -1
        assert [u.new_node_id for u in ensemble.tree_metadata[0].post_pruned_nodes_meta] == [0, 1, 2, 1, 1, 3, 4, 1, 1]
        later = raw.BoostedTreesTrainingPredict(handle, trees, nodes, features, logits_dimension=1)
        change = session.run(later)[0]
        whole = session.run(raw.BoostedTreesPredict(handle, features, logits_dimension=1))
        np.testing.assert_allclose(before + change, whole, rtol=1e-6)


def test_the_bias_is_centered_first() -> None:
    """BoostedTreesCenterBias: the weight of a leaf that holds all examples."""
    with tf.Session() as session:
        handle = made(session, "")
        center = raw.BoostedTreesCenterBias(handle, [[1.5]], [[0.5]], 0.0, 0.25)
        assert session.run(center)
        assert found(session, handle).trees[0].nodes[0].leaf.scalar == -2
        small = raw.BoostedTreesCenterBias(handle, [[0.01]], [[0.5]], 0.0, 0.5)
        assert not session.run(small)
        np.testing.assert_allclose(found(session, handle).trees[0].nodes[0].leaf.scalar, -2.01, rtol=1e-6)
        with pytest.raises(tf.errors.InvalidArgumentError, match="one logit"):
            session.run(raw.BoostedTreesCenterBias(handle, [[0.1, 1]], [[0.5, 1]], 0.0, 0.5))


def test_leaves_of_two_logits() -> None:
    with tf.Session() as session:
        handle = made(session, "")
        side = np.array([[1.0, 2.0]], np.float32)
        session.run(
            raw.BoostedTreesUpdateEnsembleV2(
                handle, [np.array([0], np.int32)], [np.array([0], np.int32)], [np.array([0], np.int32)],
                [np.array([1], np.float32)], [np.array([2], np.int32)], [side], [-side],
                [np.array([b"INEQUALITY_DEFAULT_LEFT"], object)], 1, 0.5, 0, logits_dimension=2,
            )
        )  # fmt: skip
        logits = session.run(raw.BoostedTreesPredict(handle, [FIRST], logits_dimension=2))
        assert logits.tolist() == [[0.5, 1], [0.5, 1], [-0.5, -1], [-0.5, -1]]


# ---------------------------------------------------------------------- quantiles
def streams(session: tf.Session, epsilon: float, count: int) -> tf.Tensor:
    handle = raw.BoostedTreesQuantileStreamResourceHandleOp(shared_name="quantiles")
    assert not session.run(raw.IsBoostedTreesQuantileStreamResourceInitialized(handle))
    session.run(raw.BoostedTreesCreateQuantileStreamResource(handle, epsilon, count))
    assert session.run(raw.IsBoostedTreesQuantileStreamResourceInitialized(handle))
    return handle


@pytest.mark.parametrize("exact", [False, True])
def test_the_rank_of_a_boundary_is_off_by_no_more_than_epsilon(exact: bool) -> None:
    """BoostedTreesQuantileStreamResourceHandleOp, IsBoostedTreesQuantileStreamResourceInitialized,
    BoostedTreesCreateQuantileStreamResource, BoostedTreesQuantileStreamResourceAddSummaries,
    BoostedTreesQuantileStreamResourceFlush, BoostedTreesQuantileStreamResourceGetBucketBoundaries.
    """
    random = np.random.default_rng(8)
    values, weights = random.normal(size=(20, 500)).astype(np.float32), random.uniform(0.5, 2, (20, 500))
    epsilon, buckets = 0.02, 10
    with tf.Session() as session:
        handle = streams(session, epsilon, 2)
        numbers, weight = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        summaries = raw.BoostedTreesMakeQuantileSummaries([numbers, -numbers], weight, epsilon)
        add = raw.BoostedTreesQuantileStreamResourceAddSummaries(handle, summaries)
        for row, its_weights in zip(values, weights, strict=True):
            session.run(add, {numbers: row, weight: its_weights})
        session.run(raw.BoostedTreesQuantileStreamResourceFlush(handle, buckets, generate_quantiles=exact))
        boundaries = raw.BoostedTreesQuantileStreamResourceGetBucketBoundaries(handle, num_features=2)
        for sign, found_ones in zip((1, -1), session.run(boundaries), strict=True):
            assert (np.diff(found_ones) > 0).all()
            ranks = np.array([weights[sign * values <= b].sum() for b in found_ones]) / weights.sum()
            gaps = np.diff(ranks)
            # two buckets are one where there would be one too many
            assert gaps.max() <= (1 if exact else 2) / buckets + 4 * epsilon
            assert np.sort(gaps)[-2] <= 1 / buckets + 4 * epsilon
            if exact:
                np.testing.assert_allclose(ranks, np.linspace(0, 1, buckets), atol=3 * epsilon)


def test_flushing_begins_anew_and_boundaries_are_put_back() -> None:
    """BoostedTreesFlushQuantileSummaries, BoostedTreesQuantileStreamResourceDeserialize."""
    with tf.Session() as session:
        handle = streams(session, 0.1, 1)
        summary = np.array([[1, 2, 0, 2], [5, 1, 2, 3]], np.float32)
        add = raw.BoostedTreesQuantileStreamResourceAddSummaries(handle, [summary])
        flush = raw.BoostedTreesFlushQuantileSummaries(handle, num_features=1)
        session.run(add)
        session.run(add)
        merged = np.array([[1, 4, 0, 4], [5, 2, 4, 6]])
        np.testing.assert_array_equal(session.run(flush)[0], merged)
        assert session.run(flush)[0].shape == (0, 4)
        boundaries = raw.BoostedTreesQuantileStreamResourceGetBucketBoundaries(handle, num_features=1)
        assert session.run(boundaries)[0].size == 0
        session.run(raw.BoostedTreesQuantileStreamResourceDeserialize(handle, [np.array([1, 2.5], np.float32)]))
        assert session.run(boundaries)[0].tolist() == [1, 2.5]
        two = raw.BoostedTreesQuantileStreamResourceGetBucketBoundaries(handle, num_features=2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="1 streams, but num_features is 2"):
            session.run(two)
        with pytest.raises(tf.errors.InvalidArgumentError, match="four columns"):
            session.run(raw.BoostedTreesQuantileStreamResourceAddSummaries(handle, [summary[:, :3]]))


def test_values_between_two_summaries_get_the_ranks_of_both() -> None:
    with tf.Session() as session:
        handle = streams(session, 0.01, 1)
        numbers = tf.placeholder(tf.float32, [None])
        add = raw.BoostedTreesQuantileStreamResourceAddSummaries(
            handle, raw.BoostedTreesMakeQuantileSummaries([numbers], [1.0], 0.01)
        )
        for part in ([3, 1, 5, 5], [2, 3, 9, 9], [4, 0, 0, 7]):
            session.run(add, {numbers: part})
        found_one = session.run(raw.BoostedTreesFlushQuantileSummaries(handle, num_features=1))[0]
        values, counts = np.unique([3, 1, 5, 5, 2, 3, 9, 9, 4, 0, 0, 7], return_counts=True)
        ends = np.cumsum(counts)
        np.testing.assert_array_equal(found_one, np.stack([values, counts, ends - counts, ends], axis=1))


@pytest.mark.parametrize(("epsilon", "count"), [(0.0, 1), (1.0, 1), (0.1, -1)])
def test_streams_that_cannot_be(epsilon: float, count: int) -> None:
    handle = raw.BoostedTreesQuantileStreamResourceHandleOp()
    create = raw.BoostedTreesCreateQuantileStreamResource(handle, epsilon, count)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(create)
