"""What passes between tasks while steps run: values, events and errors come back as they went, damage is refused."""

from __future__ import annotations

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
from anabranch.proto.step_plan_pb2 import ErrorDef, ValueDef
from anabranch.runtime.item_call import ItemEvent
from anabranch.runtime.messages import (
    Frames,
    error_from_proto,
    error_to_proto,
    event_from_proto,
    event_to_proto,
    nodes_by_origin,
    value_from_proto,
    value_to_proto,
)
from anabranch.runtime.remote_worker import read_reply
from anabranch.runtime.worker_service import WorkerService

NUMBERS = st.sampled_from(
    [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64]
)


def carried(value: Any) -> Any:
    frames = Frames()
    message = ValueDef.FromString(value_to_proto(value, frames).SerializeToString())
    return value_from_proto(message, iter([bytes(frame) for frame in frames]))


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


@pytest.mark.parametrize(
    ("message", "frames"),
    [
        (ValueDef(dtype=1, dim=[3], is_array=True), [b"1234"]),
        (ValueDef(dtype=1, dim=[1 << 40, 1 << 40], is_array=True), [b""]),
        (ValueDef(dtype=1, dim=[-1], is_array=True), [b""]),
        (ValueDef(dtype=7, dim=[2], is_array=True, length=[1, 5]), [b"ab"]),
        (ValueDef(dtype=7, dim=[2], is_array=True, length=[3, -1]), [b"ab"]),
        (ValueDef(dtype=7, dim=[1], is_array=True), [b""]),
        (ValueDef(dtype=99, dim=[1], is_array=True), [b"1"]),
        (ValueDef(dtype=1, dim=[1], is_array=True), []),
    ],
)
def test_sizes_are_not_believed(message: ValueDef, frames: Frames) -> None:
    with pytest.raises((ValueError, TypeError)):
        value_from_proto(message, iter(frames))


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
