"""Embedding lookups, whole and in parts, and the losses over sampled classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from anabranch.autodiff.gradients import gradients
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.nn import candidate_sampling as sampling, embedding
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.ops import raw
from anabranch.session import Session

Array = np.ndarray[Any, Any]
TABLE = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)


def run(fetches: Any, variables: Any = (), feeds: Any = None) -> Any:
    with Session() as session:
        session.run([v.initializer for v in variables])
        return session.run(fetches, feeds)


def split_table(count: int, strategy: str) -> list[Variable]:
    parts = [TABLE[i::count] for i in range(count)] if strategy == "mod" else np.array_split(TABLE, count)
    return [Variable(part) for part in parts]


# ---------------------------------------------------------------------- lookups
@pytest.mark.parametrize("ids", [[3, 0, 3], [[10], [2]], 7])
def test_from_one_variable(ids: Any) -> None:
    table = Variable(TABLE)
    rows = embedding.embedding_lookup(table, ids)
    assert rows.op.graph.get_operations()
    assert "ReadVariableOp" not in {op.type for op in _ancestors(rows)}
    np.testing.assert_array_equal(run(rows, [table]), TABLE[np.array(ids)])


def _ancestors(tensor: Any) -> set[Any]:
    found, stack = set(), [tensor.op]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(t.op for t in op.inputs)
    return found


def test_from_a_tensor() -> None:
    np.testing.assert_array_equal(run(embedding.embedding_lookup(TABLE, [1, 2])), TABLE[[1, 2]])


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_from_parts(strategy: str, count: int, dtype: Any) -> None:
    parts = split_table(count, strategy)
    ids = np.array([[10, 0, 5], [5, 9, 4]], dtype)
    rows = embedding.embedding_lookup(parts, ids, strategy)
    assert rows.shape.as_list() == [2, 3, 3]
    np.testing.assert_array_equal(run(rows, parts), TABLE[ids])


def test_gradients_reach_each_part_as_slices() -> None:
    parts = split_table(2, "mod")
    rows = embedding.embedding_lookup(parts, [4, 1, 4])
    found = gradients(raw.Mul(rows, rows), [p.handle for p in parts])
    assert all(isinstance(g, IndexedSlices) for g in found)
    even, odd = run(found, parts)
    assert even.indices.tolist() == [2, 2]
    assert odd.indices.tolist() == [0]
    np.testing.assert_allclose(even.values, 2 * TABLE[[4, 4]], rtol=1e-6)
    np.testing.assert_allclose(odd.values, 2 * TABLE[[1]], rtol=1e-6)


def test_rows_are_shortened_to_max_norm() -> None:
    table = Variable(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
    rows = embedding.embedding_lookup(table, [0, 1, 2], max_norm=1.0)
    (grad,) = gradients(rows, [table.handle])
    values, slopes = run([rows, grad.values], [table])
    np.testing.assert_allclose(values, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    assert np.all(np.isfinite(slopes))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="Need at least one"):
        embedding.embedding_lookup([], [1])
    with pytest.raises(ValueError, match="partition strategy: round"):
        embedding.embedding_lookup([TABLE, TABLE], [1], "round")
    table = Variable(TABLE)
    with pytest.raises(InvalidArgumentError, match=r"11 is not in \[0, 11\)"):
        run(embedding.embedding_lookup(table, [11]), [table])


# ---------------------------------------------------------------------- several ids per row
PLACES = np.array([[0, 0], [0, 2], [2, 0], [2, 1], [2, 3]])
IDS = np.array([1, 3, 0, 10, 1])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.5], np.float32)
SHAPE = np.array([4, 4])


def combined(combiner: str, weights: Array) -> Array:
    result = np.zeros((4, 3))
    for row in range(4):
        chosen = PLACES[:, 0] == row
        w = weights[chosen]
        total = w @ TABLE[IDS[chosen]]
        scale = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt(np.sum(w**2))}[combiner]
        result[row] = total / scale if chosen.any() else 0.0
    return result


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_sparse_lookups(combiner: str, weighted: bool, count: int) -> None:
    parts = split_table(count, "mod")
    weights = SparseTensor(PLACES, WEIGHTS, SHAPE) if weighted else None
    found = embedding.embedding_lookup_sparse(parts, SparseTensor(PLACES, IDS, SHAPE), weights, combiner=combiner)
    expected = combined(combiner, WEIGHTS if weighted else np.ones(5))
    np.testing.assert_allclose(run(found, parts), expected, rtol=1e-5, atol=1e-6)


def test_an_unknown_combiner() -> None:
    with pytest.raises(ValueError, match="combiner must be one of"):
        embedding.embedding_lookup_sparse(TABLE, SparseTensor(PLACES, IDS, SHAPE), None, combiner="max")


@pytest.mark.parametrize("default_id", [None, 5])
def test_safe_lookups_leave_invalid_ids_out(default_id: int | None) -> None:
    ids, weights = np.array([1, -1, 0, 10, 1]), np.array([1.0, 2.0, -4.0, 3.0, 1.5], np.float32)
    found = embedding.safe_embedding_lookup_sparse(
        TABLE, SparseTensor(PLACES, ids, SHAPE), SparseTensor(PLACES, weights, SHAPE), default_id=default_id
    )
    empty = np.zeros(3) if default_id is None else TABLE[5]
    third = (3.0 * TABLE[10] + 1.5 * TABLE[1]) / 4.5
    np.testing.assert_allclose(run(found), [TABLE[1], empty, third, empty], rtol=1e-5)


def test_safe_lookups_of_higher_rank() -> None:
    ids = SparseTensor([[0, 1, 0], [1, 0, 0], [1, 0, 1]], np.array([4, 2, 3]), [2, 2, 2])
    found = embedding.safe_embedding_lookup_sparse(TABLE, ids, combiner="sum")
    assert found.shape.as_list()[2:] == [3]
    np.testing.assert_allclose(
        run(found), [[np.zeros(3), TABLE[4]], [TABLE[2] + TABLE[3], np.zeros(3)]], rtol=1e-5, atol=1e-6
    )


# ---------------------------------------------------------------------- sampled classes
def test_samplers_draw_by_their_distribution() -> None:
    true = np.array([[0, 1]])
    weights = [1.0, 2.0, 3.0, 4.0]
    made = [
        sampling.uniform_candidate_sampler(true, 2, 5000, False, 4, seed=1),
        sampling.log_uniform_candidate_sampler(true, 2, 5000, False, 4, seed=1),
        sampling.fixed_unigram_candidate_sampler(true, 2, 5000, False, 4, unigrams=weights, seed=1),
    ]
    log_uniform = np.log((np.arange(4) + 2) / (np.arange(4) + 1)) / np.log(5)
    for (sampled, true_count, _), p in zip(run(made), ([0.25] * 4, log_uniform, np.array(weights) / 10), strict=True):
        assert scipy.stats.chisquare(np.bincount(sampled, minlength=4), np.array(p) * 5000).pvalue > 1e-4
        np.testing.assert_allclose(true_count, [np.array(p)[:2] * 5000], rtol=1e-5)


def test_a_vocabulary_file_and_shards(tmp_path: Any) -> None:
    (tmp_path / "words.txt").write_text("the,6\nand,3\nof,1\n", "utf-8")
    sampled, _, _ = run(
        sampling.fixed_unigram_candidate_sampler(
            [[0, 1]], 2, 50, False, 3, vocab_file=str(tmp_path / "words.txt"), num_shards=2, shard=0, seed=1
        )
    )
    assert set(sampled) == {0, 2}


CLASSES, DIM, BATCH = 9, 4, 3


class Losses:
    """A sampled loss, its pieces, and NumPy's value of it from the same sample."""

    def __init__(self, num_true: int) -> None:
        random = np.random.default_rng(2)
        self.weights = random.normal(size=(CLASSES, DIM)).astype(np.float32)
        self.biases = random.normal(size=CLASSES).astype(np.float32)
        self.inputs = random.normal(size=(BATCH, DIM)).astype(np.float32)
        self.labels = random.integers(0, CLASSES, (BATCH, num_true))
        self.num_true = num_true
        self.values = sampling.uniform_candidate_sampler(self.labels, num_true, 5, True, CLASSES, seed=4)

    def arguments(self) -> tuple[Any, ...]:
        return self.weights, self.biases, self.labels, self.inputs, 5, CLASSES, self.num_true, self.values

    def logits(self, sample: Any, without_hits: bool) -> tuple[Array, Array]:
        sampled, true_count, sampled_count = sample
        every = self.inputs @ self.weights.T + self.biases
        true = np.take_along_axis(every, self.labels, 1) - np.log(true_count)
        others = every[:, sampled] - np.log(sampled_count)
        if without_hits:
            others = np.where((self.labels[:, :, None] == sampled).any(1), -1e38, others)
        targets = np.concatenate([np.full(true.shape, 1 / self.num_true), np.zeros(others.shape)], 1)
        return np.concatenate([true, others], 1), targets


@pytest.mark.parametrize("num_true", [1, 2])
@pytest.mark.parametrize("without_hits", [False, True])
def test_nce_loss(num_true: int, without_hits: bool) -> None:
    case = Losses(num_true)
    loss = sampling.nce_loss(*case.arguments(), remove_accidental_hits=without_hits)
    found, sample = run([loss, list(case.values)])
    x, z = case.logits(sample, without_hits)
    expected = (np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("num_true", [1, 2])
@pytest.mark.parametrize("without_hits", [False, True])
def test_sampled_softmax_loss(num_true: int, without_hits: bool) -> None:
    case = Losses(num_true)
    loss = sampling.sampled_softmax_loss(*case.arguments(), remove_accidental_hits=without_hits)
    found, sample = run([loss, list(case.values)])
    x, z = case.logits(sample, without_hits)
    np.testing.assert_allclose(found, -(z * scipy.special.log_softmax(x, axis=1)).sum(axis=1), rtol=1e-5)


def test_sampled_losses_from_parts_have_sparse_gradients() -> None:
    case = Losses(1)
    parts = [Variable(case.weights[i::2]) for i in range(2)]
    biases = Variable(case.biases)
    loss = sampling.nce_loss(parts, biases, *case.arguments()[2:])
    whole = sampling.nce_loss(*case.arguments())
    found = gradients(loss, [parts[0].handle, biases.handle])
    assert all(isinstance(g, IndexedSlices) for g in found)
    in_parts, at_once = run([loss, whole], [*parts, biases])
    np.testing.assert_allclose(in_parts, at_once, rtol=1e-6)


def test_accidental_hits() -> None:
    indices, ids, weights = run(sampling.compute_accidental_hits([[1, 2], [3, 1]], [3, 1, 7], 2))
    assert indices.tolist() == [0, 1, 1]
    assert ids.tolist() == [1, 0, 1]
    assert np.all(weights < -1e38)


def test_all_candidates() -> None:
    sampled, true_count, sampled_count = run(sampling.all_candidate_sampler([[2]], 1, 4, True))
    assert sampled.tolist() == [0, 1, 2, 3]
    assert np.all(true_count == 1)
    assert np.all(sampled_count == 1)
