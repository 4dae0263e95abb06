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


# ---------------------------------------------------------------------- with a sum between them
class Block:
    """A normalization, to which something is added before the ReLU, and their gradients, with what they take."""

    def __init__(
        self,
        side: Callable[[Any], Any] = lambda x: x,
        add: Callable[[Any, Any], Any] = lambda y, side: y + side,
        shape: tuple[int | None, ...] = (2, 4, 4, 3),
    ) -> None:
        self.x = tf.placeholder(tf.float32, shape, name="x")
        self.vectors = [tf.placeholder(tf.float32, [3], name=n) for n in ("scale", "offset", "mean", "variance")]
        self.feeds = [self.x, *self.vectors]
        before = tf.tanh(self.x)
        self.side = side(before)
        self.outputs = self.normalized(tf.sin(before))
        self.y = tf.nn.relu(add(self.outputs[0], self.side))
        self.gradients = tf.gradients(tf.reduce_sum(self.y * self.y), [self.x, *self.vectors[:2]])

    def normalized(self, x: Any) -> Any:
        scale, offset, mean, variance = self.vectors
        return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=mean, variance=variance)

    def step(self, *fetches: Any, targets: Any = ()) -> StepGraph:
        found = fuse_relu(fold(prune(list(fetches), list(targets), self.feeds)))
        verify(found, "fuse")
        return found


def is_fused_with_sum(step: StepGraph) -> list[bool]:
    return [f"_FusedBatchNormAddRelu{way}" in types(step) for way in ("", "Grad")]


@pytest.mark.parametrize(
    "add",
    [
        lambda y, side: y + side,
        lambda y, side: side + y,
        lambda y, side: tf.raw_ops.Add(x=y, y=side),
        lambda y, side: tf.add_n([side, y]),
    ],
)
def test_both_ways_of_a_residual_block_are_fused(add: Callable[[Any, Any], Any]) -> None:
    block = Block(add=add)
    step = block.step(block.y, block.outputs[1], *block.gradients)
    assert is_fused_with_sum(step) == [True, True]
    assert not {"Relu", "ReluGrad", "FusedBatchNormV3", "FusedBatchNormGradV3", "Add"} & set(types(step))
    backward = next(op for op in step.operations if op.type == "_FusedBatchNormAddReluGrad")
    # what the ReLU's gradient passes on goes both ways
    taken = [t for op in step.operations for t in op.inputs if t.op is backward]
    assert {0, 5} <= {t.value_index for t in taken}


def test_of_two_normalizations_the_later_is_fused_with_the_sum() -> None:
    """As where a residual network changes the number of its channels."""
    block = Block(side=lambda x: x)
    earlier = block.normalized(tf.cos(block.x))[0]
    later = block.normalized(tf.exp(block.x))[0]
    for y in (tf.nn.relu(earlier + later), tf.nn.relu(later + earlier)):
        gradients = tf.gradients(tf.reduce_sum(y * y), [block.x, *block.vectors[:2]])
        step = block.step(y, *gradients)
        assert is_fused_with_sum(step) == [True, True]
        fused = next(op for op in step.operations if op.type == "_FusedBatchNormAddRelu")
        assert fused.inputs[-1].op.type == "FusedBatchNormV3"
        assert types(step).count("FusedBatchNormGradV3") == 1


def test_what_else_takes_the_sum_keeps_it() -> None:
    block = Block()
    add = block.y.op.inputs[0]
    assert is_fused_with_sum(block.step(block.y, add)) == [False, False]
    assert is_fused_with_sum(block.step(block.y, block.outputs[0])) == [False, False]
    assert is_fused_with_sum(block.step(block.y, tf.exp(add))) == [False, False]
    # whoever waits for it waits for all of it
    with tf.control_dependencies([add]):
        late = tf.no_op("late")
    step = block.step(block.y, targets=[late])
    (fused,) = (op for op in step.operations if op.type == "_FusedBatchNormAddRelu")
    assert [fused in op.control_inputs for op in step.operations if op.type == "NoOp"] == [True]


def test_what_is_added_must_be_there_and_of_that_shape() -> None:
    shapes: list[Callable[[Any], Any]] = [lambda x: tf.ones([3]), lambda x: tf.ones([4, 4, 1]), lambda x: 1.0]
    for side in shapes:
        block = Block(side)
        assert is_fused_with_sum(block.step(block.y, *block.gradients)) == [False, False]
    block = Block()
    # computed only of what the normalization gives besides
    y = tf.nn.relu(block.outputs[0] + tf.ones([2, 4, 4, 1]) * block.outputs[1])
    assert is_fused_with_sum(block.step(y)) == [False, False]


def test_a_difference_is_no_sum() -> None:
    block = Block(add=lambda y, side: y - side)
    assert is_fused_with_sum(block.step(block.y, *block.gradients)) == [False, False]
    block = Block(add=lambda y, side: tf.add_n([y, side, side]))
    assert is_fused_with_sum(block.step(block.y, *block.gradients)) == [False, False]


def test_twice_the_same_is_no_residual() -> None:
    block = Block()
    assert is_fused_with_sum(block.step(tf.nn.relu(block.outputs[0] + block.outputs[0]))) == [False, False]


def test_a_batch_of_open_length_is_fused() -> None:
    block = Block(shape=(None, 4, 4, 3))
    assert is_fused_with_sum(block.step(block.y))[0]
    # what is known of one alone may turn out to be repeated
    unknown = Block(shape=(None, None, None, None))
    assert not is_fused_with_sum(unknown.step(unknown.y))[0]


def test_what_the_gradient_of_relu_gives_may_be_fetched() -> None:
    block = Block()
    (relu_gradient,) = (op for op in tf.get_default_graph().get_operations() if op.type == "ReluGrad")
    step = block.step(relu_gradient.outputs[0], *block.gradients)
    assert is_fused_with_sum(step) == [True, True]
    assert step.fetches[0].op.type == "_FusedBatchNormAddReluGrad"
    # where it is fed there is nothing to compute
    found = fuse_relu(fold(prune([block.y, *block.gradients], [], [*block.feeds, relu_gradient.outputs[0]])))
    verify(found, "fuse")
    assert is_fused_with_sum(found) == [True, False]
