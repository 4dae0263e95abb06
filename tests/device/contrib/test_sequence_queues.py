"""Long sequences in segments: what batches hold, states from one segment to the next, and networks over them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import anabranch as tf

training = tf.contrib.training
RNG = np.random.default_rng(9)


def saver(batch_size: int = 1, num_unroll: int = 2, **given: Any) -> tuple[Any, dict[str, Any]]:
    """A state saver, and the placeholders of its inputs."""
    inputs = {
        "length": tf.placeholder(tf.int32, []),
        "key": tf.placeholder(tf.string, []),
        "x": tf.placeholder(tf.float32, [None, 3]),
        "label": tf.placeholder(tf.int32, [2]),
    }
    made = training.SequenceQueueingStateSaver(
        batch_size,
        num_unroll,
        inputs["length"],
        inputs["key"],
        {"x": inputs["x"]},
        {"label": inputs["label"]},
        {"h": tf.constant([1.0, 2.0])},
        **given,
    )
    return made, inputs


def fed(inputs: dict[str, Any], key: str, length: int, x: Any) -> dict[Any, Any]:
    return {inputs["length"]: length, inputs["key"]: key, inputs["x"]: x, inputs["label"]: [length, 7]}


def test_segments_of_a_sequence_one_after_the_other() -> None:
    made, inputs = saver(capacity=2)
    batch = made.next_batch
    x = RNG.normal(size=(6, 3)).astype(np.float32)
    save = batch.save_state("h", batch.state("h") * 2)
    shown = {name: getattr(batch, name) for name in ("key", "next_key", "length", "total_length", "sequence")}
    with tf.Session() as sess:
        sess.run(made.prefetch_op, fed(inputs, "a", 5, x))
        for place in range(3):
            found, part, label, state, count, size, _ = sess.run(
                [shown, batch.sequences["x"], batch.context["label"], batch.state("h"), batch.sequence_count,
                 batch.batch_size, save]
            )  # fmt: skip
            assert found["key"][0] == b"%05d_of_00003:a" % place
            assert found["next_key"][0] == (b"%05d_of_00003:a" % (place + 1) if place < 2 else b"STOP:a")
            assert (found["sequence"][0], found["length"][0], found["total_length"][0]) == (place, [2, 2, 1][place], 5)
            assert (count[0], size, label.tolist()) == (3, 1, [[5, 7]])
            np.testing.assert_array_equal(part[0], x[2 * place : 2 * place + 2])
            np.testing.assert_array_equal(state[0], np.array([1, 2]) * 2.0**place)


def test_no_more_sequences_than_there_is_room_for() -> None:
    made, inputs = saver(num_unroll=1, capacity=1)
    batch = made.next_batch
    x = np.zeros([1, 3], np.float32)
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=300)) as sess:
        sess.run(made.prefetch_op, fed(inputs, "a", 1, x))
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(made.prefetch_op, fed(inputs, "b", 1, x))
        assert sess.run([batch.key, batch.save_state("h", batch.state("h"))])[0].tolist() == [b"00000_of_00001:a"]


def test_the_last_batches_are_smaller() -> None:
    made, inputs = saver(batch_size=3, num_unroll=1, allow_small_batch=True)
    batch = made.next_batch
    with tf.Session() as sess:
        for key in ("a", "b"):
            sess.run(made.prefetch_op, fed(inputs, key, 1, np.ones([1, 3])))
        sess.run(made.close())
        assert sess.run(batch.batch_size) == 2
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(batch.length)


def test_sequences_that_do_not_fit() -> None:
    made, inputs = saver()
    with tf.Session() as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match="should be a multiple of: 2, but saw value: 3"):
            sess.run(made.prefetch_op, fed(inputs, "a", 3, np.ones([3, 3])))
        with pytest.raises(tf.errors.InvalidArgumentError, match="should be <= than length"):
            sess.run(made.prefetch_op, fed(inputs, "a", 5, np.ones([4, 3])))
    with pytest.raises(KeyError, match="state was not declared: c"):
        made.next_batch.save_state("c", [1.0])
    with pytest.raises(ValueError, match="Rank check failed"):
        made.next_batch.save_state("h", [1.0])


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"capacity": 1, "batch_size": 2}, ValueError, "capacity 1 needs to be >= batch_size 2"),
        ({"input_length": 1.0}, TypeError, "length dtype must be int32"),
        ({"input_key": 1}, TypeError, "key dtype must be string"),
        ({"input_sequences": {}}, ValueError, "at least one sequence"),
        ({"input_context": {"a:b": 1}}, ValueError, "may not have a colon"),
        ({"input_context": {1: 1}}, TypeError, "must be string"),
        ({"initial_states": [1]}, TypeError, "must be a dict"),
    ],
)
def test_arguments_that_are_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    all_of_them = {
        "batch_size": 1,
        "num_unroll": 1,
        "input_length": 1,
        "input_key": "a",
        "input_sequences": {"x": tf.ones([1])},
        "input_context": {},
        "initial_states": {"h": [0.0]},
    }
    with pytest.raises(error, match=said):
        training.SequenceQueueingStateSaver(**all_of_them | given)


def test_shapes_must_be_known() -> None:
    unknown = tf.placeholder(tf.float32, [None, None])
    with pytest.raises(ValueError, match="Shape for sequence x is not fully defined"):
        training.SequenceQueueingStateSaver(1, 1, 1, "a", {"x": unknown}, {}, {"h": [0.0]})


# ---------------------------------------------------------------------- a network over segments
def test_a_network_over_segments_is_one_over_sequences() -> None:
    x = RNG.normal(size=(3, 5, 2)).astype(np.float32)
    number = tf.train.limit_epochs(tf.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue())
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    batch = training.batch_sequences_with_states(
        tf.as_string(number),
        {"x": tf.gather(tf.constant(x), number)},
        {"number": number},
        None,
        {"h": tf.zeros([4])},
        num_unroll=2,
        batch_size=2,
        num_threads=1,
        capacity=2,
    )
    steps = tf.unstack(batch.sequences["x"], axis=1)
    outputs, _ = tf.contrib.rnn.static_state_saving_rnn(cell, steps, batch, "h", sequence_length=batch.length)
    parts = {"out": tf.stack(outputs, axis=1), "number": batch.context["number"], "place": batch.sequence}
    found = np.zeros([3, 6, 4])
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        kernel, bias = sess.run(cell.variables)
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        for _ in range(9):  # segments of 3 sequences, one or two at a time
            with contextlib.suppress(tf.errors.OutOfRangeError):
                given = sess.run(parts)
                for out, sequence, place in zip(given["out"], given["number"], given["place"], strict=True):
                    found[sequence, 2 * place : 2 * place + 2] = out
        coordinator.request_stop()
        coordinator.join(threads)
    wanted, h = [], np.zeros([3, 4])
    for step in range(5):
        h = np.tanh(np.concatenate([x[:, step], h], 1) @ kernel + bias)
        wanted.append(h)
    np.testing.assert_allclose(found[:, :5], np.stack(wanted, 1), atol=1e-6)
    assert not found[:, 5].any()


def test_keys_may_come_again() -> None:
    batch = training.batch_sequences_with_states(
        "same", {"x": tf.constant(["a", "b", "c"])}, {}, None, {"h": [0.0]}, 2, 2,
        make_keys_unique=True, make_keys_unique_seed=4,
    )  # fmt: skip
    with tf.Session() as sess:
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        keys, x = sess.run([batch.key, batch.sequences["x"]])
        coordinator.request_stop()
        coordinator.join(threads)
    assert len({*keys}) == 2
    assert all(key.startswith(b"00000_of_00002:same") for key in keys)
    assert x.tolist() == [[b"a", b"b"]] * 2


def test_sparse_sequences_are_refused() -> None:
    sparse = tf.SparseTensor([[0, 0]], [1.0], [2, 2])
    with pytest.raises(TypeError, match="must be dense"):
        training.batch_sequences_with_states("a", {"x": sparse}, {}, None, {"h": [0.0]}, 2, 1)
