"""Shared memory is lent within its limits, is written to only when it was released, and is not believed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from anabranch.distributed.segments import (
    MAX_SEGMENTS,
    Lent,
    Mapped,
    Offer,
    Pool,
    Shared,
    decode_offer,
    decode_shared,
    encode_offer,
    encode_shared,
)
from anabranch.distributed.shared_memory import ProcessMemory, shared_memory
from anabranch.distributed.wire import MalformedMessageError

MEGABYTE = 1 << 20


@pytest.fixture
def memory() -> Any:
    made = shared_memory()
    if made is None:
        pytest.skip("this system has no files in memory")
    yield made
    made.close()


def received(mapped: Mapped, pool: Pool, lent: Lent, size: int) -> Any:
    return mapped.frame(decode_shared([encode_shared(pool.described(lent))]), size)


@pytest.mark.parametrize("seed", range(3))
def test_frames_are_whole_for_as_long_as_they_are_held(memory: ProcessMemory, seed: int) -> None:
    rng = random.Random(seed)
    limit = 12 * MEGABYTE
    pool, mapped = Pool(memory, limit), Mapped(memory, os.getpid(), limit)
    held: list[tuple[bytes, Any]] = []
    refused = 0
    for number in range(40):
        frame = bytes([number]) * rng.randint(1, 3 * MEGABYTE)
        lent = pool.lend(frame)
        if lent is None:
            refused += 1
        elif rng.random() < 0.1:
            pool.give_back(lent)
        else:
            got = received(mapped, pool, lent, len(frame))
            assert np.frombuffer(got, np.uint8).ctypes.data % 64 == 0
            held.append((frame, got))
        while len(held) > rng.randint(0, 9):
            del held[rng.randrange(len(held))]
        assert all(frame == bytes(got) for frame, got in held)
    pool.close()
    # what is mapped stays, whatever becomes of who made it
    assert all(frame == bytes(got) for frame, got in held)
    assert pool.lend(b"x") is None
    assert refused < 35


def test_a_segment_is_used_again_only_when_it_was_released(memory: ProcessMemory) -> None:
    pool, mapped = Pool(memory, 2 * MEGABYTE), Mapped(memory, os.getpid(), 2 * MEGABYTE)
    first = pool.lend(b"a" * MEGABYTE)
    second = pool.lend(b"b" * MEGABYTE)
    assert first is not None
    assert second is not None
    assert pool.lend(b"c") is None
    got = received(mapped, pool, first, MEGABYTE)
    part = np.frombuffer(got, np.uint8)[5:7]
    del got
    assert pool.lend(b"c") is None
    del part
    third = pool.lend(b"c")
    assert third is not None
    assert third.segment is first.segment
    # the memory of small ones makes room for a large one, once it was released
    assert pool.lend(b"d" * 2 * MEGABYTE) is None
    pool.give_back(third)
    pool.give_back(second)
    large = pool.lend(b"d" * 2 * MEGABYTE)
    assert large is not None
    assert len(pool.described(large).dropped) == 2
    pool.close()


def test_what_is_not_there_is_refused(memory: ProcessMemory) -> None:
    pool, limit = Pool(memory), 4 * MEGABYTE
    lent = pool.lend(b"x" * MEGABYTE)
    assert lent is not None
    shared = pool.described(lent)
    for wrong, size in [
        (shared, MEGABYTE + 1),
        (shared._replace(capacity=2 * MEGABYTE), MEGABYTE),
        (shared._replace(capacity=1 << 60), MEGABYTE),
        (shared._replace(number=shared.number ^ 1), MEGABYTE),
        (shared._replace(descriptor=0), 1),
        (shared._replace(descriptor=memory.offer().descriptor), 1),
    ]:
        with pytest.raises(MalformedMessageError, match=r"shared memory|mapped"):
            Mapped(memory, os.getpid(), limit).frame(wrong, size)
    pool.close()
    with pytest.raises(MalformedMessageError, match="mapped"):
        Mapped(memory, os.getpid(), limit).frame(shared, 1)
    for data in [b"", b"x", encode_shared(shared)[:-1], encode_shared(shared) + b"x" * 8 * (MAX_SEGMENTS + 1)]:
        with pytest.raises(MalformedMessageError):
            decode_shared([data])
    with pytest.raises(MalformedMessageError):
        decode_offer([encode_offer(memory.offer()) + b"x"])


def test_a_secret_is_told_only_where_it_is_the_one_that_was_offered(memory: ProcessMemory) -> None:
    offer = memory.offer()
    secret = memory.secret(offer)
    assert secret is not None
    assert memory.is_secret(secret)
    assert not memory.is_secret(bytes(32))
    assert memory.secret(offer._replace(digest=bytes(32))) is None
    assert memory.secret(Offer(1 << 31, offer.descriptor, offer.digest)) is None
    with open(__file__, "rb") as file:
        assert memory.secret(offer._replace(descriptor=file.fileno())) is None


_CHILD = """
import os, time
from anabranch.distributed.segments import Pool
from anabranch.distributed.shared_memory import ProcessMemory
pool = Pool(ProcessMemory())
lent = pool.lend(b"x" * 3_000_000)
shared = pool.described(lent)
print(shared.number, shared.descriptor, shared.capacity, flush=True)
time.sleep(60)
"""


def test_a_process_that_is_killed_leaves_nothing_and_takes_nothing_away(memory: ProcessMemory) -> None:
    with subprocess.Popen([sys.executable, "-c", _CHILD], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        number, descriptor, capacity = map(int, child.stdout.readline().split())
        shared = Shared(number, descriptor, capacity, 1, ())
        got = Mapped(memory, child.pid, 1 << 30).frame(shared, 3_000_000)
        child.kill()
    assert bytes(got) == b"x" * 3_000_000
    with pytest.raises(MalformedMessageError, match="mapped"):
        Mapped(memory, child.pid, 1 << 30).frame(shared, 3_000_000)
    with open("/proc/self/maps") as maps:
        assert "memfd:anabranch" in maps.read()
    del got
    with open("/proc/self/maps") as maps:
        # without a name it is gone with whoever held it last
        assert "memfd:anabranch" not in maps.read()
