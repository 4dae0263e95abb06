"""Variables: their nodes and names, reading and updating, initialization, files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.frontend import operators as _  # noqa: F401 - gives tensors their operators
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.variables import functions as tf
from anabranch.frontend.variables.partitioned import fixed_size_partitioner
from anabranch.frontend.variables.policy import (
    VariableAggregation,
    VariableSynchronization,
    variable_creator_scope,
)
from anabranch.frontend.variables.scope import get_variable
from anabranch.frontend.variables.variables import SaveSliceInfo, Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def initialized() -> Session:
    session = Session()
    session.run(tf.global_variables_initializer())
    return session


def slices(values: Any, indices: Any) -> IndexedSlices:
    return IndexedSlices(convert_to_tensor(values), convert_to_tensor(indices))


# ---------------------------------------------------------------------- nodes
def test_nodes_have_the_usual_names() -> None:
    v = Variable([1.0, 2.0], name="w")
    assert v.name == "w:0"
    assert v.op.name == "w"
    assert v.op.type == "VarHandleOp"
    assert v.op.get_attr("shared_name") == b"w"
    assert [op.name for op in get_default_graph().get_operations()] == [
        "w/initial_value",
        "w",
        "w/IsInitialized/VarIsInitializedOp",
        "w/Assign",
        "w/Read/ReadVariableOp",
    ]
    assert v.initializer.name == "w/Assign"
    assert v.initial_value.name == "w/initial_value:0"


def test_names_are_made_unique() -> None:
    names = [Variable(0.0, name="w").name, Variable(0.0, name="w").name, Variable(0.0).name, Variable(0.0).name]
    assert names == ["w:0", "w_1:0", "Variable:0", "Variable_1:0"]


def test_a_name_scope_prefixes_the_name() -> None:
    with get_default_graph().name_scope("tower"):
        assert Variable(0.0, name="w").name == "tower/w:0"


def test_callable_initial_value_gets_a_scope() -> None:
    v = Variable(lambda: [1, 2], name="w", dtype=dtypes.float64)
    assert v.initial_value.name == "w/Initializer/initial_value:0"
    assert v.dtype is dtypes.float64


def test_nodes_of_a_variable_are_colocated_and_nothing_else() -> None:
    v = Variable([1.0], name="w")
    assert v.op.get_attr("_class") == [b"loc:@w"]
    assert v.initial_value.op.get_attr("_class") == [b"loc:@w"]
    assert "_class" not in v.initializer.attrs
    other = Variable([1.0], name="u")
    with get_default_graph().colocate_with(other.op):
        inside = Variable([1.0], name="inside")
        read = v.value()
    assert inside.op.get_attr("_class") == [b"loc:@u"]  # the name of its group
    assert "_class" not in read.op.attrs


def test_device_of_the_handle_is_that_of_its_reads() -> None:
    with get_default_graph().device("/cpu:1"):
        v = Variable([1.0])
    assert v.device == "/device:CPU:1"
    with get_default_graph().device("/cpu:0"):
        assert v.value().op.device == "/device:CPU:1"


def test_properties() -> None:
    v = Variable(np.zeros((2, 3), np.float32), trainable=False, constraint=lambda x: x)
    assert v.shape == TensorShape([2, 3])
    assert v.get_shape().as_list() == [2, 3]
    assert v.dtype is dtypes.float32
    assert v.graph is get_default_graph()
    assert v.trainable is False
    assert v.constraint is not None
    assert repr(v) == "<tf.Variable 'Variable:0' shape=(2, 3) dtype=float32>"


def test_identity_decides_equality_and_hash() -> None:
    v, w = Variable(1.0), Variable(1.0)
    assert v == v
    assert v != w
    assert {v: 1, w: 2}[w] == 2


def test_collections() -> None:
    v = Variable(0.0)
    fixed = Variable(0.0, trainable=False)
    local = Variable(0.0, collections=[GraphKeys.LOCAL_VARIABLES], trainable=False)
    assert tf.global_variables() == tf.all_variables() == [v, fixed]
    assert tf.trainable_variables() == [v]
    assert tf.local_variables() == [local]
    assert tf.trainable_variables("Variable_") == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "initial_value must be specified"),
        ({"initial_value": 1.0, "constraint": 3}, ValueError, "constraint"),
        ({"initial_value": 1.0, "collections": "variables"}, ValueError, "collections"),
        ({"initial_value": [1.0], "shape": [2]}, ValueError, r"\(1,\).*\(2,\)"),
        ({"initial_value": [1.0], "expected_shape": [2]}, ValueError, "expected"),
        ({"initial_value": "text", "dtype": "float32"}, TypeError, "float32"),
        ({"initial_value": 1.0, "synchronization": 1}, ValueError, "synchronization"),
        ({"initial_value": 1.0, "aggregation": "sum"}, ValueError, "aggregation"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Variable(**arguments)


def test_initial_value_of_unknown_shape() -> None:
    x = raw.Placeholder(dtype="float32", shape=TensorShape([None, 2]))
    with pytest.raises(ValueError, match="validate_shape=False"):
        Variable(x)
    v = Variable(x, validate_shape=False)
    assert v.shape.ndims is None
    with Session() as session:
        session.run(v.initializer, {x: np.ones((3, 2))})
        assert session.run(v).shape == (3, 2)
        assert session.run(v.assign([1.0])).shape == (1,)
    asks = Variable(x, use_resource=True)  # to a resource of TensorFlow `validate_shape` is nothing
    assert asks.shape.as_list() == [None, 2]
    with Session() as session:
        session.run(asks.initializer, {x: np.ones((4, 2))})
        assert session.run(asks).shape == (4, 2)
    free = Variable([1.0, 2.0], shape=TensorShape([None]))
    with Session() as session:
        session.run(free.initializer)
        assert session.run(free.assign([1.0, 2.0, 3.0])).tolist() == [1, 2, 3]


# ---------------------------------------------------------------------- reading
def test_reading_before_initialization_fails() -> None:
    v = Variable(1.0, name="unset")
    with Session() as session, pytest.raises(errors.FailedPreconditionError, match="unset"):
        session.run(v)


def test_variables_stand_for_tensors() -> None:
    v = Variable([3.0, 4.0])
    with initialized() as session:
        assert session.run(v).tolist() == [3, 4]
        assert session.run(raw.Square(v)).tolist() == [9, 16]
        assert session.run(convert_to_tensor([v, v])).tolist() == [[3, 4], [3, 4]]
        assert session.run(v[1]) == 4
        assert v.eval(session).tolist() == [3, 4]
        assert session.run(v.read_value()).tolist() == [3, 4]
    with pytest.raises(ValueError, match="use tf.cast"):
        convert_to_tensor(v, dtypes.int32)
    with pytest.raises(TypeError, match="not iterable"):
        iter(v)


def test_a_read_sees_the_control_dependencies_around_it() -> None:
    v = Variable(1.0)
    with get_default_graph().control_dependencies([v.assign(5.0)]):
        after = raw.Identity(v)
    with initialized() as session:
        assert session.run(after) == 5


def test_caching_device_gives_one_copy() -> None:
    v = Variable(1.0, caching_device="/cpu:0")
    assert v.value() is v.value()
    assert v.value().op.type == "Identity"
    assert v.read_value() is not v.value()


def test_reading_inside_a_branch() -> None:
    v = Variable(2.0)
    choose = raw.Placeholder(dtype="bool", shape=TensorShape([]))
    result = cond(choose, lambda: raw.Mul(v, 10.0), v.read_value)
    with initialized() as session:
        assert session.run(result, {choose: True}) == 20
        assert session.run(result, {choose: False}) == 2


def test_variables_made_in_a_branch_live_outside() -> None:
    choose = raw.Placeholder(dtype="bool", shape=TensorShape([]))
    made: list[Any] = []

    def branch() -> Any:
        made.append(Variable(lambda: 3.0, name="inner"))
        return made[0].value()

    result = cond(choose, branch, lambda: convert_to_tensor(0.0))
    assert made[0].graph is get_default_graph()
    assert tf.global_variables() == made
    with initialized() as session:
        assert session.run(result, {choose: True}) == 3


def test_initial_value_made_in_a_branch_is_refused() -> None:
    choose = raw.Placeholder(dtype="bool", shape=TensorShape([]))
    with pytest.raises(ValueError, match="function that returns the initial value"):
        cond(choose, lambda: Variable(convert_to_tensor(3.0)).value(), lambda: convert_to_tensor(0.0))


def test_operators() -> None:
    v = Variable([4.0, 9.0])
    n = Variable([1, 2])
    results = [
        v + 1.0,
        1.0 + v,
        v - v,
        v * 2.0,
        v / 2.0,
        v**2.0,
        -v,
        abs(-v),
        v > 5.0,
        n // 2,
        n % 2,
        v[1:],
        np.float32(2) * v,
    ]
    with initialized() as session:
        found = [x.tolist() for x in session.run(results)]
    assert found == [
        *([5, 10], [5, 10], [0, 0], [8, 18], [2, 4.5], [16, 81], [-4, -9], [4, 9], [False, True]),
        *([0, 1], [1, 0], [9], [8, 18]),
    ]


# ---------------------------------------------------------------------- updating
def test_assignments_return_the_new_value() -> None:
    v = Variable([1.0, 2.0])
    with initialized() as session:
        assert session.run(v.assign([3.0, 4.0])).tolist() == [3, 4]
        assert session.run(v.assign_add([1.0, 1.0])).tolist() == [4, 5]
        assert session.run(v.assign_sub([0.5, 0.5], name="minus")).tolist() == [3.5, 4.5]
        assert session.run(tf.assign(v, [0.0, 0.0])).tolist() == [0, 0]
        assert session.run(tf.assign_add(v, [1.0, 2.0])).tolist() == [1, 2]
        assert session.run(tf.assign_sub(v, [1.0, 2.0])).tolist() == [0, 0]
    assert get_default_graph().get_operation_by_name("minus").type == "AssignSubVariableOp"


def test_what_is_assigned_to_an_assignment_comes_after_it() -> None:
    v = Variable([1.0, 2.0])
    running = tf.assign_add(tf.assign(v, v * 0.5), [10.0, 10.0])
    rows = tf.scatter_update(tf.assign_sub(v, [1.0, 1.0]), [0], [7.0])
    with initialized() as session:
        assert session.run(running).tolist() == [10.5, 11]
        session.run(rows.op)
        assert session.run(v).tolist() == [7, 10]


def test_an_assignments_operation_is_a_control_input() -> None:
    v = Variable(1.0)
    update = v.assign(7.0)
    with get_default_graph().control_dependencies([update.op]):
        done = raw.NoOp(name="done")
    with initialized() as session:
        session.run(done)
        assert session.run(v) == 7


def test_assignment_without_reading() -> None:
    op = Variable(1.0).assign(2.0, read_value=False)
    assert op.type == "AssignVariableOp"


def test_assigning_another_shape_or_dtype_fails() -> None:
    v = Variable([1.0, 2.0], name="w")
    with pytest.raises(ValueError, match=r"w:0 of shape \(2,\).*\(3,\)"):
        v.assign([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="dtype"):
        v.assign(convert_to_tensor([1, 2]))
    with pytest.raises(TypeError, match="variable is needed"):
        tf.assign(convert_to_tensor(1.0), 2.0)
    with pytest.raises(TypeError, match="variable is needed"):
        tf.assign(v.read_value(), 2.0)


def test_assigning_a_part() -> None:
    v = Variable([1.0, 2.0, 3.0])
    with initialized() as session:
        session.run(v[1:].assign([8.0, 9.0]))
        assert session.run(v).tolist() == [1, 8, 9]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scatter_add", [[3, 3], [4, 4], [3, 3]]),
        ("scatter_sub", [[-1, -1], [4, 4], [-3, -3]]),
        ("scatter_mul", [[2, 2], [4, 4], [0, 0]]),
        ("scatter_div", [[0.5, 0.5], [4, 4], [0, 0]]),
        ("scatter_min", [[1, 1], [4, 4], [0, 0]]),
        ("scatter_max", [[2, 2], [4, 4], [3, 3]]),
        ("scatter_update", [[2, 2], [4, 4], [3, 3]]),
    ],
)
def test_scatters(name: str, expected: list[list[float]]) -> None:
    start = [[1.0, 1.0], [4.0, 4.0], [0.0, 0.0]]
    updates = [[2.0, 2.0], [3.0, 3.0]]
    v = Variable(start)
    function: Callable[..., Any] = getattr(tf, name)
    by_function, by_method = function(v, [0, 2], updates), getattr(v, name)(slices(updates, [0, 2]))
    with initialized() as session:
        assert session.run(by_function).tolist() == expected
        session.run(v.initializer)
        assert session.run(by_method).tolist() == expected


def test_rows_that_stand_twice_are_added_twice() -> None:
    v = Variable([0.0, 0.0])
    with initialized() as session:
        assert session.run(tf.scatter_add(v, [1, 1], [1.0, 2.0])).tolist() == [0, 3]


def test_a_scatter_outside_the_variable_fails_and_changes_nothing() -> None:
    v = Variable([0.0, 0.0])
    index = raw.Placeholder(dtype="int32", shape=TensorShape([1]))
    update = tf.scatter_add(v, index, [1.0])
    with initialized() as session:
        with pytest.raises(errors.InvalidArgumentError, match="7"):
            session.run(update, {index: [7]})
        assert session.run(v).tolist() == [0, 0]


def test_scatters_want_indexed_slices() -> None:
    with pytest.raises(TypeError, match="IndexedSlices"):
        Variable([1.0]).scatter_add([1.0])  # type: ignore[arg-type]


def test_scatter_nd_and_partial_reads() -> None:
    v = Variable(np.zeros((2, 3), np.float32))
    positions = [[0, 1], [1, 2]]
    with initialized() as session:
        session.run(v.scatter_nd_update(positions, [1.0, 2.0]))
        assert session.run(v.scatter_nd_add(positions, [1.0, 1.0])).tolist() == [[0, 2, 0], [0, 0, 3]]
        assert session.run(tf.scatter_nd_sub(v, positions, [2.0, 2.0])).tolist() == [[0, 0, 0], [0, 0, 1]]
        assert session.run(v.scatter_nd_max(positions, [5.0, 0.0])).tolist() == [[0, 5, 0], [0, 0, 1]]
        assert session.run(v.scatter_nd_min(positions, [4.0, 0.0])).tolist() == [[0, 4, 0], [0, 0, 0]]
        assert session.run(v.gather_nd(positions)).tolist() == [4, 0]
        assert session.run(v.sparse_read([1, 0])).tolist() == [[0, 0, 0], [0, 4, 0]]


def test_batch_scatter_update() -> None:
    v = Variable(np.zeros((2, 3), np.float32))
    update = tf.batch_scatter_update(v, [[0, 1], [2, 1]], [[1.0, 2.0], [3.0, 4.0]])
    with initialized() as session:
        assert session.run(update).tolist() == [[1, 2, 0], [0, 4, 3]]


def test_count_up_to() -> None:
    v = Variable(0)
    count = tf.count_up_to(v, 2)
    with initialized() as session:
        assert [session.run(count), session.run(count)] == [0, 1]
        with pytest.raises(errors.OutOfRangeError):
            session.run(count)
        assert session.run(v) == 2


# ---------------------------------------------------------------------- initializing
def test_initializers_are_named_init() -> None:
    Variable(1.0)
    assert tf.global_variables_initializer().name == "init"
    assert tf.initialize_all_variables().name == "init_1"
    assert tf.local_variables_initializer().name == "init_2"
    assert tf.variables_initializer([], name="nothing").name == "nothing"


def test_initial_values_that_depend_on_variables() -> None:
    v = Variable(raw.RandomStandardNormal([3], dtype="float32"))
    plain, doubled = Variable(v), Variable(raw.Mul(v, 2.0))
    explicit = Variable(v.initialized_value())
    with initialized() as session:
        values = session.run([v, plain, doubled, explicit])
        np.testing.assert_array_equal(values[1], values[0])
        np.testing.assert_array_equal(values[2], values[0] * 2)
        np.testing.assert_array_equal(values[3], values[0])
        session.run(v.assign([1.0, 2.0, 3.0]))
        session.run(explicit.initializer)
        assert session.run(explicit).tolist() == [1, 2, 3]


def test_which_variables_are_initialized() -> None:
    v, w = Variable(1.0, name="v"), Variable(2.0, name="w")
    local = Variable(0.0, name="l", collections=[GraphKeys.LOCAL_VARIABLES], trainable=False)
    missing, is_v = tf.report_uninitialized_variables(), tf.is_variable_initialized(v)
    check = tf.assert_variables_initialized()
    with Session() as session:
        assert session.run(missing).tolist() == [b"v", b"w", b"l"]
        session.run(v.initializer)
        assert session.run(is_v)
        assert session.run(missing).tolist() == [b"w", b"l"]
        with pytest.raises(errors.FailedPreconditionError):
            session.run(check)
        session.run([w.initializer, local.initializer])
        assert session.run(missing).tolist() == []
        session.run(check)


def test_no_variables() -> None:
    assert tf.assert_variables_initialized() is None
    missing = tf.report_uninitialized_variables()
    with Session() as session:
        assert session.run(missing).tolist() == []


def test_load() -> None:
    v = Variable([1.0, 2.0])
    before = len(get_default_graph().get_operations())
    with Session() as session:
        v.load([3.0, 4.0], session)
        assert v.eval(session).tolist() == [3, 4]
    assert len(get_default_graph().get_operations()) == before


# ---------------------------------------------------------------------- hooks and files
def test_creator_scopes_nest() -> None:
    seen = []

    def outer(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        seen.append(("outer", kwargs["name"]))
        return next_creator(**kwargs)

    def inner(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        seen.append(("inner", kwargs["name"]))
        kwargs["name"] = "changed"
        return next_creator(**kwargs)

    with variable_creator_scope(outer), variable_creator_scope(inner):
        v = Variable(1.0, name="w")
    assert v.name == "changed:0"
    assert seen == [("inner", "w"), ("outer", "changed")]
    with Graph().as_default():
        Variable(1.0)
    assert len(seen) == 2


def test_to_and_from_message() -> None:
    v = Variable([1.0, 2.0], name="w", aggregation=VariableAggregation.MEAN)
    v._set_save_slice_info(SaveSliceInfo("whole", [4], [2], [2]))
    message = v.to_proto()
    assert message.variable_name == "w:0"
    assert message.initializer_name == "w/Assign"
    assert message.snapshot_name == "w/Read/ReadVariableOp:0"
    assert message.initial_value_name == "w/initial_value:0"
    assert message.is_resource
    again = Variable.from_proto(message)
    assert again.handle is v.handle
    assert again.initializer is v.initializer
    assert again.trainable
    assert again.aggregation is VariableAggregation.MEAN
    info = again._get_save_slice_info()
    assert info is not None
    assert info.spec == "4 2,2"
    with Session() as session:
        session.run(again.initializer)
        assert session.run(again).tolist() == [1, 2]


def test_message_of_a_scope() -> None:
    with get_default_graph().name_scope("tower"):
        v = Variable(1.0, name="w")
    message = v.to_proto("tower")
    assert message.variable_name == "w:0"
    assert v.to_proto("other") is None
    assert Variable.from_proto(message, import_scope="tower").handle is v.handle


def test_rows_of_words_are_replaced() -> None:
    v = Variable(np.array([["a"], ["b"], ["c"]]), dtype="string")
    rows = raw.ResourceScatterUpdate(v.handle, [2, 0], np.array([["x"], ["y"]]))
    one = raw.ResourceScatterUpdate(v.handle, 1, "z")
    with Session() as session:
        session.run(v.initializer)
        session.run(rows)
        session.run(one)
        assert session.run(v).tolist() == [[b"y"], [b"z"], [b"x"]]
        with pytest.raises(errors.InvalidArgumentError, match="3"):
            session.run(raw.ResourceScatterUpdate(v.handle, 3, "z"))


def test_a_variable_takes_numbers_while_another_graph_is_open() -> None:
    v = Variable(1.0)
    with Graph().as_default() as other:
        update = v.assign_add(2.0)
        assert other.get_operations() == []
    with Session(graph=v.graph) as session:
        session.run(v.initializer)
        assert session.run(update) == 3


def test_to_wait_for_a_value_after_an_update_is_to_wait_for_the_update() -> None:
    v = Variable(1.0)
    both = group(v.assign_add(1.0), v.assign(3.0))
    with get_default_graph().control_dependencies([v.assign_sub(1.0)]):
        last = raw.NoOp()
    assert [op.type for op in both.control_inputs] == ["AssignAddVariableOp", "AssignVariableOp"]
    assert [op.type for op in last.control_inputs] == ["AssignSubVariableOp"]


def test_variables_that_are_brought_together_when_they_are_read() -> None:
    on_read = VariableSynchronization.ON_READ
    assert not Variable(1.0, synchronization=on_read).trainable
    assert Variable(1.0, synchronization=on_read, trainable=True).trainable
    with pytest.raises(ValueError, match="trainable=False"):
        get_variable("v", [], synchronization=on_read, trainable=True)


def test_the_copy_at_a_caching_device_stands_outside_of_open_scopes() -> None:
    graph = get_default_graph()
    with graph.device("/job:server/task:1"):
        v = Variable(2.0, caching_device="/job:localhost")
    with graph.colocate_with(v.op):
        w = Variable(2.0, caching_device="/job:localhost")
    for variable in (v, w):
        assert variable.value().device == "/job:localhost"
        assert "_class" not in variable.value().op.attrs
    message = w.to_proto()
    assert message is not None
    assert message.snapshot_name == w.value().name


def test_the_initializer_lies_where_the_variable_does() -> None:
    graph = get_default_graph()
    with graph.device(lambda op: "/cpu:0" if op.type == "VarHandleOp" else "/job:worker"):
        v = Variable([1, 2])
    # what a function returns stays as it was written
    assert v.device == "/cpu:0"
    assert v.initializer.device == "/device:CPU:0"


def test_a_variable_is_not_copied() -> None:
    v = Variable(1.0)
    with pytest.raises(NotImplementedError, match="cannot be copied"):
        copy.deepcopy(v)


def test_a_variable_without_a_value_is_named_as_a_resource() -> None:
    v = Variable(1.0, name="missing")
    with Session() as session, pytest.raises(errors.FailedPreconditionError, match="Resource localhost/missing/"):
        session.run(v.read_value())


def test_partitioned_variables_are_read_without_regard_to_control_dependencies() -> None:
    v = get_variable("parts", [4], partitioner=fixed_size_partitioner(2))
    graph = get_default_graph()
    with graph.control_dependencies([raw.NoOp()]):
        first = len(graph.get_operations())
        v.as_tensor()
        assert not any(op.control_inputs for op in graph.get_operations()[first:])
        v._concat()
        assert any(op.control_inputs for op in graph.get_operations()[first:])


def test_the_shape_of_a_handle_is_known_behind_identities() -> None:
    v = Variable([1.0, 2.0])
    passed = raw.IdentityN([raw.Const(value=np.zeros(3, np.float32), dtype="float32"), v.handle])[1]
    assert raw.ReadVariableOp(passed, dtype="float32").shape == [2]
