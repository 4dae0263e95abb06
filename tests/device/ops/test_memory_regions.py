"""Constants that lie in files; samplers that learn from step to step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw


def test_a_constant_in_a_file(tmp_path: Path) -> None:
    """ImmutableConst."""
    path = str(tmp_path / "region")
    np.arange(6, dtype=np.float32).tofile(path)
    whole = raw.ImmutableConst(dtype=tf.float32, shape=[2, 3], memory_region_name=path)
    assert whole.shape.as_list() == [2, 3]
    with tf.Session() as session:
        assert session.run(whole).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert session.run(raw.ImmutableConst(dtype=tf.int16, shape=[2], memory_region_name=path)).tolist() == [0, 0]
        with pytest.raises(tf.errors.InternalError, match=r"wrong length \(24\) when allocating 32"):
            session.run(raw.ImmutableConst(dtype=tf.float32, shape=[8], memory_region_name=path))
        with pytest.raises(tf.errors.NotFoundError):
            session.run(raw.ImmutableConst(dtype=tf.float32, shape=[8], memory_region_name=path + "2"))


@pytest.mark.parametrize("name", ["LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"])
def test_true_classes_become_more_likely(name: str) -> None:
    """LearnedUnigramCandidateSampler, ThreadUnsafeUnigramCandidateSampler."""
    true = np.array([[0, 1], [1, 1]])
    drawn = getattr(raw, name)(true, num_true=2, num_sampled=4000, unique=False, range_max=5, seed=1, seed2=2)
    weights = np.ones(5)
    with tf.Session() as session:
        for _ in range(3):
            sampled, of_true, of_sampled = session.run(drawn)
            parts = weights / weights.sum()
            np.testing.assert_allclose(of_true, 4000 * parts[true], rtol=1e-6)
            np.testing.assert_allclose(of_sampled, 4000 * parts[sampled], rtol=1e-6)
            np.testing.assert_allclose(np.bincount(sampled, minlength=5) / 4000, parts, atol=0.04)
            weights += [1, 3, 0, 0, 0]


def test_different_classes_of_a_learned_distribution() -> None:
    drawn = tf.nn.learned_unigram_candidate_sampler(np.array([[3]]), 1, 4, True, 4, seed=5)
    assert tf.random.learned_unigram_candidate_sampler is tf.nn.learned_unigram_candidate_sampler
    with tf.Session() as session:
        for _ in range(3):
            assert sorted(session.run(drawn.sampled_candidates).tolist()) == [0, 1, 2, 3]
    outside = tf.nn.learned_unigram_candidate_sampler(np.array([[4]]), 1, 2, True, 4)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=r"not in \[0, 4\)"):
        session.run(outside.sampled_candidates)
