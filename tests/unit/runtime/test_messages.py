"""What passes between tasks while steps run: values, events and errors come back as they went, damage is refused."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import anabranch as tf
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import Graph
from anabranch.pipeline import plan_step
from anabranch.proto.step_plan_pb2 import ErrorDef
from anabranch.runtime.item_call import ItemEvent
from anabranch.runtime.messages import (
    Frames,
    error_from_proto,
    error_to_proto,
    event_from_proto,
    event_to_proto,
    nodes_by_origin,
)
from anabranch.runtime.remote_worker import read_reply
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.runtime.step_messages import (
    decode_done,
    decode_start,
    decode_transfer,
    encode_done,
    encode_start,
    encode_transfer,
)
from anabranch.runtime.worker_service import WorkerService

NUMBERS = st.sampled_from(
    [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64]
)


def carried(value: Any) -> Any:
    (found,) = decode_done([bytes(frame) for frame in encode_done([value])]).fetches
    return found


@given(hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_arrays_come_back(array: Any) -> None:
    found = carried(array)
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    found[...] = 0  # whoever gets it may write to it


@given(st.lists(st.binary(max_size=9), max_size=6), st.booleans())
def test_strings_come_back(strings: list[bytes], twice: bool) -> None:
    array = np.array(strings * (2 if twice else 1), np.object_)
    found = carried(array.reshape(2, -1) if twice else array)
    assert found.shape == ((2, len(strings)) if twice else (len(strings),))
    assert found.reshape(-1).tolist() == array.tolist()
    assert carried(b"alone")[()] == b"alone"


def test_other_values_come_back() -> None:
    handle = ResourceHandle("c", "n", "queue", task="/job:ps/replica:0/task:0", shape=TensorShape([None, 2]))
    found = carried(handle)
    assert (found, found.shape.as_list()) == (handle, [None, 2])
    half = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert carried(half).dtype == half.dtype
    strided = np.arange(12).reshape(3, 4)[::-1, ::2]
    np.testing.assert_array_equal(carried(strided), strided)


def test_what_cannot_leave_its_task_says_so() -> None:
    box = np.empty(1, np.object_)
    box[0] = {}
    with pytest.raises(tf.errors.UnimplementedError, match="a value that holds a dict cannot leave"):
        carried(box)


KEY = Key(StepId("s", 1 << 40), "/device:CPU:0", "/device:CPU:1", "a tensor", "a frame", 3)
LARGE = np.arange(1 << 15, dtype=np.int16)


def test_what_starts_a_step_and_what_travels_in_it_come_back() -> None:
    start = decode_start(
        encode_start("session", 7, 8, [np.float32(2), LARGE], timeout=1.5, recorded=True, first_step=5)
    )
    assert start[:7] == ("session", 7, 8, 5, 1.5, True, False)
    assert start.feeds[0] == 2
    np.testing.assert_array_equal(start.feeds[1], LARGE)
    assert decode_start(encode_start("", 1, -1, []))[:] == ("", 1, -1, 0, None, False, False, [], [], 0)
    sent: list[Any] = [(KEY, LARGE), (KEY._replace(tensor="another"), None)]
    brings = decode_start(encode_start("s", 1, 2, [LARGE], read_ahead=True, sent=sent, rows_taken=1 << 63 | 2))
    brought, dead = brings.sent
    assert (brings.read_ahead, brings.rows_taken, brought.key, brought.is_halved) == (True, 1 << 63 | 2, KEY, False)
    np.testing.assert_array_equal(brings.feeds[0], LARGE)
    np.testing.assert_array_equal(brought.value, LARGE)
    assert brought.size > 2 * LARGE.nbytes
    assert (dead.key.tensor, dead.value) == ("another", None)
    transfer = decode_transfer(encode_transfer(KEY, LARGE, is_halved=True))
    assert (transfer.key, transfer.is_halved) == (KEY, True)
    assert transfer.size > LARGE.nbytes
    dead = decode_transfer(encode_transfer(KEY, None))
    assert (dead.key, dead.value, dead.is_halved) == (KEY, None, False)
    assert decode_done(encode_done([], b"told")) == ([], b"told")


def test_few_bytes_go_in_the_first_frame_and_large_arrays_are_not_copied() -> None:
    assert len(encode_done([np.zeros(9), np.int8(1), np.ones((2, 2))])) == 1
    _, frame = encode_done([np.broadcast_to(np.int64(1), 1 << 13).copy()])
    assert isinstance(frame, memoryview)
    large = np.zeros(1 << 14)
    _, frame = encode_done([large])
    assert np.shares_memory(np.frombuffer(frame, np.uint8), large)


def damaged(frames: Frames, at: int, byte: int) -> Frames:
    first = bytearray(frames[0])
    first[at % len(first)] = byte
    return [bytes(first), *frames[1:]]


MESSAGES = st.sampled_from(
    [
        (decode_start, encode_start("s", 7, 8, [np.ones(3), b"a string", LARGE], timeout=1.5)),
        (
            decode_start,
            encode_start("s", 7, 8, [np.ones(3)], read_ahead=True, sent=[(KEY, np.ones(3))] * 2, rows_taken=3),
        ),
        (decode_transfer, encode_transfer(KEY, np.array([b"a", b"bc"], np.object_))),
        (decode_done, encode_done([LARGE, ResourceHandle("c", "n", "queue")], b"told")),
    ]
)


@given(MESSAGES, st.integers(0, 1 << 10), st.integers(0, 255), st.integers(0, 4))
def test_damage_is_refused_or_harmless(message: Any, at: int, byte: int, cut: int) -> None:
    decode, frames = message
    for damage in (damaged(frames, at, byte), [bytes(frames[0])[: at % len(frames[0])], *frames[1:]], frames[:cut]):
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            decode(damage)


@pytest.mark.parametrize(
    ("old", "new", "frames", "why"),
    [
        (struct.pack("<q", 3), struct.pack("<q", 4), [], "4 elements of float64 came with 24"),
        (struct.pack("<q", 3), struct.pack("<q", -1), [], "cannot have the shape"),
        (struct.pack("<BBHQ", 1, 2, 1, 24), struct.pack("<BBHQ", 1, 2, 1, 1 << 60), [], "are needed"),
        (struct.pack("<BBHQ", 1, 2, 1, 24), struct.pack("<BBHQ", 9, 2, 1, 24), [], "no value of kind 9"),
        (struct.pack("<BBHQ", 1, 2, 1, 24), struct.pack("<BBHQ", 1, 99, 1, 24), [], "99"),
        (struct.pack("<BBHQ", 1, 2, 1, 24), struct.pack("<BBHQ", 2, 2, 1, 24), [], "list index out of range"),
        (struct.pack("<II", 1, 0), struct.pack("<II", 1 << 31, 0), [], "are more than"),
        (b"", b"", [b"one more"], "goes on behind its end"),
    ],
)
def test_sizes_are_not_believed(old: bytes, new: bytes, frames: Frames, why: str) -> None:
    (first,) = encode_done([np.ones(3)])
    assert old in bytes(first)
    with pytest.raises(tf.errors.InvalidArgumentError, match=why):
        decode_done([bytes(first).replace(old, new, 1), *frames])


def test_events_come_back() -> None:
    event = ItemEvent("a", "Island", ("b", "a"), ("c",), 1.5, 2.5, 7, 1 << 40, "/device:CPU:0")
    assert event_from_proto(event_to_proto(event)) == event


def test_errors_name_their_operation_again() -> None:
    with Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        y = tf.cond(x > 0, lambda: tf.exp(x, name="inner"), lambda: x)
        (partition,) = plan_step([y], [], [x]).partitions
    nodes = nodes_by_origin(partition)
    inner = next(node for node in nodes.values() if node.name.endswith("inner"))
    error = tf.errors.NotFoundError(None, inner, "no such thing")
    error.add_note("a note")
    found: Any = error_from_proto(error_to_proto(error), nodes)
    assert (type(found), found.op, str(found), found.__notes__) == (type(error), inner, str(error), ["a note"])
    assert type(error_from_proto(error_to_proto(KeyError("k")), {})) is KeyError
    strange: Any = error_from_proto(ErrorDef(type="KeyboardInterrupt", message="m"), {})
    assert (type(strange), strange.message) == (tf.errors.UnknownError, "KeyboardInterrupt: m")
    odd: Any = error_from_proto(ErrorDef(code=99, message="m"), {})
    assert (type(odd), odd.error_code) == (tf.errors.UnknownError, 99)


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_a_service_answers_whatever_comes(frames: Frames) -> None:
    reply, values = read_reply(WorkerService().handle(frames))
    assert not values
    assert reply.HasField("error")
