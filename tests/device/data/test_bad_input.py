"""What pipelines do with bad files, failing functions, interrupts and sessions that end."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

Dataset = tf.data.Dataset


def elements(dataset: Any, most: int = 50) -> list[Any]:
    """The elements, and errors in their places."""
    following = dataset.make_one_shot_iterator().get_next()
    found: list[Any] = []
    with tf.Session() as session:
        for _ in range(most):
            try:
                found.append(session.run(following))
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.OpError as error:
                found.append(error)
    return found


def await_(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until something holds, which other threads bring about."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        pause.wait(0.01)


def our_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name in {"anabranch-map", "anabranch-prefetch"}]


# ------------------------------------------------------------------------------------------------ files
def test_a_corrupt_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord"
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for i in range(3):
            writer.write(f"record {i}".encode())
    data = bytearray(path.read_bytes())
    data[24 + 12] ^= 0xFF
    path.write_bytes(bytes(data))
    first, error = elements(tf.data.TFRecordDataset(str(path)))
    assert first == b"record 0"
    assert isinstance(error, tf.errors.DataLossError)
    assert str(path) in str(error)
    assert "byte offset 24" in str(error)
    assert "'TFRecordDataset' was created at" in str(error)


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    (error,) = elements(Dataset.from_tensors(str(path)).map(lambda p: tf.image.decode_png(tf.read_file(p))))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert "DecodePng" in str(error)
    assert "in the function of MapDataset" in str(error)


def test_missing_files_and_wrong_compressions(tmp_path: Path) -> None:
    (missing,) = elements(tf.data.TextLineDataset(str(tmp_path / "none")))
    assert isinstance(missing, tf.errors.NotFoundError)
    assert str(tmp_path / "none") in str(missing)
    (unknown,) = elements(tf.data.TextLineDataset(str(tmp_path / "none"), "LZ4"), 1)
    assert isinstance(unknown, tf.errors.InvalidArgumentError)
    (tmp_path / "plain").write_text("text")
    (zipped,) = elements(tf.data.TextLineDataset(str(tmp_path / "plain"), "GZIP"))
    assert isinstance(zipped, tf.errors.DataLossError)
    assert "compression" in str(zipped)
    (none,) = elements(Dataset.list_files(str(tmp_path / "*.gone")), 1)
    assert isinstance(none, tf.errors.InvalidArgumentError)
    assert "No files matched" in str(none)


# ------------------------------------------------------------------------------------------------ generators
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["text"], "could not be converted to the expected type. The expected type was int32.*'text'"),
        ([[1, 2, 3]], r"element of shape \(3,\) where an element of shape \(2,\) was expected"),
        ([([1, 2], 3)], r"yielded an element"),
        ([[[1], [2, 3]]], "could not be converted"),
    ],
)
def test_what_a_generator_may_not_yield(values: Any, message: str) -> None:
    (error,) = elements(Dataset.from_generator(lambda: iter(values), tf.int32, [2]), 1)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        raise error


def test_a_generator_of_another_structure() -> None:
    (error,) = elements(Dataset.from_generator(lambda: iter([(1, 2)]), (tf.int32, tf.int32, tf.int32)), 1)
    assert "did not match the expected structure" in str(error)
    with pytest.raises(TypeError, match="must be callable"):
        Dataset.from_generator([1, 2], tf.int32)  # type: ignore[arg-type]


def test_the_users_traceback_reaches_the_step() -> None:
    def faulty() -> Any:
        yield 1
        raise KeyError("my own mistake")

    first, error = elements(Dataset.from_generator(faulty, tf.int32), 2)
    assert first == 1
    assert "my own mistake" in str(error)
    assert "in faulty" in str(error)


# ------------------------------------------------------------------------------------------------ functions
def broken(x: Any) -> Any:
    if x == 2:
        raise ValueError("two is too many")
    return x


@pytest.mark.parametrize("parallel", [None, 3])
@pytest.mark.parametrize("ahead", [False, True])
def test_an_exception_stands_in_the_place_of_its_element(parallel: int | None, ahead: bool) -> None:
    mapped = Dataset.range(4).map(lambda x: tf.py_func(broken, [x], tf.int64), parallel)
    found = elements(mapped.prefetch(2) if ahead else mapped)
    assert [v for v in found if not isinstance(v, Exception)] == [0, 1, 3]
    error = found[2]
    assert isinstance(error, tf.errors.InvalidArgumentError)
    for part in ("two is too many", "in broken", "in the function of", "MapDataset", "test_bad_input.py"):
        assert part in str(error)


def test_a_check_in_a_function_names_its_operation() -> None:
    numbers = Dataset.from_tensor_slices([1.0, np.nan]).map(lambda x: tf.check_numerics(x, "bad number"))
    first, error = elements(numbers)
    assert first == 1.0
    assert "bad number" in str(error)
    assert "test_bad_input.py" in str(error)


def test_assertions_in_functions_need_no_control_edges() -> None:
    def checked(x: Any) -> Any:
        tf.Assert(x < 1, ["too large", x])
        return x

    first, error = elements(Dataset.range(2).map(checked))
    assert first == 0
    assert "too large" in str(error)


def test_failed_elements_can_be_left_out() -> None:
    mapped = Dataset.range(4).map(lambda x: tf.py_func(broken, [x], tf.int64))
    assert elements(mapped.apply(tf.data.experimental.ignore_errors())) == [0, 1, 3]


def test_what_functions_may_not_return() -> None:
    numbers = Dataset.range(3)
    with pytest.raises(TypeError, match=r"Dataset.map\(\).*None"):
        numbers.map(lambda x: None)
    with pytest.raises(TypeError, match="must return a `Dataset`"):
        numbers.flat_map(lambda x: x)
    with pytest.raises(TypeError, match="must return a `Dataset`"):
        numbers.interleave(lambda x: x, 2)
    with pytest.raises(ValueError, match="scalar boolean"):
        numbers.filter(lambda x: x)
    with pytest.raises(TypeError, match="must match the initial state"):
        numbers.reduce(np.int64(0), lambda s, x: tf.cast(x, tf.float32))
    with pytest.raises(TypeError, match="must return a Dataset"):
        numbers.apply(lambda d: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="different types"):
        numbers.concatenate(Dataset.from_tensors(1.0))
    with pytest.raises(TypeError, match="Use a tuple instead of a list"):
        Dataset.zip([numbers, numbers])
    with pytest.raises(ValueError, match="1 to 3"):
        Dataset.range()
    with pytest.raises(RuntimeError, match="make_one_shot_iterator"):
        iter(numbers)


def test_state_in_a_one_shot_iterator() -> None:
    variable = tf.Variable(1, dtype=tf.int64)
    with pytest.raises(ValueError, match="stateful"):
        Dataset.range(3).map(lambda x: x + variable).make_one_shot_iterator()
    with pytest.raises(ValueError, match="placeholder"):
        Dataset.range(tf.placeholder(tf.int64, [])).make_one_shot_iterator()


def test_iterators_that_do_not_fit() -> None:
    iterator = tf.data.Iterator.from_structure(tf.int64, [])
    with pytest.raises(TypeError, match="Expected output types"):
        iterator.make_initializer(Dataset.from_tensors(1.0))
    with pytest.raises(TypeError, match="Expected output types"):
        iterator.make_initializer(Dataset.from_tensors([np.int64(1)]))
    with pytest.raises(ValueError, match="no initializer"):
        _ = Dataset.range(3).make_one_shot_iterator().initializer
    following = iterator.get_next()
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="not been initialized"):
        session.run(following)


# ------------------------------------------------------------------------------------------------ interrupts, ends
@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Python's own handler, which a process that a shell started in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_once_entered(session: Any, fetch: Any, entered: threading.Event) -> None:
    entered.set()
    session.run(fetch)


@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupt_ends_a_blocked_step_at_once(ahead: bool) -> None:
    blocked, release, entered = threading.Event(), threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        if x == 1:
            blocked.set()
            release.wait(60)
        return x

    mapped = Dataset.range(3).map(lambda x: tf.py_func(slow, [x], tf.int64))
    following = (mapped.prefetch(1) if ahead else mapped).make_one_shot_iterator().get_next()
    other = tf.constant(5) + 1
    with tf.Session() as session:
        assert session.run(following) == 0
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            blocked.wait(60)
            entered.wait(60)
            # on purpose: until the main thread, which has said that it is about to wait, does
            threading.Event().wait(0.2)
            signal.pthread_kill(main, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        start = time.monotonic()
        with _interruptible(), pytest.raises(KeyboardInterrupt):
            _run_once_entered(session, following, entered)
        assert time.monotonic() - start < 30
        interrupter.join()
        release.set()
        assert session.run(other) == 6
        assert session.run(following) in (1, 2)


def test_threads_end_with_their_session() -> None:
    await_(lambda: not our_threads())

    def forever() -> Any:
        while True:
            yield np.zeros(8, np.float32)

    source = Dataset.from_generator(forever, tf.float32, [8])
    mapped = source.map(lambda x: tf.py_func(lambda v: v + 1, [x], tf.float32), 3).prefetch(2).batch(2).prefetch(2)
    following = mapped.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        session.run(following)
        assert our_threads()
    await_(lambda: not our_threads())


def test_threads_end_when_an_iterator_begins_anew() -> None:
    await_(lambda: not our_threads())
    iterator = Dataset.range(1000).prefetch(2).make_initializable_iterator()
    following = iterator.get_next()
    with tf.Session() as session:
        for _ in range(5):
            session.run(iterator.initializer)
            assert session.run(following) == 0
        await_(lambda: len(our_threads()) <= 1)


def test_threads_end_when_a_session_is_forgotten() -> None:
    await_(lambda: not our_threads())
    following = Dataset.range(1000).map(lambda x: x + 1, 2).prefetch(2).make_one_shot_iterator().get_next()
    session = tf.Session()
    assert session.run(following) == 1
    assert our_threads()
    del session
    gc.collect()
    await_(lambda: not our_threads())


def test_closing_a_session_wakes_who_waits_in_it() -> None:
    blocked, release = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        blocked.set()
        release.wait(60)
        return x

    mapped = Dataset.range(3).map(lambda x: tf.py_func(slow, [x], tf.int64)).prefetch(1)
    following = mapped.make_one_shot_iterator().get_next()
    session, caught = tf.Session(), list[Exception]()

    def step() -> None:
        try:
            session.run(following)
        except tf.errors.CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    blocked.wait(60)
    session.close()
    thread.join(30)
    release.set()
    assert not thread.is_alive()
    assert len(caught) == 1


def test_calls_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)

    def meet(x: Any) -> Any:
        together.wait()
        return x

    mapped = Dataset.range(6).map(lambda x: tf.py_func(meet, [x], tf.int64), num_parallel_calls=3)
    assert elements(mapped) == [0, 1, 2, 3, 4, 5]


def test_no_more_is_computed_ahead_than_was_asked_for() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(int(x))
        return x

    mapped = Dataset.range(100).map(lambda x: tf.py_func(counted, [x], tf.int64)).prefetch(3)
    following = mapped.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert calls == []
        session.run(following)
        await_(lambda: len(calls) >= 4)
        # what must not happen tells nobody: time in which more would be computed
        threading.Event().wait(0.05)
        assert len(calls) <= 5
