"""Iterators in checkpoints: after a restore the elements that follow are those that would have followed (§4.3)."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

Dataset = tf.data.Dataset
SAVED_AT = 7
STEPS = 25


def shuffled(folder: Path) -> Any:
    return Dataset.range(30).shuffle(8, seed=3).repeat().map(lambda x: x * 3).batch(4).prefetch(3)


def in_parallel(folder: Path) -> Any:
    return Dataset.range(30).repeat().map(lambda x: x + 1, num_parallel_calls=3).shuffle(5, seed=1).prefetch(1)


def without_a_seed(folder: Path) -> Any:
    return Dataset.range(10).shuffle(10).repeat()


def records(folder: Path) -> Any:
    names = [str(folder / f"{i}.tfrecord") for i in range(3)]
    for i, name in enumerate(names):
        if not Path(name).exists():
            with tf.python_io.TFRecordWriter(name) as writer:
                for j in range(5 + i):
                    writer.write(f"{i}:{j}".encode())
    files = Dataset.from_tensor_slices(names).repeat()
    return files.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=2).shuffle(4, seed=2)


def records_in_parallel(folder: Path) -> Any:
    records(folder)
    names = [str(folder / f"{i}.tfrecord") for i in range(3)]
    return tf.data.TFRecordDataset(names, num_parallel_reads=2).repeat().batch(2)


def lines(folder: Path) -> Any:
    (folder / "lines").write_text("".join(f"{i},{i * i}\n" for i in range(9)))
    return tf.data.TextLineDataset(str(folder / "lines")).repeat().map(lambda s: tf.decode_csv(s, [[0], [0]]))


def generated(folder: Path) -> Any:
    return Dataset.from_generator(lambda: iter(range(100)), tf.int64, []).filter(lambda x: tf.equal(x % 3, 0))


def grouped(folder: Path) -> Any:
    apply = tf.data.experimental.group_by_window(lambda x: x % 3, lambda _, group: group.batch(4), 4)
    return Dataset.range(200).apply(apply).flat_map(Dataset.from_tensor_slices)


def scanned(folder: Path) -> Any:
    return Dataset.range(100).apply(tf.data.experimental.scan(np.int64(0), lambda s, x: (s + x, (s, x))))


def cached(folder: Path) -> Any:
    return Dataset.range(6).map(lambda x: x * x).cache().repeat().padded_batch(4, [])


def sampled(folder: Path) -> Any:
    return tf.data.experimental.sample_from_datasets([Dataset.range(50), Dataset.range(100, 150)], seed=4)


def sparse(folder: Path) -> Any:
    return Dataset.range(1, 90).map(lambda x: tf.sparse.reset_shape(tf.SparseTensor([[x % 4]], [x], [9]))).shuffle(5, 1)


def windows(folder: Path) -> Any:
    return Dataset.range(60).window(3, 2).shuffle(4, seed=1).flat_map(lambda window: window.batch(2))


def ragged(folder: Path) -> Any:
    rows = tf.ragged.constant([[[i] * (i % 3), [i]] for i in range(9)])
    return Dataset.from_tensor_slices(rows).repeat().shuffle(5, seed=2).map(lambda row: row.to_tensor())


PIPELINES = [
    shuffled,
    in_parallel,
    without_a_seed,
    records,
    records_in_parallel,
    lines,
    generated,
    grouped,
    scanned,
    cached,
    sampled,
    sparse,
    windows,
    ragged,
]


def as_python(value: Any) -> Any:
    parts = value if isinstance(value, tuple | list) else [value]
    return [np.asarray(p).tolist() for p in parts]


class Job:
    """A graph with an iterator, a step counter and a saver."""

    def __init__(self, make: Callable[[Path], Any], folder: Path, one_shot: bool = False) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.set_random_seed(1)
            dataset = make(folder)
            iterator = dataset.make_one_shot_iterator() if one_shot else dataset.make_initializable_iterator()
            self.next = iterator.get_next()
            self.start = tf.no_op() if one_shot else iterator.initializer
            self.saver = tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])

    def session(self) -> Any:
        return tf.Session(graph=self.graph)


@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.parametrize("make", PIPELINES)
def test_a_restored_iterator_goes_on(make: Callable[[Path], Any], one_shot: bool, tmp_path: Path) -> None:
    job = Job(make, tmp_path, one_shot)
    with job.session() as session:
        session.run(job.start)
        for _ in range(SAVED_AT):
            session.run(job.next)
        checkpoint = job.saver.save(session, str(tmp_path / "model"))
        expected = [as_python(session.run(job.next)) for _ in range(STEPS - SAVED_AT)]
    again = Job(make, tmp_path, one_shot)
    with again.session() as session:
        again.saver.restore(session, checkpoint)
        assert [as_python(session.run(again.next)) for _ in range(STEPS - SAVED_AT)] == expected


def test_saving_does_not_disturb_the_pipeline(tmp_path: Path) -> None:
    job = Job(shuffled, tmp_path)
    with job.session() as session:
        session.run(job.start)
        plain = [as_python(session.run(job.next)) for _ in range(9)]
        session.run(job.start)
        found = []
        for _ in range(9):
            job.saver.save(session, str(tmp_path / "model"))
            found.append(as_python(session.run(job.next)))
    assert found == plain


def test_the_end_is_a_position_too(tmp_path: Path) -> None:
    job = Job(lambda _: Dataset.range(2).prefetch(2), tmp_path)
    with job.session() as session:
        session.run(job.start)
        assert [session.run(job.next) for _ in range(2)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(job.next)
        checkpoint = job.saver.save(session, str(tmp_path / "model"))
    with job.session() as session:
        job.saver.restore(session, checkpoint)
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
            session.run(job.next)


def test_an_iterator_that_was_not_initialised_cannot_be_saved(tmp_path: Path) -> None:
    job = Job(shuffled, tmp_path)
    with job.session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="not been initialized"):
        job.saver.save(session, str(tmp_path / "model"))


def test_the_position_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    job = Job(lambda _: Dataset.range(9).shuffle(3), tmp_path)
    other = Job(lambda _: Dataset.range(9), tmp_path)
    with job.session() as session:
        session.run([job.start])
        checkpoint = job.saver.save(session, str(tmp_path / "model"))
    with other.session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="build the same pipeline"):
        other.saver.restore(session, checkpoint)


PROGRAM = """
    import os, signal, sys
    import anabranch as tf

    names, folder, until = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
    dataset = tf.data.TFRecordDataset(names).shuffle(7, seed=5).repeat().map(lambda s: s + "!", 2).batch(3).prefetch(2)
    iterator = dataset.make_initializable_iterator()
    batch, step = iterator.get_next(), tf.train.get_or_create_global_step()
    count = tf.assign_add(step, 1)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
    saver = tf.train.Saver()
    with tf.Session() as session:
        latest = tf.train.latest_checkpoint(folder)
        if latest is None:
            session.run([tf.global_variables_initializer(), iterator.initializer])
        else:
            saver.restore(session, latest)
        while True:
            value, number = session.run([batch, count])
            print(number, b" ".join(value).decode(), flush=True)
            if number % 5 == 0:
                saver.save(session, os.path.join(folder, "model"), global_step=number)
            if number == until:
                os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    records(tmp_path)
    names = ",".join(str(tmp_path / f"{i}.tfrecord") for i in range(3))

    def run(folder: str, until: int) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), names, str(tmp_path / folder), str(until)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return done.stdout.splitlines()

    whole = run("one", 18)
    first, second = run("two", 12), run("two", 18)
    assert first == whole[:12]
    assert second == whole[10:]
