"""Convolutions with 3x3, 5x5, 1x7 and 7x1 filters in blocks are NumPy's in float64, and offered only where they can be.

What needs the extra `native`, a C compiler and vectors of 512 bits is skipped without them.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core import dtypes
from anabranch.core.kernels import alternates, candidates
from anabranch.kernels import MODULES, onednn, pool_handler, pool_winograd
from anabranch.kernels.pool_winograd import FORWARD, NAME, TO_FILTER, TO_INPUT, Cut
from anabranch.ops import raw
from anabranch.ops.nn.conv import Geometry
from anabranch.xla import kernel_choice
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.test_convolutions import case_of

#: of the largest number of a result, for sums over up to 300 numbers
TOLERANCE = 2e-5


@pytest.fixture
def handler(compiled: None) -> None:
    """The handler, compiled and loaded, on a processor that can."""
    if not pool_winograd.can_multiply():
        pytest.skip("this processor has no vectors of 512 bits")


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    for op_type in MODULES[pool_winograd.__name__]:
        assert NAME in [one.name for one in alternates(op_type)]


# ---------------------------------------------------------------------- agreement
def geometry_of(
    data: tuple[int, ...],
    depth: int,
    pads: tuple[tuple[int, int], tuple[int, int]],
    taps: tuple[int, int] = (3, 3),
) -> Geometry:
    explicit = [0, 0, *pads[0], *pads[1], 0, 0]
    attrs = {
        "strides": [1, 1, 1, 1],
        "dilations": [1, 1, 1, 1],
        "padding": b"EXPLICIT",
        "explicit_paddings": explicit,
        "data_format": b"NHWC",
    }
    return Geometry(attrs, data, (*taps, data[3], depth), False)


def arrays(geometry: Geometry, seed: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    """Data, a filter, a gradient and a bias."""
    rng = np.random.default_rng(seed)
    shapes = geometry.shape, geometry.filter_shape, geometry.out_shape, geometry.filter_shape[3:]
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def seen(geometry: Geometry, padded: np.ndarray[Any, Any]) -> list[tuple[int, int, np.ndarray[Any, Any]]]:
    """What each tap sees of padded data (a view)."""
    _, rows, columns, _ = geometry.out_shape
    _, down, across, _ = geometry.window.size
    return [(i, j, padded[:, i : i + rows, j : j + columns]) for i in range(down) for j in range(across)]


def convolved(geometry: Geometry, data: np.ndarray[Any, Any], filter: np.ndarray[Any, Any]) -> Any:
    padded, taps = np.pad(data.astype(np.float64), geometry.window.pads), filter.astype(np.float64)
    return sum(view @ taps[i, j] for i, j, view in seen(geometry, padded))


def gradient_to_data(geometry: Geometry, grad: np.ndarray[Any, Any], filter: np.ndarray[Any, Any]) -> Any:
    wide, taps, pads = grad.astype(np.float64), filter.astype(np.float64), geometry.window.pads
    padded = np.zeros([n + low + high for n, (low, high) in zip(geometry.shape, pads, strict=True)])
    for i, j, view in seen(geometry, padded):
        view += wide @ taps[i, j].T
    return padded[tuple(slice(low, low + n) for n, (low, _) in zip(geometry.shape, pads, strict=True))]


def gradient_to_filter(geometry: Geometry, data: np.ndarray[Any, Any], grad: np.ndarray[Any, Any]) -> Any:
    padded, wide = np.pad(data.astype(np.float64), geometry.window.pads), grad.astype(np.float64)
    views = seen(geometry, padded)
    return np.reshape([np.einsum("bhwc,bhwk->ck", view, wide) for _, _, view in views], geometry.filter_shape)


def called(geometry: Geometry, at: int, one: Any, filter: Any, bias: Any = None) -> Any:
    """The handler's result, however small."""
    given = [one, filter] if bias is None else [one, filter, bias]
    program = jax.jit(
        lambda one, filter, *bias: pool_winograd.call("layer/conv", one, filter, *(bias or [None]), geometry, at)
    )
    return np.asarray(program(*given))


def close(found: Any, expected: Any) -> bool:
    return found.shape == expected.shape and bool(
        np.abs(found - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max())
    )


channels = st.one_of(st.sampled_from([1, 15, 16, 17, 31, 32, 33, 48, 64, 100]), st.integers(1, 130))


@st.composite
def any_convolutions(draw: Any) -> Geometry:
    taps = draw(st.sampled_from([(3, 3), (5, 5), (1, 7), (7, 1)]))
    pads = [draw(st.tuples(st.integers(0, count - 1), st.integers(0, count))) for count in taps]
    lengths = [draw(st.integers(max(1, count - sum(pad)), 14)) for count, pad in zip(taps, pads, strict=True)]
    return geometry_of((draw(st.integers(1, 5)), *lengths, draw(channels)), draw(channels), (pads[0], pads[1]), taps)


def test_results_are_those_of_float64(handler: None) -> None:
    """Lengths that no tile ends with, channels that no vector ends with, any padding; forward, with bias, and back."""

    @settings(max_examples=80)
    @given(any_convolutions())
    def compare(geometry: Geometry) -> None:
        data, filter, grad, bias = arrays(geometry)
        expected = convolved(geometry, data, filter)
        assert close(called(geometry, FORWARD, data, filter), expected)
        assert close(called(geometry, FORWARD, data, filter, bias), np.maximum(expected + bias, 0))
        assert close(called(geometry, TO_INPUT, grad, filter), gradient_to_data(geometry, grad, filter))
        assert close(called(geometry, TO_FILTER, data, grad), gradient_to_filter(geometry, data, grad))

    compare()


def rounded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(dtypes.bfloat16.as_numpy_dtype)


def close_halves(found: Any, expected: Any) -> bool:
    """Whether numbers are rounded but once, from sums in float32."""
    assert found.dtype == dtypes.bfloat16.as_numpy_dtype
    error = np.abs(found.astype(np.float64) - expected)
    return bool((error <= np.abs(expected) / 256 + TOLERANCE * max(1.0, np.abs(expected).max())).all())


def test_bfloat16_is_computed_in_float32(handler: None) -> None:
    @settings(max_examples=40)
    @given(any_convolutions())
    def compare(geometry: Geometry) -> None:
        data, filter, grad, bias = map(rounded, arrays(geometry))
        expected = convolved(geometry, data, filter)
        assert close_halves(called(geometry, FORWARD, data, filter), expected)
        biased = called(geometry, FORWARD, data, filter, bias)
        assert close_halves(biased, np.maximum(expected + bias.astype(np.float64), 0))
        assert close_halves(called(geometry, TO_INPUT, grad, filter), gradient_to_data(geometry, grad, filter))
        assert close_halves(called(geometry, TO_FILTER, data, grad), gradient_to_filter(geometry, data, grad))

    compare()


def test_bfloat16_is_rounded_as_everywhere(handler: None) -> None:
    """To the nearest, of two to the even one; also what is no number, infinite, or smaller than numbers usually are."""
    geometry = geometry_of((1, 4, 4, 1), 1, ((1, 1), (1, 1)))
    bits = np.array([0x3F80, 0x3F81, 0xBF80, 0x0001, 0x7F80, 0xFF80, 0x7FC0, 0x0000], np.uint16)
    for pattern in bits:
        data = np.full((1, 4, 4, 1), pattern, np.uint16).view(dtypes.bfloat16.as_numpy_dtype)
        filter = np.zeros((3, 3, 1, 1), np.float32)
        filter[1, 1] = 1.00390625  # halfway between two numbers
        found = called(geometry, FORWARD, data, rounded(filter))
        with np.errstate(invalid="ignore"):
            expected = convolved(geometry, data, rounded(filter))
        if np.isfinite(expected).all():
            assert close_halves(found, expected)
        else:
            assert not np.isfinite(found.astype(np.float32)).any()


@pytest.mark.parametrize(
    ("data", "depth", "taps"),
    [
        ((8, 8, 8, 448), 384, (3, 3)),
        ((1, 14, 14, 512), 512, (3, 3)),
        ((2, 56, 56, 64), 64, (3, 3)),
        ((4, 27, 27, 64), 192, (5, 5)),
        ((8, 17, 17, 192), 160, (1, 7)),
        ((8, 17, 17, 128), 192, (7, 1)),
        ((1, 8, 9, 768), 96, (1, 7)),
    ],
)
def test_layers_of_networks_are_computed_whole(
    handler: None, data: tuple[int, ...], depth: int, taps: tuple[int, int]
) -> None:
    """More channels, and more tiles, than one round of parts takes. What memory held before is no number."""
    down, across = (count // 2 for count in taps)
    geometry = geometry_of(data, depth, ((down, down), (across, across)), taps)
    values, filter, grad, _ = arrays(geometry)
    for at, operands, expected in (
        (FORWARD, (values, filter), convolved(geometry, values, filter)),
        (TO_INPUT, (grad, filter), gradient_to_data(geometry, grad, filter)),
        (TO_FILTER, (values, grad), gradient_to_filter(geometry, values, grad)),
    ):
        before = jax.device_put(np.full(Cut.of(geometry, at, False).scratch_bytes // 4, np.nan, np.float32))
        jax.block_until_ready(before)
        del before
        assert close(called(geometry, at, *operands), expected), at


SMALL = geometry_of((3, 11, 9, 40), 24, ((1, 1), (1, 1)))


def test_what_is_no_number_stays_in_its_tile(handler: None) -> None:
    """What memory held before does not matter, and a ReLU passes on what is no number."""
    data, filter, _, bias = arrays(SMALL)
    data[1, 0, 0, 3] = np.nan
    for _ in range(3):
        found = called(SMALL, FORWARD, data, filter, bias)
        assert np.isnan(found[1, :2, :2]).all()
        outside = np.ones(found.shape[:3], bool)
        outside[1, :4, :4] = False
        assert np.isfinite(found[outside]).all()


@pytest.mark.parametrize("along", [1, 2])
def test_what_is_no_number_stays_in_its_line(handler: None, along: int) -> None:
    """Seven taps reach three places each way, and a tile has four outputs."""
    taps, pads = ((7, 1), ((3, 3), (0, 0))) if along == 1 else ((1, 7), ((0, 0), (3, 3)))
    data, filter, _, bias = arrays(geometry := geometry_of((2, 21, 22, 40), 24, pads, taps))
    data[1, 5, 5, 3] = np.nan
    for _ in range(3):
        found = np.moveaxis(called(geometry, FORWARD, data, filter, bias), along, 1)
        assert np.isnan(found[1, 2:9, 5]).all()
        outside = np.ones(found.shape[:3], bool)
        outside[1, :12, 5] = False
        assert np.isfinite(found[outside]).all()


def test_threads_may_call_at_the_same_time(handler: None) -> None:
    """And a result is the same, bit for bit, whichever threads compute its parts."""
    data, filter, *_ = arrays(SMALL)
    expected = called(SMALL, FORWARD, data, filter)
    agreed: list[bool] = []

    def work() -> None:
        agreed.extend(np.array_equal(called(SMALL, FORWARD, data, filter), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [True] * 80


@pytest.mark.parametrize(("taps", "around"), [((3, 3), (1, 1)), ((1, 7), (0, 3))])
def test_a_result_does_not_depend_on_the_number_of_cores(
    handler: None, monkeypatch: pytest.MonkeyPatch, taps: tuple[int, int], around: tuple[int, int]
) -> None:
    geometry = geometry_of((4, 30, 30, 40), 24, ((around[0],) * 2, (around[1],) * 2), taps)
    data, filter, grad, _ = arrays(geometry)
    given = {FORWARD: (data, filter), TO_INPUT: (grad, filter), TO_FILTER: (data, grad)}
    expected = {at: called(geometry, at, *operands) for at, operands in given.items()}
    for cores in (1, 3, 100):
        monkeypatch.setattr(pool_winograd, "core_count", lambda cores=cores: cores)
        for at, operands in given.items():
            np.testing.assert_array_equal(called(geometry, at, *operands), expected[at])


def test_memory_to_work_in_is_bounded() -> None:
    """It is what the filter takes at the points, and for each thread what some tiles take."""
    for (data, depth), (taps, points) in itertools.product(
        (((256, 224, 224, 64), 64), ((1, 7, 7, 4096), 4096), ((1, 3000, 3000, 16), 16)), (((3, 3), 36), ((1, 7), 10))
    ):
        geometry = geometry_of(data, depth, ((0, 0), (1, 1)), taps)
        for at in (FORWARD, TO_INPUT):
            cut = Cut.of(geometry, at, False)
            tiles, threads = cut.numbers[-2:]
            of_a_thread = points * 4 * (tiles * (data[3] + 32) + 32)
            assert tiles == 12 or of_a_thread < 5 << 19
            assert cut.scratch_bytes <= points * 4 * data[3] * -(-depth // 32) * 32 + threads * of_a_thread + 64


def test_memory_for_a_gradient_to_a_filter_is_bounded() -> None:
    """It is the sums at points, and what some tiles of both sides take."""
    for data, depth in (((256, 224, 224, 64), 64), ((1, 7, 7, 4096), 4096), ((1, 3000, 3000, 16), 17)):
        cut = Cut.of(geometry_of(data, depth, ((1, 1), (1, 1))), TO_FILTER, False)
        wide = -(-depth // 32) * 32
        assert cut.numbers[-2] <= 132
        assert cut.scratch_bytes <= 36 * 4 * (data[3] * wide + 132 * (data[3] + wide) + 48) + 64


# ---------------------------------------------------------------------- bad calls
GOOD = (1, 4, 4, 16, 4, 4, 32, 1, 1, 0, 0, 3, 0, 12, 2)


def changed(**places: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = np.array(GOOD, np.int64)
    for place, value in places.items():
        numbers[int(place[2:])] = value
    return numbers


TARGETS = (pool_handler.WINOGRAD_TARGET, pool_handler.WINOGRAD_FILTER_TARGET)


def bad_call(target: str, scratch: int, **attributes: Any) -> Any:
    data, filter, output = (np.ones(shape, np.float32) for shape in ((1, 4, 4, 16), (3, 3, 16, 32), (1, 4, 4, 32)))
    other, result = (filter, output) if target == pool_handler.WINOGRAD_TARGET else (output, filter)
    described = [jax.ShapeDtypeStruct(result.shape, np.float32), jax.ShapeDtypeStruct((scratch,), np.uint8)]  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(target, described)
    return jax.block_until_ready(jax.jit(lambda x, y: call(x, y, node="layer/conv", **attributes))(data, other))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("attributes", "scratch", "message"),
    [
        ({"numbers": np.arange(3, dtype=np.int64)}, 1 << 20, "fifteen numbers"),
        ({"numbers": changed(at0=-1)}, 1 << 20, "no length"),
        ({"numbers": changed(at3=1 << 40)}, 1 << 20, "no length"),
        ({"numbers": changed(at7=3)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at9=2)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at1=1 << 14, at2=1 << 14)}, 1 << 20, "too large"),
        ({"numbers": changed(at11=4)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at11=5)}, 1 << 20, "others than"),
        ({"numbers": changed(at11=7)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at12=1)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at11=7, at12=3)}, 1 << 20, "another convolution"),
        ({"numbers": changed(at11=7, at12=1)}, 1 << 20, "another convolution"),  # pads the other axis
        ({"numbers": changed(at11=7, at12=1, at8=0)}, 1 << 20, "others than"),
        ({"numbers": changed(at13=13)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at13=1 << 20)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at14=65)}, 1 << 20, "other blocks"),
        ({"numbers": changed(at10=1)}, 1 << 20, "perhaps a bias|another convolution"),
        ({"numbers": changed(at0=2)}, 1 << 20, "others than"),
        ({"numbers": changed(at6=16)}, 1 << 20, "others than"),
        ({"numbers": changed()}, 64, "others than"),
        ({"numbers": changed(), "more": 1}, 1 << 20, "two attributes"),
    ],
)
def test_a_bad_call_is_an_error(
    handler: None, target: str, attributes: dict[str, Any], scratch: int, message: str
) -> None:
    """Never a crash; the error names the operation, if the call does."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        bad_call(target, scratch, **attributes)


def test_the_good_call_is_none(handler: None) -> None:
    """Each of the calls above is wrong for one reason."""
    found, _ = bad_call(TARGETS[0], 1 << 20, numbers=changed())
    assert np.allclose(np.asarray(found)[0, 1:3, 1:3], 9 * 16)
    found, _ = bad_call(TARGETS[1], 1 << 20, numbers=changed())
    assert np.allclose(np.asarray(found)[1, 1], 16)


# ---------------------------------------------------------------------- where they are offered
def offered(data: tuple[int, ...], depth: int, dtype: Any = tf.float32, size: Any = 3, **attrs: Any) -> bool:
    with tf.Graph().as_default():
        taps = size if isinstance(size, tuple) else (size, size)
        shapes = data, (*taps, data[3] if attrs.get("data_format", "NHWC") == "NHWC" else data[1], depth)
        values = [np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype) for shape in shapes]
        given = {"strides": [1, 1, 1, 1], "padding": "SAME"} | attrs
        op = raw.Conv2D(input=tf.placeholder(dtype, data), filter=tf.placeholder(dtype, shapes[1]), **given).op
        return NAME in {candidate.name for candidate in candidates(case_of(op, values))}


def test_what_it_does_not_pay_for_is_not_offered(handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what has another type, layout, filter or stride; nor where the processor cannot."""
    data = (8, 28, 28, 32)
    assert offered(data, 64)
    assert not offered(data, 8)
    assert not offered((1, 8, 8, 32), 64)
    assert offered(data, 64, size=5)
    assert offered(data, 64, size=(1, 7))
    assert offered(data, 64, size=(7, 1))
    for size in (1, 2, 4, 6, 7, (1, 3), (5, 1), (3, 5), (7, 3)):
        assert not offered(data, 64, size=size)
    assert not offered(data, 64, strides=[1, 2, 2, 1])
    assert not offered(data, 64, dilations=[1, 2, 2, 1])
    assert not offered((8, 32, 28, 28), 64, data_format="NCHW")
    for dtype in (tf.float16, tf.float64):
        assert not offered(data, 64, dtype)
    for tiles in (False, True):
        # which multiply bfloat16 faster than anything is saved here
        monkeypatch.setattr(pool_winograd, "_has_tiles", lambda tiles=tiles: tiles)
        assert offered(data, 64, tf.bfloat16) is not tiles
        assert not offered(data, 64, tf.bfloat16, size=(1, 7))
        assert offered(data, 64)
    monkeypatch.setattr(pool_winograd, "can_multiply", lambda: False)
    assert not offered(data, 64)


def test_without_the_library_nothing_is_offered() -> None:
    onednn.loaded.cache_clear()
    assert not offered((8, 28, 28, 64), 64)


# ---------------------------------------------------------------------- in a session
def test_layers_and_their_gradients_run_so(handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bias and ReLU, in front of which a convolution is one operation with them."""
    monkeypatch.setenv(kernel_choice.KERNELS_VARIABLE, "estimate")
    geometry = geometry_of((4, 28, 28, 64), 128, ((1, 1), (1, 1)))
    data, filter, grad, bias = arrays(geometry)
    with tf.Graph().as_default(), tf.Session() as session:
        x, w, b, g = (tf.placeholder(tf.float32, value.shape) for value in (data, filter, bias, grad))
        layer = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"), b))
        fetches = [layer, *tf.gradients(layer, [x, w], g)]
        for _ in range(4):
            session.run(fetches, {x: data, w: filter, b: bias, g: grad})
        background.wait(60)
        found = session.run(fetches, {x: data, w: filter, b: bias, g: grad})
    chosen = {choice.op_type: choice.chosen.name for choice in compile_log.events[-1].kernels.values()}
    assert chosen == dict.fromkeys(("_Conv2DBiasRelu", "Conv2DBackpropInput", "Conv2DBackpropFilter"), NAME)
    expected = np.maximum(convolved(geometry, data, filter) + bias, 0)
    assert close(found[0], expected)
    # what the ReLU passes on, as it was found: a number next to zero may be on either side
    passed = np.where(found[0] > 0, grad, 0)
    assert close(found[1], gradient_to_data(geometry, passed, filter))
    assert close(found[2], gradient_to_filter(geometry, data, passed))
