"""Every kernel of a convolution computes what the operation's own does; estimates choose what was measured to win."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import numpy as jnp

import anabranch as tf
from anabranch.core.dtypes import as_dtype
from anabranch.core.kernel_context import KernelContext
from anabranch.core.kernels import OWN_KERNEL, KernelCase, KernelInput, alternates, candidates
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.kernels import MODULES, convolutions, native_convolutions, native_slices, pool_filters, pool_winograd
from anabranch.kernels.convolutions import WITH_BIAS
from anabranch.ops import raw
from anabranch.ops.nn.conv import Geometry
from anabranch.xla import lowering
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.kernel_choice import KernelChooser
from anabranch.xla.variants import compile_log
from tests.quick_compilation import OPTIONS

FORWARD = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
TO_INPUT = ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
TO_FILTER = ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
DEPTHWISE = 2


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    announced = MODULES[convolutions.__name__]
    assert set(announced) == {*FORWARD, *TO_INPUT, *TO_FILTER, WITH_BIAS.op_type}
    registered = {(one.op_type, one.name) for name in announced for one in alternates(name)}
    wanted = {(name, "shifts") for name in announced if "Depthwise" in name}
    wanted |= {(name, "product") for name in announced if "Depthwise" not in name}
    wanted |= {(name, "columns") for name in TO_INPUT[:DEPTHWISE]}
    wanted |= {(name, "winograd") for name in (FORWARD[0], TO_INPUT[0], TO_FILTER[0], WITH_BIAS.op_type)}
    wanted |= {(name, kernel) for name in announced for kernel in ("onednn", "onednn blocked")}
    in_blocks = MODULES[pool_winograd.__name__]
    assert set(in_blocks) == {FORWARD[0], TO_INPUT[0], TO_FILTER[0], WITH_BIAS.op_type}
    wanted |= {(name, pool_winograd.NAME) for name in in_blocks}
    seen_alone = MODULES[native_slices.__name__]
    assert set(seen_alone) == {TO_INPUT[0], TO_FILTER[0]}
    wanted |= {(name, native_slices.NAME) for name in seen_alone}
    assert MODULES[pool_filters.__name__] == (TO_FILTER[0],)
    wanted.add((TO_FILTER[0], pool_filters.NAME))
    assert MODULES[native_convolutions.__name__] == announced
    assert registered == wanted


# ---------------------------------------------------------------------- agreement
#: how far results may lie from the own kernel's, as a share of the largest
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-12}


@st.composite
def convolutions_for(draw: Any, kernel: str) -> tuple[int, tuple[int, ...], tuple[int, ...], dict[str, Any], str]:
    """Which of `FORWARD`, the shapes of data and filter, attributes, dtype: mostly such that a kernel applies."""
    kind = {"shifts": DEPTHWISE, "winograd": 0}.get(kernel, draw(st.integers(0, 1)))
    rank = 3 if kind == 1 else 2
    ones = (1,) * rank
    lengths = draw(st.tuples(*[st.integers(1, 7)] * rank))
    size = draw(st.tuples(*[st.integers(1, 4)] * rank))
    strides, dilations = (draw(st.one_of(st.just(ones), st.tuples(*[st.integers(1, 3)] * rank))) for _ in range(2))
    padding = draw(st.sampled_from(["SAME", "VALID"] if rank == 3 else ["SAME", "VALID", "EXPLICIT"]))
    dtype = draw(st.sampled_from(sorted(TOLERANCES)))
    if kernel == "product":
        size = draw(st.sampled_from([ones, lengths]))
    elif kernel == "winograd":
        size, strides, dilations, dtype = (3, 3), ones, ones, "float32"
    attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
    if padding == "EXPLICIT":
        attrs["explicit_paddings"] = [0, 0, *draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)), 0, 0]
    channels, depth = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    return kind, (draw(st.integers(1, 3)), *lengths, channels), (*size, channels, depth), attrs, dtype


def operations(
    kind: int, shape: tuple[int, ...], filter_shape: tuple[int, ...], attrs: dict[str, Any], dtype: str
) -> list[tuple[Any, list[np.ndarray[Any, Any]]]]:
    """The convolution and its two gradients, each with values of its inputs; none where the output is empty."""
    rng = np.random.default_rng(len(str(attrs)) + sum(shape))

    def values(of: Any) -> np.ndarray[Any, Any]:
        return rng.normal(size=tuple(of)).astype(as_dtype(dtype).as_numpy_dtype)

    try:
        x, w = values(shape), values(filter_shape)
        forward = getattr(raw, FORWARD[kind])(x, w, **attrs)
    except ValueError:  # a VALID window larger than the data
        return []
    if forward.shape.num_elements() == 0:
        return []
    grad = values(forward.shape.as_list())
    sizes, filter_sizes = np.array(shape, np.int32), np.array(filter_shape, np.int32)
    back = getattr(raw, TO_INPUT[kind])(sizes, w, grad, **attrs)
    back_to_filter = getattr(raw, TO_FILTER[kind])(x, filter_sizes, grad, **attrs)
    return [(forward.op, [x, w]), (back.op, [sizes, w, grad]), (back_to_filter.op, [x, filter_sizes, grad])]


def case_of(op: Any, values: list[np.ndarray[Any, Any]]) -> KernelCase:
    static = op.op_def.static_positions(op)
    inputs = tuple(KernelInput(v.shape, v.dtype, v if i in static else None) for i, v in enumerate(values))
    return KernelCase(op.type, op.attrs, inputs, ("CPU",))


def results_of_all(op: Any, values: list[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """What each kernel that applies gives: all in one program, which takes least time to compile."""
    static = op.op_def.static_positions(op)

    def program(*arrays: Any) -> dict[str, Any]:
        given = [value if i in static else array for i, (value, array) in enumerate(zip(values, arrays, strict=True))]
        rules = {
            one.name: op.op_def.compiled_rule if one.kernel is None else one.kernel.rule
            for one in candidates(case_of(op, values))
        }
        return {name: BoundKernel(op, rule, jnp, KernelContext(op))(given) for name, rule in rules.items()}

    found = in_wide_types(jax.jit(program, compiler_options=OPTIONS), *values)
    found |= {at_once(name): result for name, result in results_at_once(op, values).items()}
    return {name: np.asarray(result) for name, result in found.items()}


def at_once(kernel: str) -> str:
    """What `results_of_all` calls the results of a kernel that was given NumPy's arrays."""
    return f"{kernel} at once"


def results_at_once(op: Any, values: list[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """What kernels give that take NumPy's arrays; always among them the operation's own."""
    rules = {
        one.name: op.op_def.compiled_rule if one.kernel is None else one.kernel.rule
        for one in candidates(case_of(op, values))
        if one.kernel is None or one.kernel.takes_numpy
    }
    found = {name: BoundKernel(op, rule, jnp, KernelContext(op))(values, xp=np) for name, rule in rules.items()}
    assert all(isinstance(result, np.ndarray) for result in found.values())
    return found


def check_agreement(op: Any, values: list[np.ndarray[Any, Any]], tolerance: float) -> set[tuple[str, str]]:
    """Compares all kernels with the operation's own; returns those compared."""
    results = results_of_all(op, values)
    wanted = results[OWN_KERNEL]
    wide = wanted.astype(np.float64)
    # sums over the batch and all positions are rounded in another order
    terms = math.sqrt(max(value.size for value in values))
    for name, found in results.items():
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
        error = np.abs(found.astype(np.float64) - wide).max()
        assert error <= tolerance * max(1.0, np.abs(wide).max(), terms / 8), (op.type, name)
    return {(op.type, name) for name in results}


@pytest.mark.parametrize("kernel", ["product", "columns", "winograd", "shifts"])
def test_all_kernels_agree(kernel: str) -> None:
    """And the kernel in question was compared for all its operations. (The examples are the same in every run.)"""
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=5 if kernel == "winograd" else 12)  # which takes long to compile
    @given(convolutions_for(kernel))
    def compare(drawn: Any) -> None:
        with tf.Graph().as_default():
            for op, values in operations(*drawn):
                compared.update(check_agreement(op, values, TOLERANCES[drawn[-1]]))

    compare()
    every = {(name, one.name) for name in (*FORWARD, *TO_INPUT, *TO_FILTER) for one in alternates(name)}
    assert {one for one in every if one[1] == kernel} <= compared


def test_what_does_not_fit_is_left_to_the_own_kernel() -> None:
    """It says what is wrong."""
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    x, w, grad = (np.zeros(shape, np.float32) for shape in ((1, 4, 4, 2), (1, 1, 2, 3), (1, 3, 4, 3)))
    op = raw.Conv2DBackpropFilter(x, [1, 1, 2, 3], grad, **attrs).op
    assert [one.name for one in candidates(case_of(op, [x, np.array(w.shape), grad]))] == [OWN_KERNEL]
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="out_backprop has shape"):
        session.run(op.outputs[0])


@pytest.mark.parametrize(
    ("shape", "filter_shape", "attrs"),
    [
        ((1, 2, 4, 4), (1, 1, 2, 3), {"data_format": "NCHW"}),
        ((1, 4, 4, 4), (1, 1, 2, 4), {}),  # two groups
        ((0, 4, 4, 2), (1, 1, 2, 3), {}),
    ],
)
def test_what_is_not_covered_is_left_to_the_own_kernel(
    shape: tuple[int, ...], filter_shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    x, w = np.zeros(shape, np.float32), np.zeros(filter_shape, np.float32)
    op = raw.Conv2D(x, w, strides=[1, 1, 1, 1], padding="SAME", **attrs).op
    assert [one.name for one in candidates(case_of(op, [x, w]))] == [OWN_KERNEL]


# ---------------------------------------------------------------------- derivatives of steps
class Preference:
    """A memory in which one kernel was always the quickest, where it applies."""

    def __init__(self, name: str) -> None:
        self.costs = dict.fromkeys((OWN_KERNEL, "product", "columns", "winograd", "shifts"), 2.0) | {name: 1.0}

    def load(self, key: str) -> dict[str, float]:
        return self.costs


CASES = {
    "product": ((2, 3, 4, 3), (1, 1, 3, 2), "SAME"),
    "columns": ((2, 5, 6, 3), (3, 2, 3, 2), "VALID"),
    "winograd": ((2, 5, 6, 3), (3, 3, 3, 2), "SAME"),
    "shifts": ((2, 5, 6, 3), (3, 2, 3, 2), "SAME"),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_any_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, filter_shape, padding = CASES[name]
    rng = np.random.default_rng(3)
    x = tf.constant(rng.normal(size=shape), tf.float32)
    w = tf.placeholder(tf.float32, filter_shape)
    convolve = tf.nn.depthwise_conv2d if name == "shifts" else tf.nn.conv2d
    y = convolve(x, w, strides=[1, 1, 1, 1], padding=padding)
    first = tf.gradients(tf.reduce_sum(tf.tanh(y)), [x, w])
    second = tf.gradients(tf.reduce_sum([tf.reduce_sum(g * g) for g in first]), [x, w])
    fed = {w: rng.normal(size=filter_shape)}

    def results(preferred: str) -> tuple[list[Any], set[str]]:
        monkeypatch.setattr(lowering, "chooser", KernelChooser(partial(Preference, preferred), lambda: "auto"))  # type: ignore[arg-type]
        with tf.Session() as session:
            found = session.run([y, *first, *second], fed)
        return found, {choice.chosen.name for choice in compile_log.events[-1].kernels.values()}

    wanted, used = results(OWN_KERNEL)
    assert used == {OWN_KERNEL}
    found, used = results(name)
    assert name in used
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


# ---------------------------------------------------------------------- estimates
def by_the_thresholds_of_0011(direction: int, geometry: Geometry, float32: bool) -> str:
    """What was chosen before there were estimates (docs/decisions/0011)."""
    window, (channels, depth) = geometry.window, geometry.filter_shape[-2:]
    places, positions = math.prod(window.lengths[1:-1]), math.prod(window.outputs[1:-1])
    covers = window.size[1:-1] == window.lengths[1:-1] and not any(map(any, window.pads))
    filled = positions / math.prod(-(-n // 4) * 4 for n in window.outputs[1:-1])
    plain = max(window.strides) == max(window.dilations) == 1
    unrolled = window.taps <= 36
    if window.taps == 1 or covers:
        return "product"
    if direction == 1 and unrolled and positions < window.taps:
        return "columns"
    suits_winograd = float32 and plain and window.size == (1, 3, 3, 1) and min(channels, depth) >= 32
    if suits_winograd and channels * depth * filled >= 2000:
        return "winograd"
    if direction == 1 and unrolled and max(window.strides) == 1:
        spreads = channels == 1 or places > positions
        if channels >= 8:
            spreads = places * depth > positions * (depth + 48)
        return "columns" if spreads else OWN_KERNEL
    return OWN_KERNEL


def grid() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, str]]:
    """Shapes of data and filter, stride, padding."""
    for length, size, channels, depth in itertools.product(
        (3, 5, 8, 14, 56), (1, 2, 3, 5, 7), (1, 3, 7, 16, 32, 64, 256), (1, 10, 31, 32, 64, 512)
    ):
        for stride, padding in ((1, "SAME"), (1, "VALID"), (2, "SAME"), (2, "VALID")):
            if padding == "SAME" or size <= length:
                yield (8, length, length + 1, channels), (size, size, channels, depth), stride, padding


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_estimates_choose_what_was_measured_to_win(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "has_wide_vectors", lambda: False)  # that processor had none
    differing = []
    for shape, filter_shape, stride, padding in grid():
        attrs = {
            "strides": [1, stride, stride, 1], "dilations": [1, 1, 1, 1], "padding": padding.encode(),
            "data_format": b"NHWC", "T": as_dtype(dtype),
        }  # fmt: skip
        geometry = Geometry(attrs, shape, filter_shape, depthwise=False)
        kind = np.dtype(dtype)
        data, filter, grad = (KernelInput(s, kind) for s in (shape, filter_shape, geometry.out_shape))
        sizes = [KernelInput((4,), np.dtype(np.int32), np.array(s)) for s in (shape, filter_shape)]
        for direction, inputs in enumerate(((data, filter), (sizes[0], filter, grad), (data, sizes[1], grad))):
            name = (FORWARD, TO_INPUT, TO_FILTER)[direction][0]
            chosen = candidates(KernelCase(name, attrs, inputs, ("CPU",)))[0].name
            wanted = by_the_thresholds_of_0011(direction, geometry, dtype == "float32")
            if chosen != wanted:
                differing.append((name, shape, filter_shape, stride, padding, chosen, wanted))
    assert not differing[:5], f"{len(differing)} differ"


@pytest.mark.parametrize("name", ["Conv2D", "Conv3D", "DepthwiseConv2dNative"])
def test_channels_that_make_no_groups_are_refused_when_built_and_no_others(name: str) -> None:
    """What the shapes tell is refused before the operation runs, as TensorFlow does it."""
    op = getattr(raw, name)
    rank = 5 if name == "Conv3D" else 4
    attrs = {"strides": [1] * rank, "padding": "SAME"}
    refused = 0
    for channels, depth, out in itertools.product((0, 1, 2, 3, 4, 6), (1, 2, 3, 6), (0, 1, 3, 4, 6)):
        data, filter = (
            np.ones([*(1,) * (rank - len(dims)), *dims], np.float32) for dims in ((channels,), (depth, out))
        )
        runs = True
        with tf.Graph().as_default(), tf.Session() as session:
            fed = [tf.placeholder(tf.float32) for _ in range(2)]
            try:
                session.run(op(*fed, **attrs), dict(zip(fed, (data, filter), strict=True)))
            except tf.errors.InvalidArgumentError:
                runs = False
            known = [tf.placeholder(tf.float32, array.shape) for array in (data, filter)]
            if runs:
                op(*known, **attrs)
            else:
                refused += 1
                with pytest.raises(ValueError, match="channels"):
                    op(*known, **attrs)
    assert refused
