"""The names of `tf.contrib` that public programs use: sequences, prefetch queues, hyperparameters; shared steps."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla.variants import compile_log

contrib = tf.contrib
rng = np.random.default_rng(0)
LOGITS = rng.standard_normal((2, 3, 5)).astype(np.float32)
TARGETS = rng.integers(0, 5, (2, 3))
WEIGHTS = np.array([[1.0, 0.5, 0.0], [1.0, 1.0, 2.0]], np.float32)


def value(fetches: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def cross_entropy() -> Any:
    logs = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, TARGETS[..., np.newaxis], 2)[..., 0] * WEIGHTS


def test_sequence_losses() -> None:
    each = cross_entropy()
    loss = contrib.seq2seq.sequence_loss
    given = LOGITS, TARGETS, WEIGHTS
    got = value(
        [
            loss(*given),
            loss(*given, average_across_timesteps=False),
            loss(*given, average_across_batch=False),
            loss(*given, average_across_batch=False, average_across_timesteps=False),
        ]
    )
    expected = [each.sum() / WEIGHTS.sum(), each.sum(0) / WEIGHTS.sum(0), each.sum(1) / WEIGHTS.sum(1), each]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    with pytest.raises(ValueError, match=r"Logits must be a"):
        loss(LOGITS[0], TARGETS, WEIGHTS)


def test_losses_over_lists() -> None:
    steps = [list(np.moveaxis(v, 1, 0)) for v in (LOGITS, TARGETS, WEIGHTS)]
    lists = [[tf.constant(v) for v in step] for step in steps]
    by_example = contrib.legacy_seq2seq.sequence_loss_by_example(*lists)
    total = contrib.legacy_seq2seq.sequence_loss(*lists)
    got = value([by_example, total])
    expected = cross_entropy().sum(1) / WEIGHTS.sum(1)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5)
    np.testing.assert_allclose(got[1], expected.mean(), rtol=1e-5)
    with pytest.raises(ValueError, match="must be the same"):
        contrib.legacy_seq2seq.sequence_loss(lists[0], lists[1], lists[2][:1])


def test_a_decoder_runs_as_the_static_network_and_can_feed_itself() -> None:
    inputs = [tf.constant(rng.standard_normal((2, 4)).astype(np.float32)) for _ in range(3)]
    cell = tf.nn.rnn_cell.GRUCell(4)
    state = cell.zero_state(2, tf.float32)
    outputs, last = contrib.legacy_seq2seq.rnn_decoder(inputs, state, cell, scope="decoder")
    with tf.variable_scope("decoder", reuse=True):
        again, after = tf.nn.static_rnn(cell, inputs, initial_state=state)
    with tf.variable_scope("", reuse=True):
        fed, _ = contrib.legacy_seq2seq.rnn_decoder(inputs, state, cell, lambda output, _: output * 0, scope="decoder")
        zeros = [inputs[0], tf.zeros([2, 4]), tf.zeros([2, 4])]
        same, _ = contrib.legacy_seq2seq.rnn_decoder(zeros, state, cell, scope="decoder")
    got = value([outputs, again, last, after, fed, same])
    np.testing.assert_allclose(got[0], got[1], rtol=1e-6)
    np.testing.assert_allclose(got[2], got[3], rtol=1e-6)
    np.testing.assert_allclose(got[4], got[5], rtol=1e-6)


def test_a_prefetch_queue_is_filled_by_threads_that_share_one_preparation() -> None:
    number = tf.random_uniform([4]) + 1.0
    queue = contrib.slim.prefetch_queue.prefetch_queue({"number": number}, capacity=4, num_threads=4)
    batch = queue.dequeue()
    compiled: list[Any] = []
    with tf.Session() as session:
        coordinator = tf.train.Coordinator()
        compile_log.listeners.append(compiled.append)
        try:
            threads = tf.train.start_queue_runners(session, coordinator)
            seen = [session.run(batch)["number"] for _ in range(6)]
        finally:
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads, stop_grace_period_secs=30)
            compile_log.listeners.remove(compiled.append)
    assert all(v.shape == (4,) and (v >= 1).all() for v in seen)
    assert len([e for e in compiled if "random_uniform" in e.island or "add" in e.island]) <= 1


def test_threads_that_begin_together_compile_once() -> None:
    x = tf.placeholder(tf.float32, [3])
    y = tf.reduce_sum(tf.tanh(x) * 2.0)
    compiled: list[Any] = []
    start = threading.Barrier(6)
    results: list[float] = []
    compile_log.listeners.append(compiled.append)
    try:
        with tf.Session() as session:

            def work() -> None:
                start.wait(30)
                results.append(float(session.run(y, {x: np.ones(3)})))

            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    finally:
        compile_log.listeners.remove(compiled.append)
    np.testing.assert_allclose(results, [6 * np.tanh(1)] * 6, rtol=1e-5)
    assert len(compiled) == 1


def test_hyperparameters() -> None:
    given = contrib.training.HParams(rate=0.1, layers=[64, 32], name="net", fast=True)
    given.parse("rate=1,layers=[8,4,2],name=other,fast=false").parse("layers[1]=5")
    assert given.values() == {"rate": 1.0, "layers": [8, 5, 2], "name": "other", "fast": False}
    assert isinstance(given.rate, float)
    assert "rate" in given
    assert given.get("missing", 7) == 7
    given.override_from_dict({"rate": 2})
    assert given.parse_json('{"name": "third"}').name == "third"
    given.del_hparam("fast")
    assert given.to_json(sort_keys=True) == '{"layers": [8, 5, 2], "name": "third", "rate": 2.0}'
    for text, message in [
        ("rate=x", "Could not parse"),
        ("none=1", "Unknown"),
        ("rate=1,rate=2", "Multiple"),
        ("=", "Mal"),
    ]:
        with pytest.raises(ValueError, match=message):
            given.parse(text)
    with pytest.raises(ValueError, match="reserved"):
        given.add_hparam("parse", 1)
    with pytest.raises(ValueError, match="Must pass a list"):
        given.set_hparam("layers", 3)
