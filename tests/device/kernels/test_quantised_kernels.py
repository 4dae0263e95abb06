"""Products and convolutions of bytes in compiled programs, by each kernel: the very integers of NumPy's sums.

What needs the extra `native` is skipped without it. Where the processor has no instructions for bytes, the library's
sums are right only for small ones: there its kernels compute those, so that what describes them to it is tested.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import alternates, candidates
from anabranch.kernels import MODULES, native_bytes, onednn, quantised_convolutions
from anabranch.ops.quantized import fused, nn, products
from anabranch.ops.quantized.fixed_point import FixedPoint
from anabranch.ops.quantized.products import Bytes, ByteWindow
from anabranch.xla.jax_settings import in_wide_types
from tests.device.kernels.test_convolutions import case_of

Array = np.ndarray[Any, Any]


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    convolutions = quantised_convolutions.OPERATIONS
    assert set(MODULES[quantised_convolutions.__name__]) == set(convolutions)
    assert set(MODULES[native_bytes.__name__]) == {*convolutions, *native_bytes.PRODUCTS}
    for op_type in convolutions:
        assert {one.name for one in alternates(op_type)} == {"floats", "onednn"}
    for op_type in native_bytes.PRODUCTS:
        assert [one.name for one in alternates(op_type)] == ["onednn"]


# ---------------------------------------------------------------------- sums
#: how far the filter's bytes may be from 0 where processors add two products in 16 bits
SMALL = 63


@st.composite
def any_bytes(draw: Any, shape: tuple[int, ...], most: int = 128) -> Bytes:
    """Bytes of either kind; the largest and the least ones often, since their sums are."""
    dtype = np.dtype(draw(st.sampled_from(["uint8", "int8"])))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    middle = 128 if dtype == np.uint8 else 0
    numbers = rng.integers(-most, most, shape)
    if draw(st.booleans()):
        numbers = np.where(numbers < 0, -most, most - 1)
    return Bytes(
        (numbers + middle).astype(dtype), draw(st.sampled_from([0, middle, middle - 100, 37, 255, -300, 70000]))
    )


@st.composite
def any_convolutions(draw: Any, most: int = 128) -> tuple[Bytes, Bytes, ByteWindow]:
    size, strides, dilations = (draw(st.tuples(st.integers(1, n), st.integers(1, n))) for n in (3, 2, 2))
    lengths = draw(st.tuples(st.integers(5, 9), st.integers(5, 9)))
    channels = draw(st.sampled_from([1, 3, 16, 33]))
    pads = draw(st.tuples(*[st.tuples(st.integers(-1, 2), st.integers(-1, 2))] * 2))
    x = draw(any_bytes((2, *lengths, channels)))
    return (
        x,
        draw(any_bytes((*size, channels, draw(st.sampled_from([1, 5, 16]))), most)),
        ByteWindow(strides, pads, dilations),
    )


def from_zero(one: Bytes) -> Array:
    return one.array.astype(np.int64) - one.zero


def in_32_bits(total: Array) -> Array:
    return total.astype(np.int64).astype(np.int32)


def summed(x: Bytes, w: Bytes, window: ByteWindow) -> Array:
    return in_32_bits(nn.convolved(from_zero(x), from_zero(w), window))


def compiled(function: Any, *factors: Bytes, more: tuple[Any, ...] = ()) -> Array:
    """What a function of `products` gives in a compiled program, with the arrays as its arguments."""

    def program(*arrays: Any) -> Any:
        return function(*(Bytes(a, one.zero) for a, one in zip(arrays, factors, strict=True)), *more)

    return np.asarray(in_wide_types(jax.jit(program), *(one.array for one in factors)))


@settings(max_examples=12)
@given(st.data())
def test_products_of_bytes(data: st.DataObject) -> None:
    rows, inner, columns = data.draw(st.tuples(*[st.sampled_from([1, 2, 7, 16, 40])] * 3))
    a, b = data.draw(any_bytes((rows, inner))), data.draw(any_bytes((inner, columns)))
    np.testing.assert_array_equal(compiled(products.product, a, b), in_32_bits(from_zero(a) @ from_zero(b)))


@settings(max_examples=12)
@given(any_convolutions())
def test_convolutions_of_bytes(drawn: tuple[Bytes, Bytes, ByteWindow]) -> None:
    x, w, window = drawn
    np.testing.assert_array_equal(compiled(products.convolution, x, w, more=(window,)), summed(x, w, window))
    if products.sums_are_floats(x, w, int(np.prod(w.array.shape[:3]))):
        found = compiled(products.convolution_of_floats, x, w, more=(window,))
        np.testing.assert_array_equal(found, summed(x, w, window))


@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 0), (0, 2))])
def test_zero_need_not_be_a_byte(pads: Any) -> None:
    rng = np.random.default_rng(0)
    x = Bytes(rng.integers(0, 256, (2, 4, 5, 3)).astype(np.uint8), -1280)
    w, window = Bytes(rng.integers(-128, 128, (2, 1, 3, 4)).astype(np.int8), 900), ByteWindow((1, 1), pads)
    np.testing.assert_array_equal(compiled(products.convolution, x, w, more=(window,)), summed(x, w, window))
    wanted = in_32_bits(nn.convolved_per_channel(from_zero(x), from_zero(w), window))
    np.testing.assert_array_equal(compiled(products.convolution_per_channel, x, w, more=(window,)), wanted)


@settings(max_examples=6)
@given(any_convolutions())
def test_convolutions_of_each_channel(drawn: tuple[Bytes, Bytes, ByteWindow]) -> None:
    x, w, window = drawn
    wanted = in_32_bits(nn.convolved_per_channel(from_zero(x), from_zero(w), window))
    np.testing.assert_array_equal(compiled(products.convolution_per_channel, x, w, more=(window,)), wanted)


def test_float32_has_no_more_sums_than_these() -> None:
    """One pair more, and the largest sum is not a float32."""
    x, w = Bytes(np.zeros(1, np.uint8)), Bytes(np.zeros(1, np.int8))
    most = (1 << 24) // (255 * 128)
    assert products.sums_are_floats(x, w, most)
    assert not products.sums_are_floats(x, w, most + 1)
    assert not products.sums_are_floats(x._replace(zero=-70000), w, most)


# ---------------------------------------------------------------------- 32 bits to 8
@settings(max_examples=20)
@given(st.integers(1, 1 << 44), st.integers(-(1 << 30), 1 << 30), st.integers(0, 1000))
@example(1 << 24, 1 << 15, 0)
@example(1 << 48, 0, 0)
def test_a_line_gives_the_bytes_of_fixed_point_arithmetic(scale: int, offset: int, seed: int) -> None:
    """At random numbers, and on both sides of each step."""
    move = FixedPoint(scale, offset)
    near = [step + d for step in move.steps() for d in (-2, -1, 0, 1)]
    ends = [-(2**31), 2**31 - 1]
    x = np.array([min(max(n, ends[0]), ends[1]) for n in (*near, *ends, 0)], np.int64).astype(np.int32)
    x = np.concatenate([x, np.random.default_rng(seed).integers(*ends, 200).astype(np.int32)])
    wanted = [min(max((((int(n) * scale) >> 32) + offset) >> 16, 0), 255) for n in x]
    assert move(x).tolist() == wanted
    program = jax.jit(functools.partial(FixedPoint.__call__, move))
    assert np.asarray(in_wide_types(program, x)).tolist() == wanted


def test_usual_ranges_have_a_line() -> None:
    """Those of a convolution with sums of 20 bits, and of a bias."""
    assert [FixedPoint(1 << bits, 1 << 15).line() is not None for bits in (36, 42)] == [True, True]


# ---------------------------------------------------------------------- oneDNN's
def most_exact() -> int:
    library = onednn.library()
    assert library is not None
    return 128 if native_bytes.is_exact(library) else SMALL


def test_products_by_the_library(native: None) -> None:
    @settings(max_examples=12)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        rows, inner, columns = data.draw(st.tuples(*[st.sampled_from([1, 2, 7, 16, 40])] * 3))
        a, b = data.draw(any_bytes((rows, inner))), data.draw(any_bytes((inner, columns), most_exact()))
        try:
            found = compiled(native_bytes.multiply, a, b, more=("product",))
        except onednn.NativeError:
            return  # it has no implementation that is worth while, and would not be offered
        np.testing.assert_array_equal(found, in_32_bits(from_zero(a) @ from_zero(b)))
        compared.append(rows)

    compared: list[int] = []
    compare()
    assert compared


def test_convolutions_by_the_library(native: None) -> None:
    @settings(max_examples=12)
    @given(any_convolutions(most_exact()))
    def compare(drawn: tuple[Bytes, Bytes, ByteWindow]) -> None:
        x, w, window = drawn
        x = x._replace(zero=x.array.reshape(-1)[0].item())  # outside the images is what stands for zero
        try:
            found = compiled(native_bytes.convolve, x, w, more=(window, "convolution"))
        except onednn.NativeError:
            return
        np.testing.assert_array_equal(found, summed(x, w, window))
        compared.append(window)

    compared: list[ByteWindow] = []
    compare()
    assert compared


def convolution_case() -> Any:
    with tf.Graph().as_default():
        x, w = np.zeros((2, 8, 8, 16), np.uint8), np.zeros((3, 3, 16, 8), np.uint8)
        ranges: dict[str, float] = {"min_input": 0.0, "max_input": 1.0, "min_filter": -1.0, "max_filter": 1.0}
        op = tf.raw_ops.QuantizedConv2D(
            input=tf.bitcast(x, tf.quint8),
            filter=tf.bitcast(w, tf.quint8),
            strides=[1, 1, 1, 1],
            padding="SAME",
            **{name: tf.constant(value) for name, value in ranges.items()},
        ).output.op
        return case_of(op, [x, w, *(np.float32(value) for value in ranges.values())])


def test_the_library_is_offered_where_the_largest_products_are_right(
    native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = onednn.library()
    assert library is not None

    def offered() -> bool:
        return "onednn" in {candidate.name for candidate in candidates(convolution_case())}

    assert offered() == native_bytes.is_exact(library)
    monkeypatch.setattr(native_bytes, "_multiplies_largest", lambda library: True)
    monkeypatch.setattr(library, "instruction_set", "AVX512-VNNI")
    assert offered()
    monkeypatch.setattr(library, "instruction_set", "AVX512")
    assert not offered()


def test_fused_operations_are_all_here() -> None:
    assert {name for name, (_, depthwise) in fused.CONVOLUTIONS.items() if not depthwise} < set(
        quantised_convolutions.OPERATIONS
    )
