"""Which gradients of maxima are told their places, and which are not."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.ops import raw
from anabranch.passes.fold import fold
from anabranch.passes.placed_maxima import place_maxima
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify

WINDOW: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
PLACED = ["_MaxPoolGradAtPlaces", "_MaxPoolWithPlaces"]


def step_of(*fetches: Any, feeds: Any = (), targets: Any = ()) -> StepGraph:
    found = place_maxima(fold(prune(list(fetches), list(targets), list(feeds))))
    verify(found, "fuse")
    return found


def pooling_in(step: StepGraph) -> list[str]:
    return sorted(op.type for op in step.operations if "MaxPool" in op.type)


def placeholder(dtype: Any = tf.float32, shape: Any = (2, 4, 4, 3)) -> Any:
    return tf.placeholder(dtype, shape)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_a_gradient_is_told_the_places(dtype: Any) -> None:
    x = placeholder(dtype)
    y = raw.MaxPool(x, **WINDOW)
    step = step_of(y, *tf.gradients(y * y, x), feeds=[x])
    assert pooling_in(step) == PLACED
    forward, backward = (next(op for op in step.operations if op.type == kind) for kind in reversed(PLACED))
    assert step.fetches[0] is forward.outputs[0]
    assert backward.inputs[3] is forward.outputs[1]
    # errors and profiles tell it by the user's operation, and its line
    assert forward.name == "MaxPool/places"
    assert forward.creation_site.startswith(__file__)


def test_two_gradients_of_the_same_maxima_are() -> None:
    x, grad = placeholder(), placeholder(shape=(2, 2, 2, 3))
    y = raw.MaxPool(x, **WINDOW)
    step = step_of(raw.MaxPoolGrad(x, y, grad, **WINDOW), raw.MaxPoolGrad(x, y, y, **WINDOW), feeds=[x, grad])
    assert pooling_in(step) == [PLACED[0], *PLACED]


def test_maxima_alone_stay() -> None:
    x = placeholder()
    assert pooling_in(step_of(raw.MaxPool(x, **WINDOW), feeds=[x])) == ["MaxPool"]


def test_gradients_of_something_else_stay() -> None:
    """Of other data, by another window, and of what was made of the maxima since."""
    x, other, grad = placeholder(), placeholder(), placeholder(shape=(2, 2, 2, 3))
    y = raw.MaxPool(x, **WINDOW)
    for gradient in (
        raw.MaxPoolGrad(other, y, grad, **WINDOW),
        raw.MaxPoolGrad(x, y, grad, **{**WINDOW, "padding": "SAME"}),
        raw.MaxPoolGrad(x, tf.nn.relu(y), grad, **WINDOW),
    ):
        assert pooling_in(step_of(gradient, feeds=[x, other, grad])) == ["MaxPool", "MaxPoolGrad"]
    # the maxima are fed: nobody finds their places
    assert pooling_in(step_of(raw.MaxPoolGrad(x, y, grad, **WINDOW), feeds=[x, y, grad])) == ["MaxPoolGrad"]


def test_other_types_stay() -> None:
    x = placeholder(tf.float64)
    y = raw.MaxPool(x, **WINDOW)
    assert pooling_in(step_of(*tf.gradients(y, x), feeds=[x])) == ["MaxPool", "MaxPoolGrad"]


def test_other_devices_keep_them_apart() -> None:
    x, grad = placeholder(), placeholder(shape=(2, 2, 2, 3))
    y = raw.MaxPool(x, **WINDOW)
    with tf.device("/cpu:1"):
        gradient = raw.MaxPoolGrad(x, y, grad, **WINDOW)
    assert pooling_in(step_of(gradient, feeds=[x, grad])) == ["MaxPool", "MaxPoolGrad"]


def test_who_waited_for_either_still_waits() -> None:
    x = placeholder()
    y = raw.MaxPool(x, **WINDOW)
    (gradient,) = tf.gradients(y, x)
    with tf.control_dependencies([y.op, gradient.op]):
        last = tf.no_op("last")
    step = step_of(gradient, feeds=[x], targets=[last, y.op])
    (waiting,) = (op for op in step.operations if op.type == "NoOp")
    assert sorted(op.type for op in waiting.control_inputs) == PLACED
    assert "_MaxPoolWithPlaces" in {op.type for op in step.targets}
