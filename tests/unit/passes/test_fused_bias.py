"""Which convolutions become one operation with bias and ReLU, and which must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw
from anabranch.passes.fold import fold
from anabranch.passes.fused_bias import fuse_bias
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify


def same(tensor: Any) -> Any:
    return tensor


class Layer:
    """A convolution, its bias, its ReLU and their gradients.

    Args:
        first, second: what happens between them.
    """

    def __init__(
        self,
        dtype: Any = tf.float32,
        first: Callable[[Any], Any] = same,
        second: Callable[[Any], Any] = same,
        formats: tuple[str, str] = ("NHWC", "NHWC"),
    ) -> None:
        self.x, self.w = tf.placeholder(dtype, [2, 4, 4, 4], "x"), tf.placeholder(dtype, [3, 3, 4, 4], "w")
        self.b = tf.placeholder(dtype, [4], "b")
        self.sums = raw.Conv2D(self.x, self.w, strides=[1, 1, 1, 1], padding="SAME", data_format=formats[0])
        self.biased = raw.BiasAdd(first(self.sums), self.b, data_format=formats[1])
        self.y = tf.nn.relu(second(self.biased))
        self.feeds = [self.x, self.w, self.b]
        self.gradients = tf.gradients(self.y * self.y, self.feeds)

    def step(self, *fetches: Any, targets: Any = (), feeds: Any = ()) -> StepGraph:
        found = fuse_bias(fold(prune(list(fetches), list(targets), [*self.feeds, *feeds])))
        verify(found, "fuse")
        return found

    def is_fused(self, *fetches: Any, targets: Any = (), feeds: Any = ()) -> bool:
        found = types(self.step(*(fetches or [self.y]), targets=targets, feeds=feeds))
        assert ("_Conv2DBiasRelu" in found) != ("Relu" in found)
        return "_Conv2DBiasRelu" in found


def types(step: StepGraph) -> list[str]:
    return [op.type for op in step.operations]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_a_layer_is_fused(dtype: Any, layout: str) -> None:
    layer = Layer(dtype, formats=(layout, layout))
    step = layer.step(layer.y, *layer.gradients)
    assert not {"Conv2D", "BiasAdd", "Relu"} & set(types(step))
    assert {"ReluGrad", "BiasAddGrad", "Conv2DBackpropInput", "Conv2DBackpropFilter"} <= set(types(step))
    fused = next(op for op in step.operations if op.type == "_Conv2DBiasRelu")
    assert step.fetches[0] is fused.outputs[0]
    assert fused.attrs["data_format"] == layout.encode()
    # errors and profiles tell it by the user's operation, and its line
    assert fused.name == "Conv2D/relu"
    assert fused.creation_site.startswith(__file__)


def test_what_else_is_taken_stays() -> None:
    layer = Layer()
    assert layer.is_fused()
    assert not layer.is_fused(layer.y, layer.sums)
    assert not layer.is_fused(layer.y, layer.biased)
    assert not layer.is_fused(layer.y, tf.exp(layer.sums))
    assert not layer.is_fused(layer.y, tf.exp(layer.biased))


def test_what_comes_between_keeps_them_apart() -> None:
    assert not Layer(first=lambda y: y + 1.0).is_fused()
    assert not Layer(second=lambda y: y + 1.0).is_fused()


def test_what_is_fed_is_not_computed() -> None:
    layer = Layer()
    assert not layer.is_fused(feeds=[layer.sums])
    assert not layer.is_fused(feeds=[layer.biased])


def test_a_bias_of_another_axis_stays() -> None:
    assert not Layer(formats=("NHWC", "NCHW")).is_fused()
    assert not Layer(formats=("NCHW", "NHWC")).is_fused()


def test_who_waits_for_something_stays() -> None:
    layer = Layer()
    with tf.control_dependencies([tf.print(layer.b)]):
        late = tf.nn.relu(layer.biased)
        late_too = tf.nn.relu(raw.BiasAdd(layer.sums, layer.b))
    assert not layer.is_fused(late)
    assert not layer.is_fused(late_too)


def test_a_convolution_that_somebody_waits_for_stays() -> None:
    """The bias may be what waits."""
    x, w = tf.placeholder(tf.float32, [2, 4, 4, 4]), tf.placeholder(tf.float32, [3, 3, 4, 4])
    sums = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    with tf.control_dependencies([sums]):
        bias = tf.random_normal([4])
    y = tf.nn.relu(tf.nn.bias_add(sums, bias))
    assert "_Conv2DBiasRelu" not in types(fuse_bias(fold(prune([y], [], [x, w]))))
    layer = Layer()
    assert not layer.is_fused(targets=[layer.sums.op])


def test_a_bias_that_is_computed_after_the_convolution_comes_first() -> None:
    x, w = tf.placeholder(tf.float32, [2, 4, 4, 4]), tf.placeholder(tf.float32, [3, 3, 4, 4])
    sums = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    y = tf.nn.relu(tf.nn.bias_add(sums, tf.reduce_sum(w, [0, 1, 2])))
    step = fuse_bias(fold(prune([y], [], [x, w])))
    verify(step, "fuse")
    assert types(step)[-1] == "_Conv2DBiasRelu"


def test_other_devices_keep_them_apart() -> None:
    layer = Layer()
    with tf.device("/cpu:1"):
        elsewhere = tf.nn.relu(layer.biased)
    assert not layer.is_fused(elsewhere)


def test_who_waited_for_one_waits_for_all() -> None:
    layer = Layer()
    with tf.control_dependencies([layer.biased.op]):
        first = tf.no_op("first")
    with tf.control_dependencies([layer.y.op, first]):
        second = tf.no_op("second")
    step = layer.step(layer.y, targets=[second, layer.y.op, layer.biased.op])
    (fused,) = (op for op in step.operations if op.type == "_Conv2DBiasRelu")
    assert [fused in op.control_inputs for op in step.operations if op.type == "NoOp"] == [True, True]
    assert fused in step.targets


def test_what_a_convolution_waits_for_the_fused_one_waits_for() -> None:
    x, w = tf.placeholder(tf.float32, [2, 4, 4, 4]), tf.placeholder(tf.float32, [3, 3, 4, 4])
    printed = tf.print(x)
    with tf.control_dependencies([printed]):
        sums = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    y = tf.nn.relu(tf.nn.bias_add(sums, np.ones(4, np.float32)))
    step = fuse_bias(fold(prune([y], [], [x, w])))
    (fused,) = (op for op in step.operations if op.type == "_Conv2DBiasRelu")
    assert len(fused.control_inputs) == 1
