"""Workers of synchronous steps that end, are killed, and come back, without a backup: nobody waits for who is away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.cluster.places import held_addresses
from tests.cluster.trainings import Learned, Reader, Training, training

WORKERS = 3
ROUNDS = 20


@contextlib.contextmanager
def without_backups(**options: Any) -> Iterator[tuple[Training, Reader]]:
    """Three workers, processes all of whose gradients make up a mean, and a parameter server of this process."""
    with (
        held_addresses(ps=1, worker=WORKERS) as addresses,
        training(addresses, {"aggregate": WORKERS} | options) as trained,
        tf.train.Server(addresses, "ps", 0),
    ):
        trained.start("worker/0")
        trained.start("worker/1", "worker/2")
        reader = Reader(f"grpc://{addresses['ps'][0]}", trained.options)
        with reader.session:
            yield trained, reader


def rounds(trained: Training, reader: Reader, times: int, *indices: int) -> Learned:
    """Has these workers, all that are there, end so many rounds; each has the same part in all of them."""
    before = reader.read()
    trained.run(times, *indices)
    after = reader.read()
    each = [times / len(indices) if index in indices else 0 for index in range(WORKERS)]
    assert after.step == before.step + times
    assert np.subtract(after.counts[0], before.counts[0]) == pytest.approx(each, abs=1e-3)
    return after


def test_workers_that_end_or_are_killed_are_not_waited_for_in_each_round_and_those_that_come_back_are() -> None:
    reissue = 1.0
    with without_backups(reissue=reissue, away=3 * reissue) as (trained, reader):
        rounds(trained, reader, 2, 0, 1, 2)
        # it ends while the others are in a round, and wait for it
        trained.begin(1, 0, 1)
        trained.leave(2)
        trained.ended(0, 1)
        begin = time.monotonic()
        before = rounds(trained, reader, ROUNDS, 0, 1)
        assert time.monotonic() - begin < ROUNDS / 2 * reissue
        # nobody has computed in its place
        assert [row.dropped for row in before.workers.values()] == [0] * WORKERS
        trained.kill("worker/1")
        begin = time.monotonic()
        # until it counts as away, the one that is left computes in its place
        trained.run(4, 0)
        waited, begin = time.monotonic() - begin, time.monotonic()
        trained.run(ROUNDS, 0)
        took = time.monotonic() - begin
        after = reader.read()
        assert waited > reissue / 2, "nobody waited for it: it was not killed"
        # it may have waited for its own gradient of a round for which it had computed before
        assert took < ROUNDS / 2 * reissue
        assert after.step >= before.step + ROUNDS
        assert sum(after.counts[0]) == pytest.approx(after.step, abs=1e-3)
        assert after.counts[0][1:] == before.counts[0][1:]
        trained.start("worker/1", "worker/2")
        trained.run(3, 0, 1, 2)
        # a round is of three again
        back = rounds(trained, reader, 2, 0, 1, 2)
        assert sum(back.counts[0]) == pytest.approx(back.step, abs=1e-3)
