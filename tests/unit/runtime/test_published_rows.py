"""Rows that another process takes in memory: of one moment, of the variable, or none; and what starts its part."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from anabranch.core.dtypes import float32
from anabranch.core.shapes import TensorShape
from anabranch.runtime.containers import VariableState
from anabranch.runtime.held_start import HeldStart
from anabranch.runtime.published_rows import MOST_BYTES, PublishedRows
from anabranch.runtime.published_values import Board, PublishedTensor
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.xla.partitions import TransferEnd
from tests.unit.runtime.test_published_values import Memory, variable

END = TransferEnd("rows", "/device:CPU:0", "/device:CPU:1", float32, TensorShape([None, 8]), 0)
LARGE, SMALL = (1000, 8), (10, 8)


def own_memory(pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
    to = rows.ctypes.data
    for at, size in pieces.tolist():
        ctypes.memmove(to, at, size)
        to += size
    assert to == rows.ctypes.data + rows.nbytes
    return True


def unreadable(pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
    return False


def table(shape: tuple[int, int]) -> tuple[VariableState, np.ndarray[Any, Any]]:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return variable(values), values


def shown(state: VariableState, read: Any = own_memory, number: int = 0, alone: bool = False) -> PublishedRows:
    board = Board(Memory())
    slot = board.publish(state, rows=True)
    assert slot is not None
    return PublishedRows(number, board.memory.contents, slot.described("rows"), END, [8], alone, read)


@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("at", [[3], [[0, 9], [9, 4]], 7, np.zeros([0, 2], int)])
def test_rows_have_the_shape_of_their_indices(shape: tuple[int, int], dtype: Any, at: Any) -> None:
    state, values = table(shape)
    indices = np.array(at, dtype)
    rows = shown(state).take(indices)
    assert rows is not None
    np.testing.assert_array_equal(rows, values[indices])
    assert rows.dtype == np.float32


@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("at", [-1, "end", 1 << 40])
def test_no_index_reads_beside_the_variable(shape: tuple[int, int], at: Any) -> None:
    asked: list[int] = []

    def read(pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
        asked.extend(pieces[:, 0].tolist())
        return True

    indices = np.array([0, shape[0] if at == "end" else at], np.int64)
    assert shown(table(shape)[0], read).take(indices) is None
    assert not asked


@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_rows_are_the_variables_own_whatever_becomes_of_it(shape: tuple[int, int]) -> None:
    state, values = table(shape)
    rows = shown(state)
    at = np.array([1, 2])
    state.change(jnp.asarray(values + 1))
    assert rows.take(at) is None
    assert state.published is not None
    state.published.show(state.value)
    np.testing.assert_array_equal(rows.take(at), values[at] + 1)
    state.change(None)
    assert rows.take(at) is None
    state.published.show(None)
    assert rows.take(at) is None


def test_a_table_that_has_grown_is_read_to_its_new_end() -> None:
    state, values = table(LARGE)
    rows = shown(state)
    state.change(jnp.concatenate([state.value, state.value + 5]).block_until_ready())
    assert state.published is not None
    state.published.show(state.value)
    np.testing.assert_array_equal(rows.take(np.array([1999])), values[[999]] + 5)
    assert rows.take(np.array([2000])) is None


def test_rows_that_are_many_or_cannot_be_read_are_left_to_the_variables_task() -> None:
    state, _ = table(LARGE)
    assert shown(state).take(np.zeros(MOST_BYTES // 32 + 1, np.int64)) is None
    assert shown(state).take(np.zeros(3, np.float32)) is None
    assert shown(state, unreadable).take(np.zeros(3, np.int64)) is None


def test_rows_of_another_moment_are_not_believed() -> None:
    state, values = table(LARGE)
    writes = [1, 1]

    def read(pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
        own_memory(pieces, rows)
        if writes:
            # a whole update while it is read
            state.change(jnp.asarray(values + len(writes)).block_until_ready())
            assert state.published is not None
            state.published.show(state.value)
            writes.pop()
        return True

    np.testing.assert_array_equal(shown(state, read).take(np.array([5])), values[[5]] + 1)
    writes.extend([1] * 100)
    assert shown(state, read).take(np.array([5])) is None


@pytest.mark.parametrize(
    ("variable", "shape", "read"),
    [
        (PublishedTensor("rows", 0, 0, 16, True), [8], own_memory),
        (PublishedTensor("rows", 0, 1 << 16, 15, True), [8], own_memory),
        (PublishedTensor("rows", 0, 1 << 16, 16, True), [8], None),
        (PublishedTensor("rows", -1, 1 << 16, 16, True), [8], own_memory),
        (PublishedTensor("rows", 0, 1 << 16, 1 << 62, False), [8], own_memory),
        (PublishedTensor("rows", 0, 1 << 16, 16, True), [0], own_memory),
        (PublishedTensor("rows", 0, 1 << 16, 16, True), [-1, -8], own_memory),
    ],
)
def test_what_another_process_tells_is_not_believed(variable: Any, shape: Any, read: Any) -> None:
    with pytest.raises(ValueError, match="is not where rows of dtype float32"):
        PublishedRows(0, Memory().contents, variable, END, shape, False, read)


# ---------------------------------------------------------------------- what starts a part
def key(tensor: str) -> Key:
    return Key(StepId("s", 1), "/device:CPU:1", "/device:CPU:0", tensor)


class Sent:
    """What was sent to start a part."""

    def __init__(self) -> None:
        self.starts: list[tuple[list[str], int]] = []

    def __call__(self, sent: Any, rows_taken: int) -> None:
        self.starts.append(([one.tensor for one, _ in sent], rows_taken))


def test_tensors_wait_for_the_last() -> None:
    sent = Sent()
    start = HeldStart(sent, {}, 3, True)
    assert start.offer(key("a"), np.ones(3)) == (True, ())
    assert start.offer(key("b"), np.ones(3)) == (True, ())
    assert not sent.starts
    assert start.offer(key("c"), np.ones(3)) == (True, ())
    assert sent.starts == [(["a", "b", "c"], 0)]
    # once it has begun, each goes by itself
    assert start.offer(key("d"), np.ones(3)) == (False, ())
    start.begin()
    assert len(sent.starts) == 1


def test_in_a_step_that_takes_long_no_tensor_waits() -> None:
    sent, now = Sent(), [0.0]
    start = HeldStart(sent, {}, 3, True, lambda: now[0])
    start.offer(key("a"), np.ones(3))
    assert not sent.starts
    now[0] = 1.0
    start.offer(key("b"), np.ones(3))
    assert sent.starts == [(["a", "b"], 0)]


@pytest.mark.parametrize("value", [None, np.zeros(1 << 17, np.uint8)])
def test_what_is_dead_or_large_does_not_wait(value: Any) -> None:
    sent = Sent()
    start = HeldStart(sent, {}, 3, True)
    start.offer(key("a"), np.ones(3))
    start.offer(key("b"), value)
    assert sent.starts == [(["a", "b"], 0)]


def test_where_somebody_may_wait_for_the_part_it_begins_with_the_first_tensor() -> None:
    sent = Sent()
    start = HeldStart(sent, {}, 3, False)
    start.offer(key("a"), np.ones(3))
    assert sent.starts == [(["a"], 0)]


@pytest.mark.parametrize("alone", [False, True])
def test_rows_are_taken_when_their_indices_are_there(alone: bool) -> None:
    sent = Sent()
    state, values = table(LARGE)
    rows = shown(state, number=3, alone=alone)
    start = HeldStart(sent, {"indices": [rows]}, 2, True)
    is_taken, ((taker, taken),) = start.offer(key("indices"), np.array([4, 2]))
    assert is_taken
    assert taker is rows
    np.testing.assert_array_equal(taken, values[[4, 2]])
    start.offer(key("gradient"), np.ones(3))
    assert sent.starts == [(["gradient"] if alone else ["indices", "gradient"], 8)]


def test_rows_that_could_not_be_taken_are_asked_for_at_once() -> None:
    sent = Sent()
    state, values = table(LARGE)
    takers = [shown(state, number=0, alone=True), shown(state, unreadable, 1, alone=True), shown(state, number=2)]
    start = HeldStart(sent, {"indices": takers}, 5, True)
    _, taken = start.offer(key("indices"), np.array([4]))
    # nothing that was taken is sent again, and nothing is taken that is sent
    assert [one for one, _ in taken] == [takers[0]]
    np.testing.assert_array_equal(taken[0][1], values[[4]])
    assert sent.starts == [(["indices"], 1)]


def test_a_part_whose_indices_are_all_that_it_would_be_sent_begins_too() -> None:
    sent = Sent()
    start = HeldStart(sent, {"indices": [shown(table(LARGE)[0], alone=True)]}, 1, True)
    start.offer(key("indices"), np.array([4]))
    assert sent.starts == [([], 1)]


def test_what_starts_a_part_is_sent_once() -> None:
    sent = Sent()
    start = HeldStart(sent, {}, 4, True)
    threads = [threading.Thread(target=start.begin) for _ in range(8)]
    threads += [threading.Thread(target=start.offer, args=(key("a"), np.ones(3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(sent.starts) == 1
