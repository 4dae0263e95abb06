"""What waited for an operation that a pass removes waits for what that one waited for, with few edges."""

from __future__ import annotations

from typing import Any

from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.passes.control_edges import MAX_DIRECT
from anabranch.passes.cse import merge_common_subexpressions
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify


def after(operations: Any, make: Any) -> Any:
    """What `make` makes while the graph waits for some operations."""
    with get_default_graph().control_dependencies(operations):
        return make()


def waited_for(step: StepGraph, tensor: Any) -> list[str]:
    """The names of the operations that the one behind a tensor waits for in a step, besides its inputs."""
    (op,) = [op for op in step.operations if op.name == tensor.op.name]
    return [control.name for control in op.control_inputs]


def drawn() -> Any:
    return raw.RandomUniform(convert_to_tensor([2]), dtype="float32")


def test_who_takes_a_constant_waits_for_what_the_constant_waited_for() -> None:
    first = drawn()
    constant = after([first.op], lambda: convert_to_tensor([1.0, 2.0]))
    sum_ = raw.AddV2(raw.Neg(constant), drawn())
    step = fold(prune([sum_], [], []))
    verify(step, "fold")
    assert waited_for(step, sum_) == [first.op.name]


def test_a_known_shape_waits_for_its_tensor() -> None:
    first = drawn()
    second = raw.RandomUniform(raw.Shape(first), dtype="float32")
    assert waited_for(fold(prune([second], [], [])), second) == [first.op.name]


def test_fetches_and_targets_keep_what_they_waited_for() -> None:
    first = drawn()
    constant = after([first.op], lambda: convert_to_tensor(1.0))
    for step in (prune([constant], [], []), prune([], [constant.op], [])):
        assert [op.name for op in fold(step).targets] == [first.op.name]


def test_a_long_chain_has_few_edges() -> None:
    """Each constant waits for the one before and for one operation more."""
    sources, constant, consumers = [], convert_to_tensor(1.0), []
    for _ in range(50):
        sources.append(drawn())
        before = [sources[-1].op, constant.op]
        constant = after(before, lambda: convert_to_tensor(1.0))
        consumers.append(raw.AddV2(drawn(), constant))
    step = fold(prune(consumers, [], []))
    verify(step, "fold")
    assert max(len(op.control_inputs) for op in step.operations) <= 2 * MAX_DIRECT
    assert sum(len(op.control_inputs) for op in step.operations) <= 4 * MAX_DIRECT * len(consumers)


def test_what_waits_for_different_operations_is_not_merged() -> None:
    x = raw.Placeholder(dtype="float32", shape=[2])
    guards = [drawn(), drawn()]
    sums = [raw.AddV2(x, after([guard.op], lambda: convert_to_tensor(1.0))) for guard in (*guards, guards[0])]
    step = merge_common_subexpressions(fold(prune(sums, [], [x])))
    verify(step, "cse")
    assert [t.op.name for t in step.fetches] == [sums[i].op.name for i in (0, 1, 0)]


def test_who_waited_for_a_merged_operation_waits_for_the_first() -> None:
    x = raw.Placeholder(dtype="float32", shape=[2])
    first, same = raw.Exp(x), raw.Exp(x)
    last = raw.RandomUniform(raw.Shape(same), dtype="float32")
    step = merge_common_subexpressions(fold(prune([first, same, last], [], [x])))
    verify(step, "cse")
    assert waited_for(step, last) == [first.op.name]
