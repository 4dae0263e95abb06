"""`Batch`, `Unbatch` and `BatchFunction`: what several steps give at once becomes one batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.control_flow.defined_functions import Defun

#: longer than any test: what is closed by time is closed by nothing else
_LONG = 100_000_000


def run_at_once(session: tf.Session, fetches: Any, feeds: Sequence[dict[Any, Any]]) -> list[Any]:
    """What each of several steps gives that run at once: its values, or its error."""
    results: list[Any] = [None] * len(feeds)

    def run(number: int) -> None:
        try:
            results[number] = session.run(fetches, feeds[number])
        except tf.errors.OpError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def batch_of(*tensors: Any, size: int = 2, micros: int = _LONG, allowed: Sequence[int] = (), **more: Any) -> Any:
    return tf.raw_ops.Batch(
        in_tensors=list(tensors),
        num_batch_threads=1,
        max_batch_size=size,
        batch_timeout_micros=micros,
        allowed_batch_sizes=list(allowed),
        grad_timeout_micros=_LONG,
        **more,
    )


def unbatch(tensor: Any, batch: Any, micros: int = _LONG) -> Any:
    return tf.raw_ops.Unbatch(batched_tensor=tensor, batch_index=batch.batch_index, id=batch.id, timeout_micros=micros)


@pytest.mark.parametrize(("allowed", "rows"), [((), 3), ((2, 3), 3)])
def test_one_step_gets_the_batch_and_each_its_own_part(allowed: Sequence[int], rows: int) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32, [None, 2])
        batch = batch_of(x, size=3, allowed=allowed)
        assert batch.batched_tensors[0].shape.as_list() == [None, 2]
        assert batch.batch_index.shape.as_list() == [None, 3]
        own = unbatch(batch.batched_tensors[0] * 10, batch)
        found = run_at_once(session, [batch, own], [{x: [[i, i + 5]]} for i in range(3)])
        for number, (_, mine) in enumerate(found):
            assert mine.tolist() == [[number * 10, number * 10 + 50]]
        bearing = [given for given, _ in found if len(given.batch_index)]
        assert len(bearing) == 1
        given = bearing[0]
        assert sorted(given.batched_tensors[0].tolist()) == [[0, 5], [1, 6], [2, 7]]
        assert len(given.batched_tensors[0]) == rows
        assert given.batch_index[:, 1:].tolist() == [[0, 1], [1, 2], [2, 3]]
        assert set(given.batch_index[:, 0].tolist()) == {int(each.id) for each, _ in found}
        assert given.batch_index[-1, 0] == given.id
        for each, _ in found:
            if each is not given:
                assert each.batched_tensors[0].shape == (0, 2)
                assert each.batch_index.shape == (0, 3)


def test_what_waited_long_enough_goes_alone_and_is_filled_up() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.string, [None])
        batch = batch_of(x, size=4, micros=1000, allowed=(3, 4))
        given, own = session.run([batch, unbatch(batch.batched_tensors[0], batch)], {x: ["a", "b"]})
        assert given.batched_tensors[0].tolist() == [b"a", b"b", b"a"]
        assert given.batch_index[:, 1:].tolist() == [[0, 2]]
        assert own.tolist() == [b"a", b"b"]


def test_gradients_flow_to_each_step() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None])
        batch = batch_of(x, size=2)
        (together,) = batch.batched_tensors
        own = unbatch(together * together, batch)
        (slope,) = tf.gradients(own * 3.0, x)
        found = run_at_once(session, [own, slope], [{x: [2.0]}, {x: [5.0]}])
        assert [[a.tolist() for a in each] for each in found] == [[[4.0], [12.0]], [[25.0], [30.0]]]


def test_the_gradient_of_a_batch_that_was_filled_up_is_zero_there() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        original = np.zeros((4, 1), np.float32)
        index = np.array([[8, 2, 3], [7, 0, 2]], np.int64)
        empty = tf.placeholder_with_default(np.zeros((0, 3), np.int64), [None, 3])
        like = tf.placeholder_with_default(np.zeros((0, 1), np.float32), [None, 1])
        grad, key = tf.placeholder(tf.float32, [None, 1]), tf.placeholder(tf.int64, [])
        result = tf.raw_ops.UnbatchGrad(original_input=like, batch_index=empty, grad=grad, id=key)
        feeds = [{like: original, empty: index, grad: [[3.0]], key: 8}, {grad: [[1.0], [2.0]], key: 7}]
        # the pieces of the second are needed by the first, whichever comes first; it gets nothing itself
        with pytest.raises(tf.errors.InvalidArgumentError, match="batched input must be empty"):
            session.run(result, {like: original, grad: [[1.0]], key: 1})
        found = run_at_once(session, result, feeds)
        assert found[0].tolist() == [[1.0], [2.0], [3.0], [0.0]]
        assert found[1].shape == (0, 1)


def test_what_does_not_come_in_time_is_missed() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder_with_default(np.zeros((0,), np.float32), [None])
        waiting = tf.raw_ops.Unbatch(
            batched_tensor=x, batch_index=np.zeros((0, 3), np.int64), id=np.int64(7), timeout_micros=1000
        )
        with pytest.raises(tf.errors.DeadlineExceededError, match="did not arrive within timeout window"):
            session.run(waiting)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ([1, 2, 3], {}, "Task size 3 is larger than maximum input batch size 2"),
        (1, {}, "must have rank at least 1"),
        ([1], {"allowed": (2, 3)}, "final entry in allowed_batch_sizes must equal max_batch_size"),
        ([1], {"allowed": (2, 2)}, "monotonically increasing"),
        ([1], {"size": 0}, "must be positive"),
    ],
)
def test_what_makes_no_batch_is_refused(value: Any, options: dict[str, Any], message: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32)
        batch = batch_of(x, **options)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(batch, {x: value})


def test_rows_of_different_shapes_make_no_batch() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32)
        found = run_at_once(session, batch_of(x), [{x: [[1, 2]]}, {x: [[1]]}])
        assert all("must match but for the first" in each.message for each in found)


def test_a_step_that_gives_up_is_left_out() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32, [None])
        batch = batch_of(x, size=2, shared_name="shared")
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(batch, {x: [1]}, options=tf.RunOptions(timeout_in_ms=20))
        found = run_at_once(session, batch, [{x: [2]}, {x: [3]}])
        assert sorted(len(each.batched_tensors[0]) for each in found) == [0, 2]


def called(function: Any, *tensors: Any, size: int = 2, micros: int = _LONG, captured: Any = (), **more: Any) -> Any:
    return tf.raw_ops.BatchFunction(
        in_tensors=list(tensors),
        captured_tensors=list(captured),
        f=function,
        num_batch_threads=2,
        max_batch_size=size,
        batch_timeout_micros=micros,
        **more,
    )


@Defun(tf.int32, tf.int32)
def shifted(x: Any, by: Any) -> Any:
    return x + by, x * 2


def test_a_function_is_called_for_a_batch() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32, [None])
        results = called(shifted, x, size=4, captured=[10], Tout=[tf.int32, tf.int32], allowed_batch_sizes=[3, 4])
        found = run_at_once(session, results, [{x: [i, i + 1]} for i in range(6)])
        for number, (first, second) in enumerate(found):
            assert first.tolist() == [number + 10, number + 11]
            assert second.tolist() == [number * 2, number * 2 + 2]


def test_errors_of_the_function_reach_every_step() -> None:
    @Defun(tf.int32)
    def summed(x: Any) -> Any:
        return tf.reduce_sum(x)

    @Defun(tf.int32)
    def doubled(x: Any) -> Any:
        return tf.concat([x, x], 0)

    @Defun(tf.int32)
    def checked(x: Any) -> Any:
        with tf.control_dependencies([tf.Assert(tf.reduce_all(x < 2), ["too large"])]):
            return tf.identity(x)

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32, [None])
        for function, message in (
            (summed, "has 0 dimensions"),
            (doubled, "0th dimension does not equal"),
            (checked, "too large"),
        ):
            found = run_at_once(session, called(function, x, Tout=[tf.int32]), [{x: [1]}, {x: [2]}])
            assert all(message in each.message for each in found)


def test_the_public_function_batches_calls() -> None:
    sizes = []

    @tf.nondifferentiable_batch_function(1, 3, _LONG)
    def squared(x: Any) -> Any:
        sizes.append(x.shape.as_list())
        return x * x * factor

    with tf.Graph().as_default(), tf.Session() as session:
        factor = tf.placeholder_with_default(2.0, [])
        x = tf.placeholder(tf.float32, [None])
        (result,) = squared(x)
        found = run_at_once(session, result, [{x: [float(i)]} for i in range(3)])
        assert [each.tolist() for each in found] == [[0.0], [2.0], [8.0]]
        assert sizes == [[None]]


def test_a_closed_session_cancels_what_waits() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.int32, [None])
        batch = batch_of(x, size=2)
        session = tf.Session()
        begun = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            begun.set()
            try:
                session.run(batch, {x: [1]})
            except (tf.errors.CancelledError, RuntimeError) as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        session.close()
        thread.join()
        assert len(errors) == 1
