"""Convolutions in NumPy give what XLA's give: all formats, groups, windows, and numbers of 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import anabranch as tf
from anabranch.core.kernels import OWN_KERNEL
from anabranch.ops import raw
from anabranch.ops.nn import host_convolutions
from tests.device.kernels.test_convolutions import (
    DEPTHWISE,
    TOLERANCES,
    at_once,
    check_agreement,
    operations,
    results_at_once,
)
from tests.device.kernels.test_native_convolutions import any_convolutions


@pytest.mark.parametrize("dtype", sorted(TOLERANCES))
@pytest.mark.parametrize("kind", range(3))
def test_results_are_those_of_xla(kind: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the examples of a batch are computed one by one. (The examples are the same in every run.)"""
    monkeypatch.setattr(host_convolutions, "_MOST_SEEN", 1 << 9)
    compared: set[str] = set()

    @settings(max_examples=3)
    @given(any_convolutions(kind))
    def compare(drawn: Any) -> None:
        with tf.Graph().as_default():
            for op, values in operations(*drawn, dtype):
                agreed = check_agreement(op, values, TOLERANCES[dtype])
                compared.update(op_type for op_type, name in agreed if name == at_once(OWN_KERNEL))

    compare()
    assert len(compared) == 3


@pytest.mark.parametrize("kind", [0, DEPTHWISE])
@pytest.mark.parametrize(("shape", "size"), [((0, 4, 5, 3), (2, 2, 3, 3)), ((2, 3, 3, 3), (1, 1, 3, 0))])
def test_of_nothing_there_are_zeros(kind: int, shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    x, w = np.ones(shape, np.float32), np.ones(size, np.float32)
    make = raw.Conv2D if kind == 0 else raw.DepthwiseConv2dNative
    forward = make(x, w, **attrs)
    grad = np.ones(forward.shape.as_list(), np.float32)
    back = raw.Conv2DBackpropFilter if kind == 0 else raw.DepthwiseConv2dNativeBackpropFilter
    to_filter = back(x, np.array(size, np.int32), grad, **attrs)
    for op, values in ((forward.op, [x, w]), (to_filter.op, [x, np.array(size, np.int32), grad])):
        found = results_at_once(op, values)[OWN_KERNEL]
        np.testing.assert_array_equal(found, np.zeros(op.outputs[0].shape.as_list()))


@pytest.mark.parametrize(
    ("of", "flops"),
    [
        (lambda x, w, g: raw.Conv2D(x, w, strides=[1, 2, 2, 1], padding="SAME"), 2 * 2 * 3 * 4 * 8 * 9 * 5),
        (
            lambda x, w, g: raw.Conv2DBackpropInput([2, 6, 8, 5], w, g, strides=[1, 2, 2, 1], padding="SAME"),
            2 * 2 * 3 * 4 * 8 * 9 * 5,
        ),
        (
            lambda x, w, g: raw.Conv2DBackpropFilter(x, [3, 3, 5, 8], g, strides=[1, 2, 2, 1], padding="SAME"),
            2 * 2 * 3 * 4 * 8 * 9 * 5,
        ),
        (
            lambda x, w, g: raw.DepthwiseConv2dNative(x, w, strides=[1, 1, 1, 1], padding="SAME"),
            2 * 2 * 6 * 8 * 40 * 9,
        ),
    ],
)
def test_operations_are_counted_as_multiplications_and_additions(of: Any, flops: int) -> None:
    x, w, g = (tf.zeros(shape) for shape in ([2, 6, 8, 5], [3, 3, 5, 8], [2, 3, 4, 8]))
    op = of(x, w, g).op
    shapes = [tuple(tensor.shape.as_list()) for tensor in (*op.inputs, *op.outputs)]
    assert op.op_def.flops_rule(shapes[: len(op.inputs)], shapes[len(op.inputs) :], op.attrs) == flops
