"""Messages that start parts of steps: what is alike is read by its layout, as the decoder reads it; all else is not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.errors import OpError
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.runtime.start_layouts import StartLayout, has_layout
from anabranch.runtime.step_messages import decode_start, encode_start

DTYPES = [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16]
SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (1, 1, 2)]
ARRAYS = st.lists(st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES)), min_size=1, max_size=3)


def message(step: int, arrays: list[Any], first_step: int = 0, timeout: float | None = None) -> bytes:
    sent = [(Key(StepId("s", step), "/here", "/there", f"tensor {i}"), array) for i, array in enumerate(arrays)]
    (data,) = encode_start(
        "s", 7, step, [], first_step=first_step, timeout=timeout, sent=sent, read_ahead=True, rows_taken=5
    )
    return bytes(data)


def filled(kinds: list[tuple[Any, tuple[int, ...]]], value: int) -> list[Any]:
    return [np.full(shape, value).astype(dtype) for dtype, shape in kinds]


def layout_of(data: bytes) -> StartLayout:
    start = decode_start([data])
    assert has_layout(start)
    return StartLayout(data, start)


@given(ARRAYS, st.integers(0, 2**62), st.integers(0, 2**62), st.none() | st.floats(0.5, 1e6), st.integers(0, 100))
def test_messages_that_are_alike_are_read_and_written_as_by_the_codec(
    kinds: list[tuple[Any, tuple[int, ...]]], step: int, first: int, timeout: float | None, value: int
) -> None:
    layout = layout_of(message(1, filled(kinds, 1)))
    arrays = filled(kinds, value)
    data = message(step, arrays, first, timeout)
    assert layout.write(step, first, timeout, arrays) == data
    read = layout.read(data)
    assert read is not None
    assert (read.step, read.first_step) == (step, first)
    for found, array in zip(read.tensors, arrays, strict=True):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
        assert not found.flags.writeable


@given(st.data(), ARRAYS)
def test_a_message_that_differs_in_anything_else_is_not_read(data: Any, kinds: list[Any]) -> None:
    first = message(1, filled(kinds, 1))
    layout = layout_of(first)
    damaged = bytearray(message(2, filled(kinds, 2)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    read = layout.read(bytes(damaged))
    try:
        start = decode_start([bytes(damaged)])
    except OpError:
        assert read is None
        return
    if read is None:
        return
    # what is read is what the codec reads, and nothing but numbers and contents is another
    assert (read.step, read.first_step) == (start.step, start.first_step)
    assert [one.key.tensor for one in start.sent] == [f"tensor {i}" for i in range(len(kinds))]
    assert {one.key.step for one in start.sent} == {StepId("s", read.step)}
    assert start[:2] == ("s", 7)
    for found, one in zip(read.tensors, start.sent, strict=True):
        assert one.value is not None
        assert found.dtype == one.value.dtype
        assert found.tobytes() == np.asarray(one.value).tobytes()


def test_other_sizes_shapes_and_names_are_others() -> None:
    layout = layout_of(message(1, [np.zeros((2, 3), np.float32)]))
    assert layout.read(message(1, [np.zeros((3, 2), np.float32)])) is None
    assert layout.read(message(1, [np.zeros((2, 3), np.int32)])) is None
    assert layout.read(message(1, [np.zeros((2, 4), np.float32)])) is None
    assert layout.read(b"") is None


@pytest.mark.parametrize(
    ("feeds", "value", "more"),
    [
        ([np.float32(1)], np.float32(1), {}),
        ([], np.zeros(1 << 14, np.uint8), {}),
        ([], np.zeros(0, np.float32), {}),
        ([], np.array([b"a string"], np.object_), {}),
        ([], None, {}),
        ([], np.float32(1), {"recorded": True}),
    ],
    ids=["fed", "large", "empty", "strings", "dead", "recorded"],
)
def test_what_has_bytes_elsewhere_or_none_has_no_layout(feeds: list[Any], value: Any, more: dict[str, Any]) -> None:
    key = Key(StepId("s", 1), "/here", "/there", "t")
    start = decode_start(encode_start("s", 7, 1, feeds, sent=[(key, value)], read_ahead=True, **more))
    assert not has_layout(start)
    assert not has_layout(decode_start(encode_start("s", 7, 1, [], read_ahead=True))), "nothing is brought"
