"""Graphs put together from Switch, Merge, Enter, NextIteration and Exit by hand; and loops lowered to them (§3.4)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.pipeline import lowering_everything, plan_step
from anabranch.runtime.item_work import ItemWork
from anabranch.runtime.run_order import needs_executor
from anabranch.xla.islands import Island

#: the operations of one family of primitives, and of that on references, which are values here
FAMILIES = [
    ("Switch", "Merge", "Enter", "Exit", "NextIteration"),
    ("RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"),
]


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def loop(
    limit: Any,
    body: Any,
    start: Any = 0,
    name: str = "loop",
    kinds: Any = FAMILIES[0],
    condition: Any = raw.Less,
    **enter: Any,
) -> tuple[Tensor, dict[str, Any]]:
    """A loop by hand, while its variable is below `limit`; returns its result, and its parts by name."""
    _, merge_type, enter_type, exit_type, next_type = (getattr(raw, kind) for kind in kinds)
    switch_type = getattr(raw, kinds[0])
    entering = enter_type(start, frame_name=name, name=f"{name}/enter", **enter)
    entering.set_shape(tf.convert_to_tensor(start).shape)  # the loop keeps it
    merge = merge_type([entering, entering], name=f"{name}/merge")
    inside = enter_type(limit, frame_name=name, is_constant=True, name=f"{name}/limit", **enter)
    going_on = raw.LoopCond(condition(merge.output, inside), name=f"{name}/cond")
    switch = switch_type(merge.output, going_on, name=f"{name}/switch")
    following = next_type(body(switch.output_true), name=f"{name}/next")
    merge.output.op._update_input(1, following)
    leaving = exit_type(switch.output_false, name=f"{name}/exit")
    return leaving, {"enter": entering, "merge": merge.output, "switch": switch, "next": following}


# ---------------------------------------------------------------------- values
@pytest.mark.parametrize("kinds", FAMILIES)
@pytest.mark.parametrize("predicate", [[True], [False, True], [[True]], []], ids=str)
def test_what_decides_must_be_a_scalar(kinds: Any, predicate: Any) -> None:
    """In a conditional and in a loop, known, fed, and computed."""
    fed = tf.placeholder(tf.bool, None)
    for given in (fed, tf.logical_not(fed), tf.placeholder_with_default(tf.constant(predicate, tf.bool), None)):
        merged = getattr(raw, kinds[1])(list(getattr(raw, kinds[0])(tf.constant([1.0, 2.0]), given))).output
        with pytest.raises(errors.InvalidArgumentError, match="scalar"):
            run(merged, {fed: predicate})
    with pytest.raises(ValueError, match="rank 0"):
        getattr(raw, kinds[0])(tf.constant([1.0, 2.0]), tf.constant(predicate, tf.bool))
    with pytest.raises(ValueError, match="rank 0"):
        raw.LoopCond(tf.constant(predicate, tf.bool))
    left, _ = loop(fed, lambda v: v, start=True, kinds=kinds, condition=lambda v, limit: limit)
    with pytest.raises(errors.InvalidArgumentError, match="scalar"):
        run(left, {fed: predicate})


@pytest.mark.parametrize("kinds", FAMILIES)
def test_a_conditional(kinds: Any) -> None:
    p, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])
    switch = getattr(raw, kinds[0])(x, p)
    merge = getattr(raw, kinds[1])([raw.Neg(switch.output_false), raw.Exp(switch.output_true)])
    assert run(list(merge), {p: False, x: [1, 2]})[0].tolist() == [-1, -2]
    value, index = run(list(merge), {p: True, x: [0, 0]})
    assert value.tolist() == [1, 1]
    assert index == 1


@pytest.mark.parametrize("kinds", FAMILIES)
@pytest.mark.parametrize("window", [1, 10])
def test_a_loop(kinds: Any, window: int) -> None:
    n = tf.placeholder(tf.int32, [])
    result, _ = loop(n, lambda i: raw.AddV2(i, 3), kinds=kinds, parallel_iterations=window)
    assert [run(result, {n: k}) for k in (0, 1, 10)] == [0, 3, 12]


def test_a_loop_variable_that_grows() -> None:
    """Its shape at the start says nothing of the later iterations."""
    entering = raw.Enter(tf.constant([1.0]), frame_name="grow")
    assert entering.shape.ndims is None
    assert raw.Enter(tf.constant([1.0]), frame_name="grow", is_constant=True).shape.as_list() == [1]
    merge = raw.Merge([entering, entering])
    going_on = raw.LoopCond(raw.Less(raw.Size(merge.output), 4))
    switch = raw.Switch(merge.output, going_on)
    merge.output.op._update_input(1, raw.NextIteration(tf.concat([switch.output_true] * 2, 0)))
    assert run(raw.Shape(raw.Exit(switch.output_false))).tolist() == [4]


def test_a_loop_in_a_loop() -> None:
    inner_results: list[Any] = []

    def body(i: Any) -> Any:
        inner, _ = loop(raw.Mul(i, 10), lambda j: raw.AddV2(j, 4), start=i, name="inner")
        inner_results.append(inner)
        return raw.AddV2(raw.Mul(i, 0), raw.AddV2(inner, 1))

    result, _ = loop(tf.constant(50), body, start=1)
    value = expected = 1
    while expected < 50:
        value = expected
        while value < 10 * expected:
            value += 4
        expected = value + 1
    assert run(result) == expected


def test_a_side_that_is_not_taken_has_no_effects_and_no_value() -> None:
    ran: list[int] = []
    p = tf.placeholder(tf.bool, [])
    switch = raw.Switch(tf.constant(1.0), p)
    sides = [tf.py_func(lambda v, i=i: ran.append(i) or v, [side], tf.float32) for i, side in enumerate(switch)]
    merge = raw.Merge([side + 0.0 for side in sides]).output
    assert run(merge, {p: True}) == 1.0
    assert ran == [1]
    with pytest.raises(errors.InvalidArgumentError, match="has no value: it is on a branch that was not taken"):
        run(sides[0], {p: True})


def test_a_control_trigger_is_never_dead() -> None:
    x = tf.placeholder(tf.float32, [])
    switch = raw.Switch(x, tf.constant(True))
    dead = raw.Neg(switch.output_false)
    with tf.control_dependencies([dead]):
        trigger = raw.ControlTrigger()
        controlled = raw.Neg(x)
    with tf.control_dependencies([trigger]):
        alive = raw.Identity(tf.constant(3.0))
    assert run(alive, {x: 1.0}) == 3.0
    with pytest.raises(errors.InvalidArgumentError, match="has no value"):
        run(controlled, {x: 1.0})


def test_a_constant_in_a_branch_is_dead_with_it() -> None:
    """Although its value is known: the Merge takes the other one."""
    p = tf.placeholder(tf.bool, [])
    sides = [raw.Identity(side) for side in raw.Switch(p, p)]
    constants = []
    for value, side in enumerate(sides):
        with tf.control_dependencies([side]):
            constants.append(tf.constant(float(value)))
    merge = raw.Merge(constants).output
    more = raw.Merge([raw.RandomUniform([2], dtype="float32"), raw.Fill([3], constants[1])]).output
    assert [run(merge, {p: v}) for v in (False, True)] == [0.0, 1.0]
    assert run(more, {p: False}).shape == (2,)
    assert run(constants[1], {p: True}) == 1.0
    with pytest.raises(errors.InvalidArgumentError, match="has no value: it is on a branch that was not taken"):
        run(constants[1], {p: False})


def test_what_follows_from_a_shape_is_dead_with_its_tensor() -> None:
    p = tf.placeholder(tf.bool, [])
    shape = raw.Shape(raw.Switch(tf.ones([2, 3]), p).output_true) + 1
    assert run(shape, {p: True}).tolist() == [3, 4]
    with pytest.raises(errors.InvalidArgumentError, match="has no value: it is on a branch that was not taken"):
        run(shape, {p: False})


def test_a_random_number_in_a_loop_is_drawn_in_each_iteration() -> None:
    drawn: list[Any] = []

    def body(i: Any) -> Any:
        number = raw.RandomUniform(raw.Shape(raw.Reshape(i, [1])), dtype="float32")
        seen = tf.py_func(lambda v: drawn.append(float(v[0])) or np.int32(1), [number], tf.int32)
        return raw.AddV2(i, seen)

    assert run(loop(tf.constant(4), body)[0]) == 4
    assert len(set(drawn)) == 4


def test_variables_in_branches_and_loops() -> None:
    v = tf.get_variable("v", initializer=0.0, use_resource=True)
    p = tf.placeholder(tf.bool, [])
    handle = raw.Switch(v.handle, p)
    write = raw.AssignAddVariableOp(handle.output_true, tf.constant(5.0))
    with tf.control_dependencies([write]):
        taken = raw.Identity(raw.Switch(tf.constant(1.0), p).output_true)
    merge = raw.Merge([raw.Switch(tf.constant(0.0), p).output_false, taken]).output
    with tf.control_dependencies([merge]):
        after = v.read_value()
    with tf.Session() as session:
        session.run(v.initializer)
        assert [session.run([merge, after], {p: value}) for value in (True, False, True)] == [[1, 5], [0, 5], [1, 10]]


def test_abort_ends_the_step_when_it_is_alive() -> None:
    p = tf.placeholder(tf.bool, [])
    switch = raw.Switch(tf.constant(1.0), p)
    with tf.control_dependencies([switch.output_true, raw.Identity(switch.output_true)]):
        stop = raw.Abort(error_msg="this cannot go on")
    with tf.control_dependencies([stop]):
        stopped = raw.Identity(tf.constant(1.0))
    merge = raw.Merge([switch.output_false, stopped]).output
    assert run(merge, {p: False}) == 1.0
    with pytest.raises(errors.AbortedError, match="this cannot go on"):
        run(merge, {p: True})


def test_gradients_of_switch_and_merge() -> None:
    p, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])
    switch = raw.Switch(x, p)
    merge = raw.Merge([raw.Square(switch.output_false), raw.Exp(raw.Exp(switch.output_true))]).output
    gradient = tf.gradients(merge * 3.0, x)[0]
    second = tf.gradients(gradient, x)[0]
    feeds = {x: [0.5, -1.0]}
    np.testing.assert_allclose(run(gradient, {p: False, **feeds}), [3.0, -6.0])
    np.testing.assert_allclose(run(second, {p: False, **feeds}), [6.0, 6.0])
    e = np.exp([0.5, -1.0])
    np.testing.assert_allclose(run(gradient, {p: True, **feeds}), 3 * np.exp(e) * e, rtol=1e-5)


def test_an_island_holds_what_lives_and_repeats_together() -> None:
    """Operations of both sides, and of both loops, have one level; they are four islands and not one."""
    p, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [100])
    switch = raw.Switch(x, p)
    merge = raw.Merge([raw.Neg(raw.Exp(switch.output_false)), raw.Sin(raw.Exp(switch.output_true))]).output

    def body(value: Tensor) -> Tensor:  # more than the host takes of a few numbers
        for _ in range(3):
            value = raw.Exp(raw.AddV2(value, 1.0))
        return value

    beside = [loop(tf.constant(3.0), body, 0.0, name)[0] for name in "ab"]
    plan = plan_step([merge, *beside], [], [p, x])
    islands = sorted(sorted(op.type for op in island.operations) for island in plan.islands)
    assert islands == [["AddV2"] * 3 + ["Exp"] * 3] * 2 + [["Exp", "Neg"], ["Exp", "Sin"]]


# ---------------------------------------------------------------------- malformed loops
def refusal(fetches: Any, feeds: Any = None) -> str:
    """The message with which a step is refused, before anything has run."""
    ran: list[int] = []
    beside = tf.py_func(lambda: ran.append(1), [], [])
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run([fetches, beside], feeds)
    assert not ran
    assert "was created at" in str(caught.value)
    return str(caught.value)


def test_next_iteration_without_enter() -> None:
    x = tf.placeholder(tf.float32, [])
    merge = raw.Merge([x, x], name="merge")
    merge.output.op._update_input(1, raw.NextIteration(raw.Neg(merge.output), name="next"))
    assert "operation 'next' (NextIteration) is outside of all loops: no Enter leads to it" in refusal(
        merge.output, {x: 1}
    )
    assert "operation 'leave' (Exit) is outside of all loops" in refusal(raw.Exit(x, name="leave"), {x: 1})


def test_merge_arity() -> None:
    enters = [raw.Enter(float(i), frame_name="loop") for i in range(2)]
    merge = raw.Merge([*enters, enters[0]], name="merge")
    merge.output.op._update_input(2, raw.NextIteration(raw.Neg(merge.output)))
    message = refusal(raw.Exit(merge.output))
    assert (
        "operation 'merge' (Merge) begins an iteration, but merges 3 values, of Enter, Enter, NextIteration" in message
    )


def test_an_edge_into_and_out_of_a_loop() -> None:
    x = tf.placeholder(tf.float32, [])
    _, parts = loop(tf.constant(3), lambda i: raw.AddV2(i, 1))
    inside = raw.Identity(parts["switch"].output_true)
    assert "in the loop 'loop', and of " in refusal(raw.AddV2(raw.Cast(inside, DstT="float32"), raw.Neg(x)), {x: 1})
    assert "stands in the loop 'loop' and cannot be fetched" in refusal(inside)


def test_two_frames_at_one_node() -> None:
    (_, one), (_, other) = (loop(tf.constant(3), lambda i: raw.AddV2(i, 1), name=name) for name in ("one", "other"))
    message = refusal(raw.Exit(raw.AddV2(one["merge"], other["merge"], name="sum")))
    assert "operation 'sum' (AddV2) has inputs from different frames: of 'one/merge', in the loop 'one'" in message
    assert "and of 'other/merge'" in message


def test_only_a_merge_takes_a_next_iteration() -> None:
    _, parts = loop(tf.constant(3), lambda i: raw.AddV2(i, 1))
    message = refusal(raw.Exit(raw.Neg(parts["next"], name="wrong")))
    assert "operation 'wrong' (Neg) takes the value of 'loop/next:0'; only a Merge" in message


def test_enters_that_disagree() -> None:
    first = raw.Enter(1, frame_name="loop", parallel_iterations=3)
    other = raw.Enter(2, frame_name="loop", parallel_iterations=4, name="other")
    assert "operation 'other' (Enter) says that the loop 'loop' has 4 parallel" in refusal(
        raw.Exit(raw.AddV2(first, other))
    )


def test_a_feed_inside_of_a_loop() -> None:
    result, parts = loop(tf.constant(3), lambda i: raw.AddV2(i, 1))
    assert "which is fed; feed what enters the loop" in refusal(result, {parts["merge"]: 1})


def test_a_cycle_without_a_loop() -> None:
    x = tf.placeholder(tf.float32, [])
    total = raw.AddV2(x, x, name="total")
    with pytest.raises(ValueError, match=r"the graph would have a cycle: operation total .* through Neg"):
        total.op._update_input(1, raw.Neg(total))
    with tf.Session() as session:  # as it was
        assert session.run(total, {x: 1}) == 2


# ---------------------------------------------------------------------- lowering
def test_host_work_makes_a_loop_run_by_primitives() -> None:
    seen: list[int] = []
    n = tf.placeholder(tf.int32, [])

    def body(i: Any, total: Any) -> Any:
        square = tf.py_func(lambda v: seen.append(int(v)) or v * v, [i], tf.int32)
        square.set_shape([])
        return i + 1, total + square

    result = tf.while_loop(lambda i, _: i < n, body, (0, 0))
    plan = plan_step(result, [], [n])
    assert "lower" in [report.stage for report in plan.stages]
    assert needs_executor(plan.partitions[0])
    assert not any(op.type in ("While", "StatelessWhile") for op in plan.step.operations)
    assert {"Switch", "Merge", "Enter", "Exit", "NextIteration", "_Gate"} <= {op.type for op in plan.step.operations}
    assert run(result, {n: 5}) == (5, 30)
    assert seen == [0, 1, 2, 3, 4]


def test_what_xla_takes_whole_is_not_lowered() -> None:
    n = tf.placeholder(tf.int32, [])
    plan = plan_step([tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])], [], [n])
    assert [type(item) for item in plan.items] == [Island]
    assert not needs_executor(plan.partitions[0])


@pytest.mark.parametrize("window", [1, 4])
def test_iterations_overlap_as_far_as_they_may(window: int) -> None:
    """As many functions as the window is wide meet; none of the next window's has begun then."""
    barrier = threading.Barrier(window, timeout=60)
    begun: list[int] = []
    lock = threading.Lock()

    def meet(i: Any) -> Any:
        with lock:
            begun.append(int(i))
            assert len(begun) <= int(i) // window * window + window
        barrier.wait()
        return i

    def body(i: Any, total: Any) -> Any:
        met = tf.py_func(meet, [i], tf.int32, stateful=False)
        met.set_shape([])
        return i + 1, total + met

    result = tf.while_loop(lambda i, _: i < 8, body, (0, 0), parallel_iterations=window)
    assert run(result) == (8, 28)


def test_iterations_with_effects_do_not_overlap() -> None:
    running = threading.Lock()

    def alone(i: Any) -> Any:
        assert running.acquire(blocking=False)
        running.release()
        return i

    def body(i: Any, total: Any) -> Any:
        seen = tf.py_func(alone, [i], tf.int32)
        seen.set_shape([])
        return i + 1, total + seen

    assert run(tf.while_loop(lambda i, _: i < 8, body, (0, 0), parallel_iterations=8)) == (8, 28)


def test_gradients_record_what_a_lowered_loop_computes() -> None:
    """Through the lists that `_RecordStart`, `_RecordAdd` and `_RecordEnd` make."""
    x = tf.placeholder(tf.float32, [3])

    def body(i: Any, v: Any) -> Any:
        told = tf.py_func(lambda u: u, [raw.Identity(i)], tf.int32)
        with tf.control_dependencies([told]):
            return i + 1, tf.sin(v) * tf.cast(i + 1, tf.float32)

    result = tf.while_loop(lambda i, _: i < 4, body, (0, x))[1]
    gradient = tf.gradients(result, x)[0]
    unrolled = x
    for i in range(4):
        unrolled = tf.sin(unrolled) * (i + 1.0)
    expected = tf.gradients(unrolled, x)[0]
    plan = plan_step([gradient], [], [x])
    assert {"_RecordStart", "_RecordAdd", "_RecordEnd"} <= {op.type for op in plan.step.operations}
    # the last one is small beside the first, 19: what a cosine near its zero loses on a GPU is more than its share
    np.testing.assert_allclose(*run([gradient, expected], {x: [0.1, 0.5, -2.0]}), rtol=1e-5, atol=2e-6)


def test_a_variable_keeps_its_order_with_a_lowered_loop() -> None:
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    with tf.Session() as session:
        session.run(v.initializer)
        before = v.read_value()

        def body(i: Any) -> Any:
            told = tf.py_func(lambda u: u, [i], tf.int32)
            with tf.control_dependencies([v.assign_add(v.read_value()), told]):
                return i + 1

        count = tf.while_loop(lambda i: i < 5, body, [0])
        with get_default_graph().control_dependencies([]):
            after = v.read_value()
            written = v.assign(after + 1.0)
        for start in (1.0, 33.0):
            assert session.run([before, count, after, written])[:3] == [start, 5, start * 32]


def test_the_operations_of_a_lowered_step_can_be_shown() -> None:
    n = tf.placeholder(tf.int32, [])
    result = tf.while_loop(lambda i: i < n, lambda i: tf.cond(i > 2, lambda: i * 2, lambda: i + 1), [0])
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    with lowering_everything(), tf.Session() as session:
        assert session.run(result, {n: 7}, options, metadata) == 12
    names = {node.op for graph in metadata.partition_graphs for node in graph.node}
    assert {"Switch", "Merge", "Enter"} <= names
    assert len([s for d in metadata.step_stats.dev_stats for s in d.node_stats]) > 7


# ---------------------------------------------------------------------- loops of a few numbers
def test_a_lowered_loop_of_numbers_calculates_in_numpy_and_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    calculating: dict[str, bool] = {}
    known = ItemWork.arithmetic

    def asked(work: ItemWork) -> Any:
        found = known(work)
        calculating[work.op.name] = found is not None
        return found

    monkeypatch.setattr(ItemWork, "arithmetic", asked)
    n = tf.placeholder(tf.int32, [])
    # the first iteration divides by zero, the second infinity by what is not a number; warnings are errors in tests
    results = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x / (x - x)), [0, tf.constant(1.0)])
    with lowering_everything(), tf.Session() as session:
        for count, expected in enumerate([1.0, np.inf, np.nan]):
            np.testing.assert_equal(session.run(results, {n: count}), [count, expected])
    assert len(calculating) == 4
    assert all(calculating.values())


def test_what_a_loop_of_numbers_cannot_take_names_the_operation() -> None:
    n, table = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [3])
    total = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x + tf.gather(table, i, name="taken")), [0, 0.0])[1]
    with lowering_everything(), tf.Session() as session:
        assert session.run(total, {n: 3, table: [1, 2, 3]}) == 6
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices = 3 is not in \[0, 3\)") as caught:
            session.run(total, {n: 4, table: [1, 2, 3]})
        assert caught.value.op.name.endswith("/taken")


def test_many_numbers_are_left_to_a_program() -> None:
    n, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [1000])
    total = tf.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + tf.reduce_sum(x)), [0, 0.0])[1]
    with lowering_everything():
        plan = plan_step([total], [], [n, x])
    compiled = {op.type for item in plan.items if isinstance(item, Island) for op in item.operations}
    assert "Sum" in compiled
