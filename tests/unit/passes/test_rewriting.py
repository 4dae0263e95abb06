"""One step graph from another: what does not change is shared, and neither graph is disturbed."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.graph.loop_structure import is_back_edge
from anabranch.ops import raw
from anabranch.passes.added_nodes import added_node
from anabranch.passes.prune import prune
from anabranch.passes.rewriting import Rewriting, needed_by_ends, step_of_function, step_of_members
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify


def chain(length: int = 4) -> StepGraph:
    x = raw.Placeholder(dtype="float32", shape=[2], name="x")
    tensor = x
    for number in range(length):
        tensor = raw.Neg(tensor, name=f"n{number}")
    return prune([tensor], [], [x])


def kept(step: StepGraph, change: Any = None) -> StepGraph:
    rewriting = Rewriting(step)
    for op in step.operations:
        if change is not None:
            change(rewriting, op)
        rewriting.keep(op)
    found = rewriting.result()
    verify(found, "test")
    return found


def test_what_does_not_change_is_shared() -> None:
    step = chain()
    assert kept(step).operations == step.operations

    def known(rewriting: Rewriting, op: Any) -> None:
        if op.name == "n2":
            rewriting.knows(op.inputs[0], np.zeros(2, np.float32))

    changed = kept(step, known)
    assert [a is b for a, b in zip(changed.operations, step.operations, strict=True)] == [True, True, False, False]
    verify(step, "before")
    assert changed.fetches[0] is changed.operations[-1].outputs[0]


def test_added_nodes_get_names_of_their_own() -> None:
    step = chain(1)
    rewriting = Rewriting(step)
    (op,) = step.operations
    rewriting.keep(op)
    names = [rewriting.add(added_node("NoOp", op, "waits")).name for _ in range(3)]
    assert names == ["n0/waits", "n0/waits_1", "n0/waits_2"]


def test_a_loop_of_primitives_is_copied_whole_with_its_back_edge() -> None:
    enter = raw.Enter(tf.placeholder(tf.float32, [], name="x"), frame_name="loop")
    merge, _ = raw.Merge([enter, enter])
    switch = raw.Switch(merge, raw.LoopCond(raw.Less(merge, raw.Enter(10.0, frame_name="loop", is_constant=True))))
    following = raw.NextIteration(raw.AddV2(switch[1], raw.Enter(1.0, frame_name="loop", is_constant=True)))
    merge.op._update_input(1, following)
    step = prune([raw.Exit(switch[0])], [], [])
    copied = kept(step)
    for graph in (step, copied):
        (begin,) = [op for op in graph.operations if op.type == "Merge"]
        (back,) = [t for t in begin.inputs if is_back_edge(begin, t)]
        assert back.op in graph.operations
    assert {op.name for op in step.operations} == {op.name for op in copied.operations}


def test_members_of_a_step_wait_for_each_other_only() -> None:
    x = raw.Placeholder(dtype="float32", shape=[2])
    first = raw.Exp(x, name="first")
    with tf.control_dependencies([first]):
        second = raw.Neg(x, name="second")
    with tf.control_dependencies([second]):
        third = raw.Neg(x, name="third")
    step = prune([third], [first.op], [x])
    members = [op for op in step.operations if op.name != "first"]
    part = step_of_members(members, step.fetches, step.feeds)
    verify(part, "test")
    assert [[c.name for c in op.control_inputs] for op in part.operations] == [[], ["second"]]


def test_a_function_is_a_step_that_is_fed_its_parameters() -> None:
    pred = raw.Placeholder(dtype="bool", shape=[])
    x = raw.Placeholder(dtype="float32", shape=[2], name="x")
    chosen = tf.cond(pred, lambda: raw.Neg(x), lambda: raw.Exp(x))
    step = prune([chosen], [], [pred, x])
    (conditional,) = [op for op in step.operations if op.type.endswith("If")]
    branch = conditional.function(conditional.attrs["then_branch"].name)
    whole = step_of_function(branch, {})
    verify(whole, "test")
    assert (whole.feeds, [op.type for op in whole.operations]) == (branch.inputs, ["Neg"])
    bound = step_of_function(branch, {0: np.ones(2, np.float32)})
    verify(bound, "test")
    assert bound.feeds == []
    assert bound.operations[0].inputs[0].known.tolist() == [1.0, 1.0]
    assert not branch.operations[0].inputs[0].is_known


def test_what_the_ends_need() -> None:
    step = chain()
    assert needed_by_ends(step) == set(step.operations)
    shorter = step.with_operations(step.operations, fetches=[step.operations[1].outputs[0]])
    assert [op.name for op in step.operations if op in needed_by_ends(shorter)] == ["n0", "n1"]
    assert needed_by_ends(shorter, also=step.operations[-1:]) == set(step.operations)
