"""Values that other processes read in memory: only whole ones, only of one moment, and never another variable's."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from anabranch.core.resources import ResourceHandle
from anabranch.runtime.containers import VariableState
from anabranch.runtime.published_values import (
    ADDRESS,
    BOARD_BYTES,
    SLOTS,
    Board,
    PublishedReads,
    PublishedTensor,
    versions_of,
)

FLOATS = np.dtype(np.float32)


class Memory:
    """See `runtime.published_values.BoardMemory`."""

    process, descriptor, number, number_at = 1, 2, 3, 4

    def __init__(self) -> None:
        self.contents = memoryview(bytearray(BOARD_BYTES))

    def close(self) -> None:
        """Nothing holds it."""


def variable(value: Any) -> VariableState:
    state = VariableState(ResourceHandle("", "v", "variable"))
    state.value = jnp.asarray(value, jnp.float32)
    return state


def reads(board: Board, *states: VariableState) -> PublishedReads:
    tensors = []
    for state in states:
        slot = board.publish(state)
        assert slot is not None
        tensors.append((slot.described(""), FLOATS, state.value.shape))
    return PublishedReads(board.memory.contents, tensors)


def test_a_value_is_seen_until_it_is_withdrawn_and_again_when_it_is_shown() -> None:
    board, first, second = Board(Memory()), variable([1.0, 2.0]), variable(3.0)
    read = reads(board, first, second)
    seen = read.values()
    assert seen is not None
    np.testing.assert_array_equal(seen[0], [1, 2])
    assert seen[1] == 3
    assert seen[1].shape == ()
    first.change(jnp.asarray([5.0, 6.0]))
    assert read.values() is None
    assert first.published is not None
    first.published.show(first.value)
    np.testing.assert_array_equal((read.values() or [])[0], [5, 6])
    np.testing.assert_array_equal(seen[0], [1, 2])  # what was read stays what it was
    second.change(None)
    assert read.values() is None
    assert board.publish(second) is second.published
    assert read.values() is None, "it has no value"


@pytest.mark.parametrize(
    "value", [np.zeros([1 << 12], np.float32), np.zeros([0], np.float32), None, np.array(b"string", np.object_)]
)
def test_what_is_not_small_or_no_array_is_not_shown(value: Any) -> None:
    state = variable(0.0)
    state.value = jnp.asarray(value) if value is not None and value.dtype != np.object_ else value
    assert Board(Memory()).publish(state) is None
    assert state.published is None


def test_a_table_that_was_changed_where_it_lies_is_shown_there_again_and_another_one_elsewhere() -> None:
    board, state = Board(Memory()), variable(np.zeros([1 << 13]))
    slot = board.publish(state, rows=True)
    assert slot is not None
    assert slot.is_address
    contents, versions = board.memory.contents, versions_of(board.memory.contents)

    def shown() -> tuple[int, int]:
        assert not versions[slot.slot] & 1
        at, size = ADDRESS.unpack_from(contents, slot.offset)
        return at, size

    first = state.value
    assert shown() == (first.unsafe_buffer_pointer(), 1 << 15)
    before = versions[slot.slot]
    slot.withdraw()
    assert versions[slot.slot] == before + 1
    slot.show(first)
    assert versions[slot.slot] == before + 2
    assert shown() == (first.unsafe_buffer_pointer(), 1 << 15)
    state.change(jnp.ones([1 << 13], jnp.float32))
    slot.show(state.value)
    assert shown() == (state.value.unsafe_buffer_pointer(), 1 << 15)
    assert state.value.unsafe_buffer_pointer() != first.unsafe_buffer_pointer()
    state.change(None)
    slot.show(None)
    assert versions[slot.slot] & 1, "it has no value"


def test_a_value_of_another_size_is_not_shown() -> None:
    state = variable([1.0, 2.0])
    read = reads(Board(Memory()), state)
    state.change(jnp.asarray([1.0, 2.0, 3.0]))
    assert state.published is not None
    state.published.show(state.value)
    assert read.values() is None


def test_a_full_board_shows_no_more() -> None:
    board = Board(Memory())
    slots = [board.publish(variable(np.zeros(1000))) for _ in range(300)]
    shown = [slot for slot in slots if slot is not None]
    assert 200 < len(shown) < 300
    spans = sorted((slot.offset, slot.offset + slot.size) for slot in shown)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= BOARD_BYTES


@pytest.mark.parametrize(
    ("slot", "offset", "size"),
    [
        (-1, 8 * SLOTS, 4),
        (SLOTS, 8 * SLOTS, 4),
        (0, 0, 4),
        (0, 8 * SLOTS - 4, 4),
        (0, BOARD_BYTES - 2, 4),
        (0, 8 * SLOTS, 8),
        (0, 1 << 60, 4),
    ],
)
def test_what_another_process_tells_is_not_believed(slot: int, offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="is not where a value of dtype float32"):
        PublishedReads(Memory().contents, [(PublishedTensor("t", slot, offset, size), FLOATS, ())])


def test_a_reader_sees_whole_values_of_one_moment_while_another_thread_writes() -> None:
    board, first, second = Board(Memory()), variable(np.zeros(500)), variable(np.zeros(3))
    read = reads(board, first, second)
    ended, looked, torn, seen = threading.Event(), threading.Event(), list[str](), set[float]()

    def look() -> None:
        while not ended.is_set():
            values = read.values()
            if values is not None:
                numbers = {*values[0].tolist(), *values[1].tolist()}
                seen.update(numbers)
                if len(numbers) > 1:
                    torn.append(str(numbers))
            looked.set()

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 2000):
        for state in (first, second):
            state.withdraw()
        for state in (first, second):
            state.value = jnp.full(state.value.shape, number, jnp.float32).block_until_ready()
            assert state.published is not None
            state.published.show(state.value)
        # so that it looks at what is shown too, and not only when this thread waits for a value
        if not number % 20:
            looked.clear()
            assert looked.wait(60)
    ended.set()
    reader.join(60)
    assert not torn
    assert len(seen) > 1
