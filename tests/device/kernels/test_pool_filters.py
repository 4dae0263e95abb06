"""Gradients to filters as direct sums on XLA's threads: results, bad calls, where they are offered."""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core import dtypes
from anabranch.core.kernels import candidates
from anabranch.kernels import onednn, pool_filters, pool_handler
from anabranch.kernels.pool_filters import NAME, Sums
from anabranch.ops import raw
from anabranch.ops.nn.conv import Geometry
from anabranch.xla import kernel_choice
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.test_convolutions import case_of

#: of the largest number of a result
TOLERANCE = 2e-5
HALF = dtypes.bfloat16.as_numpy_dtype


@pytest.fixture
def handler(compiled: None) -> None:
    """The handler, compiled and loaded, on a processor that can."""
    if not pool_filters.can_sum(False):
        pytest.skip("this processor has no vectors of 512 bits")


@pytest.fixture
def pairs(handler: None) -> None:
    """The same, with instructions for pairs of bfloat16 (tiles or not)."""
    library = onednn.library()
    assert library is not None
    if not pool_handler.loaded(library).anabranch_pool_filters_can(1):
        pytest.skip("this processor does not multiply pairs of bfloat16")


# ---------------------------------------------------------------------- agreement
def geometry_of(
    data: tuple[int, ...],
    depth: int,
    taps: tuple[int, int] = (1, 1),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
) -> Geometry:
    attrs = {
        "strides": [1, *strides, 1],
        "dilations": [1, 1, 1, 1],
        "padding": b"EXPLICIT",
        "explicit_paddings": [0, 0, *pads[0], *pads[1], 0, 0],
        "data_format": b"NHWC",
    }
    return Geometry(attrs, data, (*taps, data[3], depth), False)


def arrays(geometry: Geometry, dtype: Any = np.float32, seed: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    """Data, and a gradient of the output."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in (geometry.shape, geometry.out_shape))


def summed(geometry: Geometry, data: np.ndarray[Any, Any], grad: np.ndarray[Any, Any]) -> Any:
    """In float64."""
    window = geometry.window
    padded, wide = np.pad(data.astype(np.float64), window.pads), grad.astype(np.float64)
    _, rows, columns, _ = geometry.out_shape
    (_, high, across, _), (_, down, right, _) = window.size, window.strides
    found = np.zeros(geometry.filter_shape)
    for i in range(high):
        for j in range(across):
            view = padded[:, i : i + (rows - 1) * down + 1 : down, j : j + (columns - 1) * right + 1 : right]
            found[i, j] = np.einsum("bhwc,bhwk->ck", view, wide)
    return found


def called(geometry: Geometry, data: Any, grad: Any) -> Any:
    """The handler's result, however small."""
    return np.asarray(jax.jit(lambda x, y: pool_filters.call("layer/conv", x, y, geometry))(data, grad))


def close(found: Any, expected: Any) -> bool:
    """Whether numbers are those, rounded but once from sums in float32."""
    error = np.abs(found.astype(np.float64) - expected)
    rounding = np.abs(expected) / 256 if found.dtype == HALF else 0.0
    allowed = rounding + TOLERANCE * max(1.0, np.abs(expected).max())
    return found.shape == expected.shape and bool((error <= allowed).all())


channels = st.one_of(st.sampled_from([1, 3, 4, 8, 15, 16, 17, 32, 33, 48, 64, 80, 100]), st.integers(1, 150))


@st.composite
def any_convolutions(draw: Any) -> Geometry:
    taps = draw(st.sampled_from([(1, 1), (1, 1), (3, 3), (5, 5), (1, 7), (7, 1), (2, 3), (11, 11)]))
    strides = draw(st.sampled_from([(1, 1), (2, 2), (1, 2), (3, 1), (4, 4)]))
    pads = [draw(st.tuples(st.integers(0, count - 1), st.integers(0, count))) for count in taps]
    lengths = [draw(st.integers(max(1, count - sum(pad)), 22)) for count, pad in zip(taps, pads, strict=True)]
    data = (draw(st.integers(1, 5)), *lengths, draw(channels))
    return geometry_of(data, draw(channels), taps, strides, (pads[0], pads[1]))


@pytest.mark.parametrize("dtype", [np.float32, HALF])
def test_results_are_those_of_float64(handler: None, request: pytest.FixtureRequest, dtype: Any) -> None:
    """Lengths that no pair ends with, channels that no vector ends with, any padding, strides and number of cores."""
    if dtype == HALF:
        request.getfixturevalue("pairs")

    @settings(max_examples=80)
    @given(any_convolutions(), st.sampled_from([1, 2, 5]))
    def compare(geometry: Geometry, cores: int) -> None:
        data, grad = arrays(geometry, dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool_filters, "core_count", lambda: cores)
            assert close(called(geometry, data, grad), summed(geometry, data, grad))

    compare()


@pytest.mark.parametrize("dtype", [np.float32, HALF])
@pytest.mark.parametrize(
    ("data", "depth", "taps", "strides", "pads"),
    [
        ((8, 28, 28, 256), 128, (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((2, 7, 7, 2048), 512, (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((3, 13, 13, 288), 64, (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((2, 28, 28, 256), 512, (1, 1), (2, 2), ((0, 0), (0, 0))),
        ((4, 14, 14, 160), 320, (3, 3), (1, 1), ((1, 1), (1, 1))),
        ((2, 35, 35, 96), 96, (3, 3), (2, 2), ((0, 0), (0, 0))),
        ((2, 64, 64, 3), 64, (7, 7), (2, 2), ((2, 3), (2, 3))),
        ((2, 67, 67, 3), 96, (11, 11), (4, 4), ((0, 0), (0, 0))),
        ((1, 112, 112, 16), 64, (3, 3), (1, 1), ((1, 1), (1, 1))),
    ],
)
def test_layers_of_networks_are_computed_whole(
    handler: None,
    request: pytest.FixtureRequest,
    dtype: Any,
    data: tuple[int, ...],
    depth: int,
    taps: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    """More channels, and more groups, than a part takes. What memory held before is no number."""
    if dtype == HALF:
        request.getfixturevalue("pairs")
    geometry = geometry_of(data, depth, taps, strides, pads)
    values, grad = arrays(geometry, dtype)
    sums = Sums.of(geometry, dtype == HALF)
    jax.block_until_ready(jax.device_put(np.full(sums.scratch_bytes // 4, np.nan, np.float32)))
    assert close(called(geometry, values, grad), summed(geometry, values, grad))


def test_places_that_complete_a_pair_are_nothing(pairs: None) -> None:
    """What follows a row of an odd number of places is another row, and no number there spoils this one's."""
    geometry = geometry_of((2, 3, 5, 16), 16, (3, 1), (1, 1), ((1, 1), (0, 0)))
    data, grad = arrays(geometry, HALF)
    data[0, 1, 4, 15] = np.nan
    data[1, 2, 0, 3] = np.inf
    found, expected = called(geometry, data, grad).astype(np.float32), summed(geometry, data, grad)
    assert not np.isfinite(expected[1, 0, (3, 15)]).any()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


def test_threads_may_call_at_the_same_time(handler: None) -> None:
    """And a result is the same, bit for bit, whichever threads compute its parts."""
    geometry = geometry_of((4, 30, 30, 40), 24, (3, 3), (1, 1), ((1, 1), (1, 1)))
    data, grad = arrays(geometry)
    expected = called(geometry, data, grad)
    agreed: list[bool] = []

    def work() -> None:
        agreed.extend(np.array_equal(called(geometry, data, grad), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [True] * 80


# ---------------------------------------------------------------------- how it is cut
@settings(max_examples=100)
@given(any_convolutions(), st.sampled_from([1, 2, 16, 100]), st.booleans())
def test_parts_are_whole_vectors(geometry: Geometry, cores: int, is_half: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_filters, "core_count", lambda: cores)
        *_, rows, images, data_span, grad_span, shares, places = Sums.of(geometry, is_half).numbers
    assert (data_span % 8, grad_span % 16, places) == (0, 0, min(cores, 64))
    assert 1 <= shares <= 128
    assert min(rows, images) >= 1


def test_large_filters_are_divided_by_channels_and_small_ones_by_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of a large filter would be read again by another thread; of a small one, the data packed again."""
    for cores, (data, depth) in itertools.product((1, 2), (((8, 7, 7, 2048), 512), ((8, 56, 56, 64), 64))):
        monkeypatch.setattr(pool_filters, "core_count", lambda cores=cores: cores)
        *_, data_span, grad_span, shares, _ = Sums.of(geometry_of(data, depth), True).numbers
        if depth == 512:
            assert shares == 1
            assert (data_span, grad_span) < (2048, 512) or cores == 1
        else:
            assert (data_span, grad_span, shares) == (64, 64, cores)


def test_memory_to_work_in_is_bounded() -> None:
    """It is the sums, for each share, and what a group takes for each thread."""
    for data, depth, taps in (
        ((16, 224, 224, 64), 64, (3, 3)),
        ((1, 7, 7, 4096), 4096, (1, 1)),
        ((1, 1009, 1009, 64), 64, (1, 1)),  # a prime
        ((1, 8, 1024, 16), 16, (1, 7)),
    ):
        assert pool_filters.pays(geometry_of(data, depth, taps))
        pads = ((taps[0] // 2,) * 2, (taps[1] // 2,) * 2)
        sums = Sums.of(geometry_of(data, depth, taps, (1, 1), pads), True)
        *_, shares, places = sums.numbers
        of_sums = math.prod(taps) * data[3] * depth * 4 * shares
        assert sums.scratch_bytes <= of_sums + places * (4 << 20)


# ---------------------------------------------------------------------- bad calls
GOOD = (1, 4, 4, 16, 16, 4, 4, 32, 3, 3, 1, 1, 1, 1, 4, 1, 16, 32, 1, 2)


def changed(**places: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = np.array(GOOD, np.int64)
    for place, value in places.items():
        numbers[int(place[2:])] = value
    return numbers


def bad_call(scratch: int, **attributes: Any) -> Any:
    data, grad = (np.ones(shape, np.float32) for shape in ((1, 4, 4, 16), (1, 4, 4, 32)))
    described = [jax.ShapeDtypeStruct((3, 3, 16, 32), np.float32), jax.ShapeDtypeStruct((scratch,), np.uint8)]  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(pool_handler.FILTERS_TARGET, described)
    return jax.block_until_ready(jax.jit(lambda x, y: call(x, y, node="layer/conv", **attributes))(data, grad))


@pytest.mark.parametrize(
    ("attributes", "scratch", "message"),
    [
        ({"numbers": np.arange(3, dtype=np.int64)}, 1 << 20, "twenty numbers"),
        ({"numbers": changed(at0=-1)}, 1 << 20, "no length"),
        ({"numbers": changed(at3=1 << 40)}, 1 << 20, "no length"),
        ({"numbers": changed(at3=15)}, 1 << 20, "other numbers"),
        ({"numbers": changed(at4=48)}, 1 << 20, "other numbers"),
        ({"numbers": changed(at8=65)}, 1 << 20, "too many taps"),
        ({"numbers": changed(at12=3)}, 1 << 20, "sees nothing"),
        ({"numbers": changed(at5=40, at14=40)}, 1 << 20, "sees nothing"),
        ({"numbers": changed(at1=1 << 14, at2=1 << 15)}, 1 << 20, "too large"),
        ({"numbers": changed(at14=5)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at15=2)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at16=12)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at17=24)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at19=65)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at16=24)}, 1 << 20, "other parts"),
        ({"numbers": changed(at18=2)}, 1 << 20, "other parts"),
        ({"numbers": changed(at0=2, at15=1)}, 1 << 20, "others than"),
        ({"numbers": changed(at7=16, at17=16)}, 1 << 20, "others than"),
        ({"numbers": changed()}, 64, "others than"),
        ({"numbers": changed(), "more": 1}, 1 << 20, "two attributes"),
    ],
)
def test_a_bad_call_is_an_error(handler: None, attributes: dict[str, Any], scratch: int, message: str) -> None:
    """Never a crash; the error names the operation, if the call does."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        bad_call(scratch, **attributes)


def test_the_good_call_is_none(handler: None) -> None:
    """Each of the calls above is wrong for one reason."""
    found, _ = bad_call(1 << 20, numbers=changed())
    assert np.allclose(np.asarray(found)[1, 1], 16)


# ---------------------------------------------------------------------- where they are offered
def offered(data: tuple[int, ...], depth: int, dtype: Any = tf.float32, size: int = 1, **attrs: Any) -> bool:
    with tf.Graph().as_default():
        channels = data[3] if attrs.get("data_format", "NHWC") == "NHWC" else data[1]
        filter = (size, size, channels, depth)
        given = {"strides": [1, 1, 1, 1], "padding": "SAME"} | attrs
        x, sizes = tf.placeholder(dtype, data), tf.constant(filter)
        output = raw.Conv2D(input=x, filter=tf.placeholder(dtype, filter), **given)
        op = raw.Conv2DBackpropFilter(input=x, filter_sizes=sizes, out_backprop=output, **given).op
        shapes = data, tuple(output.shape.as_list())
        zeros = [np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype) for shape in shapes]
        return NAME in {one.name for one in candidates(case_of(op, [zeros[0], np.array(filter), zeros[1]]))}


def test_what_it_does_not_pay_for_is_not_offered(handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what has another type, layout or filter; nor where the processor cannot."""
    data = (8, 28, 28, 32)
    for size in (1, 2, 3, 5):
        assert offered(data, 64, size=size)
    assert offered((8, 56, 56, 64), 64, strides=[1, 2, 2, 1])
    assert offered((8, 56, 56, 3), 64, size=7)
    assert not offered((8, 56, 56, 3), 64, size=2)
    assert not offered((1, 8, 8, 32), 64)
    assert offered((1, 10, 1024, 32), 64, size=3)
    assert not offered((1, 10, 1025, 32), 64, size=3)
    assert not offered(data, 64, size=3, dilations=[1, 2, 2, 1])
    assert not offered((8, 32, 28, 28), 64, data_format="NCHW")
    for dtype in (tf.float16, tf.float64):
        assert not offered(data, 64, dtype)
    monkeypatch.setattr(pool_filters, "can_sum", lambda is_half: not is_half)
    assert offered(data, 64)
    assert not offered(data, 64, tf.bfloat16)


def test_without_the_library_nothing_is_offered() -> None:
    onednn.loaded.cache_clear()
    assert not offered((8, 28, 28, 64), 64)


# ---------------------------------------------------------------------- in a session
def test_a_layer_of_one_tap_is_trained_so(handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel_choice.KERNELS_VARIABLE, "estimate")
    geometry = geometry_of((4, 28, 28, 64), 128, (1, 1), (1, 1))
    data, grad = arrays(geometry)
    filter = np.zeros(geometry.filter_shape, np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        x, w, g = (tf.placeholder(tf.float32, value.shape) for value in (data, filter, grad))
        (gradient,) = tf.gradients(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"), w, g)
        for _ in range(4):
            session.run(gradient, {x: data, w: filter, g: grad})
        background.wait(60)
        found = session.run(gradient, {x: data, w: filter, g: grad})
    chosen = {choice.op_type: choice.chosen.name for choice in compile_log.events[-1].kernels.values()}
    assert chosen == {"Conv2DBackpropFilter": NAME}
    assert close(found, summed(geometry, data, grad))
