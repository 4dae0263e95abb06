"""What runs graphs asks operation types for their properties, so that types of any name may have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.registry import all_op_defs
from anabranch.core.roles import Role
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import partial_vector
from anabranch.graph.loop_bodies import behind_identities
from anabranch.ops import raw, shape_rules
from anabranch.passes.cse import merge_common_subexpressions
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.pipeline import lowering_everything, plan_step
from anabranch.placement.cost_model import flops
from anabranch.runtime.executor_graph import Kind
from anabranch.runtime.item_graph import kind_of
from anabranch.xla.islands import HostCall, Island


@pytest.fixture(autouse=True)
def own_types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("anabranch.core.registry._op_defs", all_op_defs())
    with tf.Graph().as_default():
        yield


def passing(name: str = "MyIdentity", **flags: Any) -> OpFunction:
    op = define_op(name, "input: T -> output: T", "T: any", passes_on=True, knows_objects=True, **flags)
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(input: Any, *, xp: Any) -> Any:
        return input

    return op


def like(name: str, original: str, **flags: Any) -> OpFunction:
    """A type of another name with the signature, the rules and the role of one of ours."""
    old: Any = all_op_defs()[original]
    op = define_op(name, "", role=old.role, stateful=old.stateful, repeats_bodies=old.repeats_bodies, **flags)
    op.inputs, op.outputs, op.attrs, op.inferred = old.inputs, old.outputs, old.attrs, old.inferred
    op.shape_rule, op.compiled_rule, op.host_rule = old.shape_rule, old.compiled_rule, old.host_rule
    op.calls_functions = old.calls_functions
    return op


# ---------------------------------------------------------------------- passing on
def test_a_type_of_ones_own_is_seen_through_where_it_passes_its_input_on() -> None:
    op = passing()
    op.gradient(lambda _, grad: grad)
    x = tf.placeholder(tf.float32, [None, 3])
    assert behind_identities(op(op(x))) is x
    assert partial_vector(op(tf.shape(x))) == [None, 3]


@pytest.mark.parametrize("how", ["not differentiable", "with a gradient of another name", "after something"])
def test_what_changes_gradients_or_waits_is_no_copy(how: str) -> None:
    op = passing()
    x = tf.placeholder(tf.float32, [])
    if how == "not differentiable":
        op.not_differentiable()
        y = op(x)
    else:
        op.gradient(lambda _, grad: grad)
        named = {"MyIdentity": "Another"} if how == "with a gradient of another name" else {}
        waited = [] if named else [tf.no_op()]
        with tf.get_default_graph().gradient_override_map(named), tf.control_dependencies(waited):
            y = op(x)
    assert behind_identities(y) is y


def test_the_gradient_of_a_loop_heeds_an_override_of_what_its_body_passes_on() -> None:
    x = tf.placeholder(tf.float32, [])

    @tf.RegisterGradient("ThreeTimes")
    def _(op: Any, grad: Any) -> Any:
        return 3 * grad

    def body(i: Any, value: Any) -> Any:
        with tf.get_default_graph().gradient_override_map({"Identity": "ThreeTimes"}):
            return i + 1, tf.identity(value)

    _, result = tf.while_loop(lambda i, _: i < 2, body, [0, x])
    try:
        with tf.Session() as session:
            assert session.run(tf.gradients(result, x)[0], {x: 1.0}) == 9.0
    finally:
        _forget_gradient("ThreeTimes")


def _forget_gradient(name: str) -> None:
    from anabranch.core import registry

    del registry._named_gradients[name]


def test_between_primitives_it_costs_no_call() -> None:
    op = passing()
    x, condition = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.bool, [])
    false, true = raw.Switch(x, condition)
    y, _ = raw.Merge([op(false), tf.tanh(true)])
    plan = plan_step([y], [], [x, condition])
    (call,) = [item for item in plan.items if isinstance(item, HostCall) and item.operation.type == "MyIdentity"]
    assert kind_of(call) is Kind.PASS
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0], condition: False}), [1.0, 2.0])


def test_one_with_several_outputs_between_primitives_keeps_them_apart() -> None:
    op = define_op("MyIdentities", "input: T -> output: T", "T: list(any) >= 1", passes_on=True)
    op.shape(lambda input: input)

    @op.kernel
    def _(input: Any, *, xp: Any) -> Any:
        return input

    x, condition = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    false, true = raw.Switch(x, condition)
    first, second = op([false, tf.constant(7.0)])
    y, _ = raw.Merge([first + second, true])
    with tf.Session() as session:
        assert session.run(y, {x: 1.0, condition: False}) == 8.0
        assert session.run(y, {x: 1.0, condition: True}) == 1.0


# ---------------------------------------------------------------------- roles
@pytest.mark.parametrize("lowered", [False, True])
def test_a_loop_of_another_name_runs_compiled_and_lowered(lowered: bool) -> None:
    like("MyLoop", "While")
    x = tf.placeholder(tf.float32, [])
    loop = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * x), [0, tf.constant(1.0)])
    graph = tf.get_default_graph()
    (op,) = [op for op in graph.get_operations() if op.op_def.role is Role.LOOP]
    attrs = {key: value for key, value in op.attrs.items() if not key.startswith("_")}
    mine = graph.create_op(all_op_defs()["MyLoop"], list(op.inputs), attrs).outputs
    fetch = mine[behind_identities(loop[1]).value_index]
    with tf.Session() as session:
        if not lowered:
            assert session.run(fetch, {x: 2.0}) == 8.0
            return
        with lowering_everything():
            plan = plan_step([fetch], [], [x])
            assert not any(op.op_def.is_functional for op in plan.step.operations)
            assert session.run(fetch, {x: 2.0}) == 8.0


@pytest.mark.parametrize("name", ["Switch", "Merge"])
def test_a_primitive_of_another_name_is_run_by_the_executor(name: str) -> None:
    types = {"Switch": raw.Switch, "Merge": raw.Merge, name: like(f"My{name}", name)}
    x, condition = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    false, true = types["Switch"](x, condition)
    y, _ = types["Merge"]([tf.tanh(false), 2 * true])
    with tf.Session() as session:
        assert session.run(y, {x: 3.0, condition: True}) == 6.0


def test_a_placeholder_of_another_name_is_missed_before_anything_has_happened() -> None:
    mine = like("MyPlaceholder", "Placeholder")
    counter = tf.get_variable("counter", initializer=0)
    value = mine(dtype="float32", shape=[])
    with tf.control_dependencies([tf.assign_add(counter, 1)]):
        result = tf.py_func(lambda v: v, [value], tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value"):
            session.run(result)
        assert session.run(counter) == 0
        assert session.run(result, {value: 2.0}) == 2.0


# ---------------------------------------------------------------------- other properties
def test_an_operation_says_what_it_costs() -> None:
    op = define_op("MyProduct", "a: float32, b: float32 -> c: float32")
    op.shape(shape_rules.same_as_first)
    op.flops(lambda inputs, outputs, attrs: 5 * (inputs[0] or (0,))[0])
    x = tf.placeholder(tf.float32, [None])
    step = prune([op(x, x), tf.tanh(x)], [], [x])
    assert [flops(node) for node in step.operations] == [160, 32]


def test_an_operation_tells_the_elements_of_a_shape_that_it_makes() -> None:
    op = define_op("MyReversed", "shape: int32 -> reversed: int32")
    op.shape(shape_rules.same_as_first)

    @op.partial_value
    def _(tensor: Any, depth: int) -> list[int | None] | None:
        found = partial_vector(tensor.op.inputs[0], depth)
        return None if found is None else found[::-1]

    assert partial_vector(op(tf.shape(tf.placeholder(tf.float32, [None, 3])))) == [3, None]


@pytest.mark.parametrize(("unnoticed", "kept"), [(True, False), (False, True)])
def test_what_nobody_notices_is_not_kept_for_its_own_sake(unnoticed: bool, kept: bool) -> None:
    op = define_op("MyHandle", "-> handle: float32", stateful=True, unnoticed=unnoticed)
    op.shape(lambda: tf.TensorShape([]))
    op.host_kernel(lambda: np.float32(1))
    condition = tf.placeholder(tf.bool, [])

    result, _ = tf.cond(condition, lambda: (tf.constant(1.0), op()), lambda: (tf.constant(2.0), tf.constant(3.0)))
    with lowering_everything():
        plan = plan_step([result], [], [condition])
    assert any(node.type == "MyHandle" for node in plan.step.operations) is kept


def test_reads_of_one_variable_are_merged_whatever_reads_it() -> None:
    variable = tf.get_variable("variable", initializer=tf.ones([4, 2]), use_resource=True)
    reads = [raw.ResourceGather(variable.handle, [number], dtype="float32") for number in (0, 0, 1)]
    with tf.control_dependencies([tf.assign(variable, tf.zeros([4, 2]))]):
        late = raw.ResourceGather(variable.handle, [0], dtype="float32")
    step = merge_common_subexpressions(fold(prune([*reads, late], [], [])))
    assert len({t.op for t in step.fetches}) == 3
    assert step.fetches[0].op is step.fetches[1].op


def test_what_ignores_values_has_its_input_recorded_without_them() -> None:
    mine = define_op("MyZeros", "x: T -> y: T", "T: floating", ignores_values=True)
    mine.shape(shape_rules.same_as_first)

    @mine.kernel
    def _(x: Any, *, xp: Any) -> Any:
        return xp.zeros(np.shape(x), x.dtype)

    odd = define_op("MyOdd", "x: T -> y: T", "T: floating")
    odd.shape(shape_rules.same_as_first)
    odd.kernel(lambda x: x + 1)
    odd.gradient(lambda op, grad: grad + mine(op.inputs[0]))
    x = tf.placeholder(tf.float32, [None])
    _, result = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, odd(v)), [0, x])
    step = prune(tf.gradients(result, x), [], [x])
    loops = [op for op in step.operations if op.op_def.role is Role.LOOP]
    assert [op.attrs["only_shapes"] for op in loops if op.attrs.get("recorded")] == [[True]]


def test_islands_still_hold_what_passes_on_outside_of_control_flow() -> None:
    op = passing()
    x = tf.placeholder(tf.float32, [2])
    plan = plan_step([op(tf.tanh(x)) + 1], [], [x])
    assert [type(item) for item in plan.items] == [Island]
