"""Copies of operations and function graphs for steps: made once, anew when the graph has changed."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.errors import InvalidArgumentError
from anabranch.graph.graph_copy import functions_of, name_operation
from anabranch.graph.step_nodes import StepFunction
from anabranch.ops import raw
from anabranch.passes.prune import prune


def conditional(x: Any) -> Any:
    inner = lambda: tf.cond(x[0] > 1.0, lambda: raw.Neg(x), lambda: raw.Exp(x))  # noqa: E731
    return tf.cond(x[1] > 0.0, inner, lambda: raw.Tanh(x))


def called(fetch: Any) -> dict[str, StepFunction]:
    operations = fetch.graph.get_operations()
    return functions_of(fetch.graph, operations)


def test_a_fed_output_is_another_tensor_than_the_computed_one() -> None:
    x = raw.Placeholder(dtype="float32", shape=[4])
    first, second = raw.Split(0, x, num_split=2)
    step = prune([raw.Neg(first), second], [], [x, first])
    (split,) = [op for op in step.operations if op.type == "Split"]
    (negation,) = [op for op in step.operations if op.type == "Neg"]
    assert negation.inputs == [step.feeds[1]]
    assert step.feeds[1] is not split.outputs[0]
    assert step.feeds[1].name == split.outputs[0].name


def test_functions_are_copied_once_until_they_change() -> None:
    result = conditional(raw.Placeholder(dtype="float32", shape=[2]))
    before = called(result)
    assert len(before) == 4
    assert called(result) == before
    name = next(name for name, function in before.items() if [op.type for op in function.operations] == ["Neg"])
    body: Any = result.graph.get_function(name)
    with body.as_default():
        body.outputs[0] = raw.Exp(body.outputs[0])
        raw.NoOp()
    after = called(result)
    changed = {key for key in before if before[key] is not after[key]}
    assert name in changed
    assert len(changed) == 2  # and the branch that calls it
    assert [op.type for op in before[name].operations] == ["Neg"]


def test_a_node_names_what_it_was_copied_from() -> None:
    x = raw.Placeholder(dtype="float32", shape=[2])
    result = conditional(x)
    step = prune([result], [], [x])
    (whole,) = [op for op in step.operations if op.type.endswith("If")]
    assert whole.origin == whole.name
    (inner,) = whole.function(whole.attrs["else_branch"].name).operations
    assert inner.origin == f"{inner.name}@{whole.attrs['else_branch'].name}"
    failure = InvalidArgumentError(None, whole, "it failed")
    name_operation(failure, result.graph)
    assert failure.op is result.graph.get_operation_by_name(whole.name)
    failure = InvalidArgumentError(None, inner, "it failed")
    name_operation(failure, result.graph)
    assert failure.op is inner
