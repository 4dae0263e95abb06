"""Prune, fold, cse: what they keep, and what they must leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.passes.cse import merge_common_subexpressions
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify
from anabranch.session import Session


def placeholder(shape: Any = (2, 3), name: str = "x") -> Any:
    return raw.Placeholder(dtype="float32", shape=shape, name=name)


def types(step: StepGraph) -> list[str]:
    return [op.type for op in step.operations]


def test_prune_keeps_what_is_needed_in_creation_order() -> None:
    x = placeholder()
    a, unused = raw.Neg(x), raw.Exp(x)
    with get_default_graph().control_dependencies([raw.NoOp(name="before")]):
        b = raw.Square(a)
    step = prune([b], [], [x])
    assert [op.name for op in step.operations] == ["Neg", "before", "Square"]
    assert unused.op not in step.operations


def test_a_fed_tensor_ends_the_walk() -> None:
    x = placeholder()
    middle = raw.Neg(x)
    assert types(prune([raw.Exp(middle)], [], [middle])) == ["Exp"]


def test_rewired_operations_still_come_in_an_order_that_respects_edges() -> None:
    x = placeholder()
    early = raw.Neg(x)
    late = raw.Square(x)
    early.op._update_input(0, late)
    assert types(prune([early], [], [x])) == ["Square", "Neg"]


def test_a_cycle_is_named() -> None:
    x = placeholder()
    first = raw.Neg(x, name="first")
    second = raw.Neg(first, name="second")
    # no public call makes one
    first.op._inputs[0] = second
    with pytest.raises(InvalidArgumentError, match="cycle through 'first', 'second'"):
        prune([second], [], [x])


def test_fold_computes_constants_and_shapes_of_known_rank() -> None:
    x = placeholder()
    size = raw.Mul(raw.Shape(x), convert_to_tensor([2, 2]))
    step = fold(prune([size], [], [x]))
    assert step.operations == []
    assert step.fetches[0].known.tolist() == [4, 6]


def test_fold_respects_feeds_and_state() -> None:
    one = convert_to_tensor(1.0)
    double = raw.AddV2(one, one)
    assert types(fold(prune([double], [], [one]))) == ["AddV2"]
    drawn = raw.RandomUniform(convert_to_tensor([2]), dtype="float32")
    assert types(fold(prune([drawn], [], []))) == ["RandomUniform"]


def test_fold_leaves_failing_operations_to_the_step() -> None:
    bad = raw.Reshape(convert_to_tensor([1, 2, 3]), raw.PlaceholderWithDefault(convert_to_tensor([2, 2]), shape=[2]))
    assert "Reshape" in types(fold(prune([bad], [], [])))


def test_fold_drops_what_only_waits_and_has_nothing_to_wait_for() -> None:
    x = placeholder()
    graph = get_default_graph()
    with graph.control_dependencies([raw.NoOp(name="held_at_once")]):
        through = raw.NoOp(name="through")
    with graph.control_dependencies([through]):
        a = raw.Neg(x)
    step = fold(prune([a], [], [x]))
    assert types(step) == ["Neg"]
    assert not step.operations[0].control_inputs
    # what was asked for stays, and so does what waits for something
    assert types(fold(prune([], [through], []))) == ["NoOp"]
    with graph.control_dependencies([raw.Print(x, [x]).op]):
        waiting = raw.NoOp(name="waiting")
    with graph.control_dependencies([waiting]):
        b = raw.Neg(x)
    assert types(fold(prune([b], [], [x]))) == ["Print", "NoOp", "Neg"]


def test_cse_merges_equal_operations_and_equal_constants() -> None:
    x = placeholder()
    one, same = raw.AddV2(x, 1.0), raw.AddV2(x, 1.0)
    total = raw.Mul(one, same)
    step = merge_common_subexpressions(fold(prune([total], [], [x])))
    assert types(step) == ["AddV2", "Mul"]
    (product,) = (t.op for t in step.fetches)
    assert product.inputs == [step.operations[0].outputs[0]] * 2


def test_cse_knows_commutative_operations() -> None:
    x, y = placeholder(name="x"), placeholder(name="y")
    step = merge_common_subexpressions(prune([raw.Mul(x, y), raw.Mul(y, x), raw.Sub(x, y), raw.Sub(y, x)], [], [x, y]))
    assert types(step) == ["Mul", "Sub", "Sub"]


def test_cse_leaves_state_targets_and_what_waits_for_others_alone() -> None:
    x = placeholder()
    drawn = [raw.RandomUniform(convert_to_tensor([2]), dtype="float32") for _ in range(2)]
    waiting = []
    for first in drawn:
        with get_default_graph().control_dependencies([first.op]):
            waiting.append(raw.Neg(x))
    targets = [raw.Exp(x).op, raw.Exp(x).op]
    step = merge_common_subexpressions(prune([*drawn, *waiting], targets, [x]))
    for kind in ("RandomUniform", "Neg", "Exp"):
        assert types(step).count(kind) == 2


def test_verify_finds_a_step_that_lacks_an_input() -> None:
    x = placeholder()
    step = prune([raw.Neg(x)], [], [x])
    with pytest.raises(InternalError, match="comes before its input 'x:0'"):
        verify(replace(step, feeds=[]), "test")
    with pytest.raises(InternalError, match="does not compute the fetch"):
        verify(replace(step, operations=[]), "test")


def test_constants_are_compared_by_dtype_shape_and_bits() -> None:
    values = [np.float32(0), np.float32(-0.0), np.int32(0), np.zeros(1, np.float32)]
    x = placeholder()
    tensors = [convert_to_tensor(v) for v in values]
    step = merge_common_subexpressions(fold(prune([raw.Shape(x), *tensors], [], [x])))
    assert len(set(step.fetches[1:])) == len(tensors)


def test_constants_of_strings_are_compared_by_what_they_say() -> None:
    x = raw.Placeholder(dtype="string", shape=[3], name="x")
    same = [raw.NotEqual(x, "") for _ in range(2)]
    others = [raw.NotEqual(x, value) for value in ("\0", [""], ["", "", ""])]
    step = merge_common_subexpressions(fold(prune([*same, *others], [], [x])))
    assert step.fetches[0] is step.fetches[1]
    assert len(set(step.fetches[1:])) == 4


def test_reads_of_a_variable_are_merged_between_writes() -> None:
    handle = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    first, second = (raw.ReadVariableOp(handle, dtype="float32", name=name) for name in ("first", "second"))
    write = raw.AssignAddVariableOp(handle, 1.0, name="write")
    third, fourth = (raw.ReadVariableOp(handle, dtype="float32", name=name) for name in ("third", "fourth"))
    step = merge_common_subexpressions(fold(prune([first, second, third, fourth], [write], [])))
    assert [op.name for op in step.operations] == ["first", "write", "third"]
    assert [t.op.name for t in step.fetches] == ["first", "first", "third", "third"]
    with Session() as session:
        session.run(raw.AssignVariableOp(handle, 5.0))
        assert session.run([first, second, write, third, fourth]) == [5, 5, None, 6, 6]
