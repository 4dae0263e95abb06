"""`tf.contrib.crf`, beside sums and maxima over all sequences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import anabranch as tf

crf = tf.contrib.crf
RANDOM = np.random.RandomState(11)
TAGS = 3
PARAMS = RANDOM.randn(TAGS, TAGS)


def score(scores: Any, tags: tuple[int, ...]) -> float:
    own = sum(scores[time, tag] for time, tag in enumerate(tags))
    return float(own + sum(PARAMS[a, b] for a, b in itertools.pairwise(tags)))


def everything(scores: Any, length: int) -> dict[tuple[int, ...], float]:
    return {tags: score(scores, tags) for tags in itertools.product(range(TAGS), repeat=length)}


@pytest.mark.parametrize(("times", "lengths"), [(4, [4, 2, 1, 0]), (1, [1, 1, 0, 1])])
@pytest.mark.parametrize("is_fed", [False, True])
def test_sums_over_all_sequences(times: int, lengths: list[int], is_fed: bool) -> None:
    inputs = RANDOM.randn(4, times, TAGS)
    tags = RANDOM.randint(0, TAGS, (4, times))
    allowed = RANDOM.rand(4, times, TAGS) > 0.3
    allowed[..., 1] = True
    x = tf.placeholder_with_default(inputs, [None, None, None] if is_fed else inputs.shape)
    outputs = {
        "scores": crf.crf_sequence_score(x, tags, lengths, PARAMS),
        "norms": crf.crf_log_norm(x, lengths, PARAMS),
        "likelihood": crf.crf_log_likelihood(x, tags, lengths, PARAMS)[0],
        "several": crf.crf_multitag_sequence_score(x, allowed, lengths, PARAMS),
        "best": crf.crf_decode(x, PARAMS, lengths),
        "gradient": tf.gradients(crf.crf_log_norm(x, lengths, PARAMS), x)[0],
    }
    with tf.Session() as session:
        got = session.run(outputs)
    for row, length in enumerate(lengths):
        all_scores = everything(inputs[row], length)
        norm = np.log(np.sum(np.exp(list(all_scores.values())))) if length else 0.0
        taken = score(inputs[row], tuple(tags[row, :length]))
        np.testing.assert_allclose(got["scores"][row], taken, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(got["norms"][row], norm, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(got["likelihood"][row], taken - norm, rtol=1e-6, atol=1e-9)
        if not length:
            continue
        fitting = [s for ts, s in all_scores.items() if all(allowed[row, t, tag] for t, tag in enumerate(ts))]
        np.testing.assert_allclose(got["several"][row], np.log(np.sum(np.exp(fitting))), rtol=1e-6)
        best = max(all_scores, key=lambda ts: all_scores[ts])
        tags_found, best_scores = got["best"]
        assert tags_found[row].tolist() == [*best, *[0] * (times - length)]
        np.testing.assert_allclose(best_scores[row], all_scores[best], rtol=1e-6)
        assert crf.viterbi_decode(inputs[row, :length], PARAMS)[0] == list(best)
        # how likely each tag is at each time
        np.testing.assert_allclose(got["gradient"][row, :length].sum(axis=1), 1.0, rtol=1e-6)
        assert not got["gradient"][row, length:].any()


def test_transitions_are_learned() -> None:
    inputs = tf.zeros([2, 3, TAGS])
    likelihood, transitions = crf.crf_log_likelihood(inputs, [[0, 1, 2], [0, 1, 2]], [3, 3])
    train = tf.train.GradientDescentOptimizer(1.0).minimize(-tf.reduce_mean(likelihood))
    decoded, _ = crf.crf_decode(inputs, transitions, [3, 3])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(likelihood)
        for _ in range(30):
            session.run(train)
        assert (session.run(likelihood) > before + 1).all()
        assert session.run(decoded).tolist() == [[0, 1, 2]] * 2
    assert transitions.op.name == "transitions"
