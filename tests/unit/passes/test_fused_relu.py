"""Which normalizations of batches become one operation with the ReLU behind them, and which must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as tf
from anabranch.passes.fold import fold
from anabranch.passes.fused_relu import fuse_relu
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify

VERSIONS = {
    "": tf.raw_ops.FusedBatchNorm,
    "V2": tf.raw_ops.FusedBatchNormV2,
    "V3": tf.raw_ops.FusedBatchNormV3,
}


class Layer:
    """A normalization, its ReLU and their gradients, with what they take."""

    def __init__(self, version: str = "V3", training: bool = True, between: Callable[[Any], Any] = lambda y: y) -> None:
        self.x = tf.placeholder(tf.float32, [2, 4, 4, 3], name="x")
        vectors = [tf.placeholder(tf.float32, [3], name=name) for name in ("scale", "offset", "mean", "variance")]
        self.outputs = VERSIONS[version](
            x=self.x, scale=vectors[0], offset=vectors[1], mean=vectors[2], variance=vectors[3], is_training=training
        )
        self.y = tf.nn.relu(between(self.outputs[0]))
        self.feeds = [self.x, *vectors]
        self.gradients = tf.gradients(tf.reduce_sum(self.y * self.y), [self.x, *vectors[:2]])

    def step(self, *fetches: Any, targets: Any = ()) -> StepGraph:
        found = fuse_relu(fold(prune(list(fetches), list(targets), self.feeds)))
        verify(found, "fuse")
        return found


def types(step: StepGraph) -> list[str]:
    return [op.type for op in step.operations]


def is_fused(step: StepGraph) -> list[bool]:
    """Whether the normalization is, and whether its gradient is."""
    return [f"_FusedBatchNormRelu{way}" in types(step) for way in ("", "Grad")]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_of_a_layer_are_fused(version: str) -> None:
    layer = Layer(version)
    step = layer.step(layer.y, layer.outputs[1], *layer.gradients)
    assert is_fused(step) == [True, True]
    assert not {"Relu", "ReluGrad", f"FusedBatchNorm{version}", f"FusedBatchNormGrad{version}"} & set(types(step))
    forward = next(op for op in step.operations if op.type == "_FusedBatchNormRelu")
    assert step.fetches[:2] == forward.outputs[:2]
    # errors and profiles tell it by the user's operation, and its line
    assert forward.name == f"FusedBatchNorm{version}/relu"
    assert forward.creation_site.startswith(__file__)


def test_a_layer_alone_is_fused() -> None:
    layer = Layer()
    assert types(layer.step(layer.y)) == ["_FusedBatchNormRelu"]


def test_what_else_is_taken_stays() -> None:
    layer = Layer()
    normalized, _ = layer.outputs[0], tf.exp(layer.outputs[0], name="other")
    assert is_fused(layer.step(layer.y, normalized)) == [False, False]
    assert is_fused(layer.step(layer.y, tf.exp(normalized), *layer.gradients)) == [False, False]
    (relu_gradient,) = (op for op in tf.get_default_graph().get_operations() if op.type == "ReluGrad")
    # the gradient of ReLU is asked for: the normalization is fused, its gradient is not
    step = layer.step(layer.y, relu_gradient.outputs[0], *layer.gradients)
    assert is_fused(step) == [True, False]
    assert "FusedBatchNormGradV3" in types(step)


def test_what_is_fed_is_not_computed() -> None:
    layer = Layer()
    step = fuse_relu(fold(prune([layer.y, layer.outputs[1]], [], [*layer.feeds, layer.outputs[0]])))
    verify(step, "fuse")
    assert sorted(types(step)) == ["FusedBatchNormV3", "Relu"]
    assert types(fuse_relu(fold(prune([layer.y], [], [layer.outputs[0]])))) == ["Relu"]
    (relu_gradient,) = (op for op in tf.get_default_graph().get_operations() if op.type == "ReluGrad")
    step = fuse_relu(fold(prune([layer.y, *layer.gradients], [], [*layer.feeds, relu_gradient.outputs[0]])))
    verify(step, "fuse")
    assert is_fused(step) == [True, False]


def test_what_does_not_train_stays() -> None:
    layer = Layer(training=False)
    assert is_fused(layer.step(layer.y, *layer.gradients)) == [False, False]


def test_what_comes_between_keeps_them_apart() -> None:
    layer = Layer(between=lambda y: y + 1.0)
    assert is_fused(layer.step(layer.y, *layer.gradients)) == [False, False]


def test_a_gradient_of_other_channels_stays() -> None:
    """The channels of the gradient are another axis: where it is positive would be read in another order."""
    x, grad = (tf.placeholder(tf.float32, [2, 3, 3, 3], name=name) for name in ("x", "grad"))
    ones = tf.ones([3])
    y, *_, first, second, third = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=[], variance=[])
    positive = tf.nn.relu(y)
    backward = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=tf.raw_ops.ReluGrad(gradients=grad, features=positive),
        x=x,
        scale=ones,
        reserve_space_1=first,
        reserve_space_2=second,
        reserve_space_3=third,
        data_format="NCHW",
    )
    assert is_fused(fuse_relu(fold(prune([positive, backward[0]], [], [x, grad])))) == [True, False]


def test_a_relu_that_waits_for_something_stays() -> None:
    x = tf.placeholder(tf.float32, [2, 4, 4, 3], name="x")
    ones = tf.ones([3])
    y, mean, *_ = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=[], variance=[])
    with tf.control_dependencies([tf.print(mean)]):
        late = tf.nn.relu(y)
    step = fuse_relu(fold(prune([late], [], [x])))
    assert is_fused(step) == [False, False]


def test_other_devices_keep_them_apart() -> None:
    x = tf.placeholder(tf.float32, [2, 4, 4, 3], name="x")
    ones = tf.ones([3])
    y = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=[], variance=[])[0]
    with tf.device("/cpu:1"):
        elsewhere = tf.nn.relu(y)
    assert is_fused(fuse_relu(fold(prune([elsewhere], [], [x])))) == [False, False]


def test_who_waited_for_either_waits_for_both() -> None:
    layer = Layer()
    with tf.control_dependencies([layer.outputs[0].op]):
        first = tf.no_op("first")
    with tf.control_dependencies([layer.y.op, first]):
        second = tf.no_op("second")
    step = layer.step(layer.y, targets=[second, layer.y.op])
    (fused,) = (op for op in step.operations if op.type == "_FusedBatchNormRelu")
    waiting = [op for op in step.operations if op.type == "NoOp"]
    assert [fused in op.control_inputs for op in waiting] == [True, True]
    assert fused in step.targets
