"""3x3 convolutions in fewer multiplications, against the sums that define them."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.kernels import convolutions, winograd
from anabranch.ops.nn.sliding import Window
from anabranch.xla.variants import compile_log

CHANNELS, DEPTH = 40, 72


def _padded(data: np.ndarray[Any, Any], pads: Any) -> np.ndarray[Any, Any]:
    return np.pad(data.astype(np.float64), ((0, 0), *pads, (0, 0)))


def _convolution(data: Any, filter: Any, pads: Any) -> Any:
    wide = _padded(data, pads)
    height, width = wide.shape[1] - 2, wide.shape[2] - 2
    return sum(
        wide[:, i : i + height, j : j + width] @ filter[i, j].astype(np.float64)
        for i, j in itertools.product(range(3), repeat=2)
    )


def _gradients(data: Any, filter: Any, grad: Any, pads: Any) -> tuple[Any, Any]:
    wide = _padded(data, pads)
    to_data, to_filter = np.zeros_like(wide), np.zeros(filter.shape)
    height, width = grad.shape[1:3]
    for i, j in itertools.product(range(3), repeat=2):
        to_data[:, i : i + height, j : j + width] += grad @ filter[i, j].T
        to_filter[i, j] = np.einsum("nhwc,nhwd->cd", wide[:, i : i + height, j : j + width], grad)
    (top, _), (left, _) = pads
    return to_data[:, top : top + data.shape[1], left : left + data.shape[2]], to_filter


def _window(lengths: tuple[int, int], pads: Any, batch: int = 3) -> Window:
    outputs = tuple(n + sum(p) - 2 for n, p in zip(lengths, pads, strict=True))
    ones = (1, 1, 1, 1)
    return Window(
        (1, 3, 3, 1), ones, ones, ((0, 0), *pads, (0, 0)), (batch, *lengths, CHANNELS), (batch, *outputs, CHANNELS)
    )


@pytest.mark.parametrize("lengths", [(8, 8), (9, 6), (5, 15), (3, 4)])
@pytest.mark.parametrize("pads", [((1, 1), (1, 1)), ((0, 0), (0, 0)), ((2, 0), (1, 3))])
def test_all_three_directions(lengths: tuple[int, int], pads: Any) -> None:
    rng = np.random.default_rng(0)
    window = _window(lengths, pads)
    data = rng.normal(size=window.lengths).astype(np.float32)
    filter = rng.normal(size=(3, 3, CHANNELS, DEPTH)).astype(np.float32)
    grad = rng.normal(size=(*window.outputs[:3], DEPTH)).astype(np.float32)
    to_data, to_filter = _gradients(data, filter, grad, pads)

    def all_three(data: Any, filter: Any, grad: Any) -> tuple[Any, Any, Any]:
        return (
            winograd.forward(data, filter, window),
            winograd.to_input(filter, grad, window),
            winograd.to_filter(data, grad, window),
        )

    # one program, of which only the results matter: it is compiled quickly
    results = jax.jit(all_three, compiler_options={"xla_backend_optimization_level": 0})(data, filter, grad)
    for found, expected in zip(results, (_convolution(data, filter, pads), to_data, to_filter), strict=True):
        assert found.shape == expected.shape
        assert np.abs(np.asarray(found) - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("padding", ["SAME", "VALID", [[0, 0], [2, 1], [0, 3], [0, 0]]])
def test_the_operation_takes_it(padding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # with so few channels it pays where direct sums are not so quick
    monkeypatch.setattr(convolutions, "has_wide_vectors", lambda: False)
    rng = np.random.default_rng(1)
    data = rng.normal(size=(2, 10, 12, CHANNELS)).astype(np.float32)
    filter = rng.normal(size=(3, 3, CHANNELS, DEPTH)).astype(np.float32)
    pads = {"SAME": ((1, 1), (1, 1)), "VALID": ((0, 0), (0, 0))}.get(str(padding)) or padding[1:3]
    with tf.Graph().as_default(), tf.Session() as session:
        x, w = tf.placeholder(tf.float32, data.shape), tf.placeholder(tf.float32, filter.shape)
        y = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding=padding)
        found = session.run([y, *tf.gradients(tf.reduce_sum(y * y), [x, w])], {x: data, w: filter})
    expected = _convolution(data, filter, pads)
    for array, wanted in zip(found, (expected, *_gradients(data, filter, 2 * expected, pads)), strict=True):
        assert np.abs(array - wanted).max() <= 5e-5 * np.abs(wanted).max()
    used = [(choice.op_type, choice.chosen.name) for choice in compile_log.events[-1].kernels.values()]
    assert set(used) == {(name, "winograd") for name in ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")}


@pytest.mark.parametrize(
    ("change", "applies"),
    [
        ({}, True),
        ({"size": (1, 5, 5, 1)}, False),
        ({"strides": (1, 2, 2, 1)}, False),
        ({"dilations": (1, 2, 2, 1)}, False),
        ({"outputs": (3, 1, 1, CHANNELS)}, True),
    ],
)
def test_where_it_applies(change: dict[str, Any], applies: bool) -> None:
    fields = {name: getattr(_window((8, 8), ((1, 1), (1, 1))), name) for name in Window.__dataclass_fields__}
    assert winograd.applies(Window(**{**fields, **change})) is applies


def test_few_channels_and_nearly_empty_tiles_do_not_pay() -> None:
    full, nearly_empty = _window((8, 8), ((1, 1), (1, 1))), _window((3, 3), ((0, 0), (0, 0)))
    assert winograd.cost(full, CHANNELS, DEPTH) < 1 < winograd.cost(nearly_empty, CHANNELS, DEPTH)
    assert winograd.cost(full, 3, 4000) > 1
    costs = [winograd.cost(full, channels, channels) for channels in (8, 16, 32, 64, 128, 256)]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("batch", "side", "channels", "depth", "measured"),
    [
        (8, 56, 64, 64, 1.92),
        (8, 56, 128, 256, 0.74),
        (8, 56, 256, 256, 0.64),
        (8, 14, 256, 256, 0.73),
        (8, 28, 512, 512, 0.43),
        (8, 14, 512, 512, 0.58),
        (16, 12, 1024, 1024, 0.44),
    ],
)
def test_what_was_measured_with_wide_vectors(batch: int, side: int, channels: int, depth: int, measured: float) -> None:
    """Of the time of a direct sum at 143 G products/s; gradients to filters, two cores with AVX-512."""
    window = _window((side, side), ((1, 1), (1, 1)), batch)
    assert measured / 1.05 < winograd.wide_cost(window, channels, depth) < measured * 1.3
    assert winograd.wide_cost(window, 3, depth) > 1
