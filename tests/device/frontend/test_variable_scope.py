"""Variable scopes: names, sharing, defaults, custom getters, partitions, templates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.contrib import regularizers
from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.frontend.variables import functions, initializers
from anabranch.frontend.variables.older_functions import create_partitioned_variables, variable_op_scope
from anabranch.frontend.variables.partitioned import (
    PartitionedVariable,
    PartitionInfo,
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from anabranch.frontend.variables.policy import VariableAggregation, VariableSynchronization
from anabranch.frontend.variables.scope import (
    get_local_variable,
    get_variable,
    get_variable_scope,
    no_regularizer,
    variable_scope,
)
from anabranch.frontend.variables.store import AUTO_REUSE
from anabranch.frontend.variables.template import make_template
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def op_name() -> str:
    name: str = raw.NoOp().name
    return name


def values_of(*variables: Any) -> list[Any]:
    with Session() as session:
        session.run(functions.global_variables_initializer())
        return session.run(list(variables))


# ---------------------------------------------------------------------- names
def test_variable_scopes_name_variables_and_operations() -> None:
    with variable_scope("a"):
        with variable_scope("b"):
            v = get_variable("w", [1])
            assert op_name() == "a/b/NoOp"
        assert get_variable("w", [1]).name == "a/w:0"
    assert v.name == "a/b/w:0"
    assert v.op.name == "a/b/w"


def test_name_scopes_do_not_name_variables() -> None:
    with get_default_graph().name_scope("n"), variable_scope("a"):
        assert get_variable("w", [1]).name == "a/w:0"
        assert op_name() == "n/a/NoOp"
        assert Variable(0.0, name="u").name == "n/a/u:0"


def test_a_scope_opened_twice_gets_a_new_name_scope_only() -> None:
    with variable_scope("a"):
        assert op_name() == "a/NoOp"
    with variable_scope("a", reuse=AUTO_REUSE):
        assert op_name() == "a_1/NoOp"
        assert get_variable("w", [1]).name == "a/w:0"


def test_a_scope_object_opens_the_scope_again() -> None:
    with variable_scope("outer"), variable_scope("a") as scope:
        v = get_variable("w", [1])
    assert scope.name == "outer/a"
    assert scope.original_name_scope == "outer/a/"
    with variable_scope("elsewhere"), variable_scope(scope, reuse=True) as again:
        assert get_variable("w", [1]) is v
        assert again.name == "outer/a"
        assert again.original_name_scope == "outer/a/"
        assert op_name() == "elsewhere/a/NoOp"


def test_the_name_scope_can_be_left_alone() -> None:
    with variable_scope("a"), variable_scope("b", auxiliary_name_scope=False):
        assert op_name() == "a/NoOp"
        assert get_variable("w", [1]).name == "a/b/w:0"
    with variable_scope("c", auxiliary_name_scope=False):
        assert op_name() == "NoOp"


def test_default_names_are_made_unique() -> None:
    names = []
    with variable_scope("a"):
        for _ in range(3):
            with variable_scope(None, "layer") as scope:
                names.append(scope.name)
                names.append(get_variable("w", [1]).name)
    assert names == ["a/layer", "a/layer/w:0", "a/layer_1", "a/layer_1/w:0", "a/layer_2", "a/layer_2/w:0"]


def test_default_names_count_anew_inside_a_scope_opened_again() -> None:
    def model() -> list[str]:
        found = []
        for _ in range(2):
            with variable_scope(None, "layer"):
                found.append(get_variable("w", [1]).name)
        return found

    with variable_scope("model"):
        first = model()
    with variable_scope("model", reuse=True):
        assert model() == first
    with variable_scope("model", reuse=True) as scope:
        pass
    with variable_scope(scope, reuse=True):
        assert model() == first


def test_the_root_scope() -> None:
    scope = get_variable_scope()
    assert (scope.name, scope.reuse, scope.original_name_scope) == ("", False, "")
    with variable_scope("a"), variable_scope(scope):
        assert get_variable("w", [1]).name == "w:0"
        assert op_name() == "a/NoOp"


def test_each_graph_has_its_own_scopes() -> None:
    with variable_scope("a"), Graph().as_default():
        assert get_variable("w", [1]).name == "w:0"


def test_values_decide_the_graph() -> None:
    other = Graph()
    with other.as_default():
        tensor = convert_to_tensor(1.0)
    with variable_scope("a", values=[tensor]):
        assert get_variable("w", [1]).graph is other
    with variable_op_scope([tensor], None, "default") as scope:
        assert scope.name == "default"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name_or_scope": None}, TypeError),
        ({"name_or_scope": 3}, TypeError),
        ({"name_or_scope": "a", "reuse": "yes"}, ValueError),
        ({"name_or_scope": "a", "auxiliary_name_scope": 1}, TypeError),
        ({"name_or_scope": None, "default_name": "a", "reuse": True}, ValueError),
    ],
)
def test_wrong_scopes(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error), variable_scope(**arguments):
        pass


# ---------------------------------------------------------------------- sharing
def test_reuse() -> None:
    with variable_scope("a"):
        v = get_variable("w", [1])
        with pytest.raises(ValueError, match=r"Variable a/w already exists.*test_variable_scope.py"):
            get_variable("w", [1])
    with variable_scope("a", reuse=True):
        assert get_variable("w", [1]) is v
        assert get_variable("w") is v
        with pytest.raises(ValueError, match="Variable a/u does not exist"):
            get_variable("u", [1])
        with variable_scope("b", reuse=False) as inner:
            assert inner.reuse is True
    with variable_scope("a") as scope:
        scope.reuse_variables()
        assert get_variable("w", [1]) is v


def test_auto_reuse() -> None:
    for _ in range(2):
        with variable_scope("a", reuse=AUTO_REUSE), variable_scope("b"):
            v = get_variable("w", [1])
    assert functions.global_variables() == [v]


def test_sharing_checks_shape_and_dtype() -> None:
    get_variable("w", [1, 2])
    with variable_scope("", reuse=True):
        with pytest.raises(ValueError, match=r"specified shape \(2, 1\) and found shape \(1, 2\)"):
            get_variable("w", [2, 1])
        with pytest.raises(ValueError, match="specified dtype float64 and found dtype float32"):
            get_variable("w", [1, 2], dtypes.float64)


# ---------------------------------------------------------------------- initial values
def test_default_initializers() -> None:
    weights, counts, flags = (
        get_variable("w", [100]),
        get_variable("n", [2], dtypes.int32),
        get_variable("f", [1], "bool"),
    )
    found = values_of(weights, counts, flags)
    limit = np.sqrt(3 / 100)
    assert np.all(np.abs(found[0]) <= limit)
    assert found[0].std() > limit / 3
    assert found[1].tolist() == [0, 0]
    assert found[2].tolist() == [False]
    assert values_of(get_variable("s", [1], dtypes.string))[0].tolist() == [b""]
    with pytest.raises(ValueError, match="initializer for variable c"):
        get_variable("c", [1], dtypes.complex64)


def test_kinds_of_initializers() -> None:
    made = [
        get_variable("value", initializer=[1.0, 2.0]),
        get_variable("tensor", initializer=convert_to_tensor([3.0])),
        get_variable("class", [1], initializer=initializers.Ones),
        get_variable("object", [1], initializer=initializers.Constant(5.0)),
        get_variable("function", [1], initializer=lambda shape, dtype, partition_info=None: raw.Fill(shape, 6.0)),
        get_variable("thunk", initializer=lambda: convert_to_tensor([7.0])),
    ]
    assert [v.tolist() for v in values_of(*made)] == [[1, 2], [3], [1], [5], [6], [7]]
    assert made[3].initial_value.name == "object/Initializer/Const:0"


def test_initializers_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="do not give a shape"):
        get_variable("w", [1], initializer=[1.0])
    with pytest.raises(ValueError, match="needs a fully defined shape"):
        get_variable("w", initializer=initializers.Ones())
    with pytest.raises(ValueError, match="'int32' and explicit dtype 'float32'"):
        get_variable("w", dtype=dtypes.float32, initializer=convert_to_tensor(1))


# ---------------------------------------------------------------------- defaults of a scope
def test_scope_defaults_are_inherited() -> None:
    with variable_scope("a", initializer=initializers.Constant(4.0), dtype=dtypes.float64):
        with variable_scope("b"):
            v = get_variable("w", [1])
        with variable_scope("c", initializer=initializers.Constant(5.0)) as scope:
            w = get_variable("w", [1])
    with variable_scope(scope):
        u = get_variable("u", [1])
    assert v.dtype is w.dtype is dtypes.float64
    assert [x.tolist() for x in values_of(v, w, u)] == [[4], [5], [5]]


def test_setters() -> None:
    scope = get_variable_scope()
    scope.set_initializer(initializers.Constant(2.0))
    scope.set_dtype(dtypes.float16)
    scope.set_caching_device("/cpu:0")
    v = get_variable("w", [1])
    assert v.dtype is dtypes.float16
    assert v.value().op.type == "Identity"
    scope.set_partitioner(fixed_size_partitioner(2))
    assert isinstance(get_variable("p", [4]), PartitionedVariable)


def test_regularizers() -> None:
    with variable_scope("a", regularizer=regularizers.l2_regularizer(0.5)):
        v = get_variable("w", initializer=[1.0, 2.0])
        get_variable("free", [1], regularizer=no_regularizer)
        get_variable("own", initializer=[-3.0], regularizer=regularizers.l1_regularizer(2.0))
    with variable_scope("a", reuse=True, regularizer=regularizers.l2_regularizer(0.5)):
        assert get_variable("w") is v
    losses = get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
    assert [loss.name for loss in losses] == [
        "a/w/Regularizer/l2_regularizer:0",
        "a/own/Regularizer/l1_regularizer:0",
    ]
    assert values_of(*losses) == [1.25, 6.0]


def test_collections_and_local_variables() -> None:
    v = get_variable("w", [1], trainable=False, collections=["mine"])
    local = get_local_variable("l", [1])
    assert get_default_graph().get_collection("mine") == [v]
    assert functions.global_variables() == []
    assert functions.local_variables() == [local]
    with variable_scope("a") as scope:
        inside = get_variable("w", [1])
    assert scope.global_variables() == scope.trainable_variables() == [inside]


def test_custom_getters_nest() -> None:
    calls = []

    def outer(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        calls.append(("outer", name))
        return getter(name, *args, **kwargs)

    def inner(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        calls.append(("inner", name))
        return raw.Mul(getter(name + "_raw", *args, **kwargs), 2.0)

    with variable_scope("a", custom_getter=outer), variable_scope("b", custom_getter=inner):
        doubled = get_variable("w", [1], initializer=initializers.Constant(3.0))
    assert calls == [("inner", "a/b/w"), ("outer", "a/b/w_raw")]
    assert values_of(doubled)[0].tolist() == [6]
    assert [v.name for v in functions.global_variables()] == ["a/b/w_raw:0"]
    with pytest.raises(ValueError, match="custom_getter"):
        get_variable("x", [1], custom_getter=3)  # type: ignore[arg-type]


def test_custom_getters_are_told_what_was_left_open() -> None:
    """As in TensorFlow: getters that change trainable variables only ask for it, as those of variational weights do."""
    told = []

    def getter(getter: Any, *args: Any, **kwargs: Any) -> Any:
        told.append((kwargs["trainable"], kwargs["synchronization"], kwargs["aggregation"]))
        return getter(*args, **kwargs)

    auto, none = VariableSynchronization.AUTO, VariableAggregation.NONE
    with variable_scope("a", custom_getter=getter):
        get_variable("open", [1])
        get_variable("fixed", [1], trainable=False)
        get_variable("read", [1], synchronization=VariableSynchronization.ON_READ)
    assert told == [(True, auto, none), (False, auto, none), (False, VariableSynchronization.ON_READ, none)]
    assert [v.name for v in functions.trainable_variables()] == ["a/open:0"]


def test_an_empty_regularizer_is_none() -> None:
    with variable_scope("a", regularizer=lambda value: raw.Sum(value, [0])):
        get_variable("w", [1], regularizer={})  # type: ignore[arg-type]
        assert not get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
        get_variable("x", [1])
    assert len(get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)) == 1


# ---------------------------------------------------------------------- partitions
def test_partitioned_variables() -> None:
    whole = get_variable("w", [5, 2], partitioner=fixed_size_partitioner(2), initializer=initializers.Constant(1.0))
    assert isinstance(whole, PartitionedVariable)
    assert [v.name for v in whole] == ["w/part_0:0", "w/part_1:0"]
    assert [v.shape.as_list() for v in whole] == [[3, 2], [2, 2]]
    infos = [v._get_save_slice_info().spec for v in whole]
    assert infos == ["5 2 0,3:0,2", "5 2 3,2:0,2"]
    assert whole.shape == TensorShape([5, 2])
    assert len(whole) == 2
    assigned = whole.assign(np.arange(10, dtype=np.float32).reshape(5, 2))
    with Session() as session:
        session.run(functions.global_variables_initializer())
        assert session.run(raw.Mul(whole, 2.0)).tolist() == [[2, 2]] * 5
        session.run(assigned)
        assert session.run(convert_to_tensor(whole)).ravel().tolist() == list(range(10))
        assert session.run(whole[4]).tolist() == [8, 9]


def test_partitions_of_another_shape_are_refused_with_the_place_of_the_first() -> None:
    get_variable("w", [4, 2], partitioner=fixed_size_partitioner(2))
    with (
        variable_scope(get_variable_scope(), reuse=True),
        pytest.raises(ValueError, match=r"\(6, 2\).*created at .*py"),
    ):
        get_variable("w", [6, 2], partitioner=fixed_size_partitioner(2))


def test_partitions_take_parts_of_a_value_and_the_scale_of_the_whole() -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    whole = get_variable("v", initializer=values, partitioner=fixed_size_partitioner(3))
    scaled = get_variable("g", [1000, 1], partitioner=fixed_size_partitioner(10))
    found = values_of(convert_to_tensor(whole), convert_to_tensor(scaled))
    np.testing.assert_array_equal(found[0], values)
    assert np.all(np.abs(found[1]) <= np.sqrt(6 / 1001))


def test_sharing_partitioned_variables() -> None:
    with variable_scope("a", partitioner=fixed_size_partitioner(2)):
        whole = get_variable("w", [4])
        scalar = get_variable("s", [])
        with pytest.raises(ValueError, match="already exists"):
            get_variable("w", [4])
    assert isinstance(scalar, Variable)
    with variable_scope("a", reuse=True):
        assert get_variable("w", [4]) is whole
        with pytest.raises(ValueError, match=r"specified partitions \[4\] and found partitions \[2\]"):
            get_variable("w", [4], partitioner=fixed_size_partitioner(4))
    with variable_scope("a"), pytest.raises(ValueError, match="exists in partitions"):
        get_variable("w", [4])


def test_partitioners() -> None:
    assert fixed_size_partitioner(3, axis=1)(shape=TensorShape([4, 6]), dtype=dtypes.float32) == [1, 3]
    by_size = variable_axis_size_partitioner(max_shard_bytes=64)
    assert by_size(shape=TensorShape([8, 4]), dtype=dtypes.float32) == [2, 1]
    assert by_size(shape=TensorShape([8, 64]), dtype=dtypes.float32) == [8, 1]
    limited = variable_axis_size_partitioner(max_shard_bytes=64, max_shards=3)
    assert limited(shape=TensorShape([8, 64]), dtype=dtypes.float32) == [3, 1]
    min_max = min_max_variable_partitioner(max_partitions=4, min_slice_size=16)
    assert min_max(shape=TensorShape([2, 4]), dtype=dtypes.float32) == [2, 1]
    assert min_max(shape=TensorShape([16, 4]), dtype=dtypes.float32) == [4, 1]
    with pytest.raises(ValueError, match="along axis 2"):
        fixed_size_partitioner(2, axis=2)(shape=TensorShape([4]), dtype=dtypes.float32)
    with pytest.raises(ValueError, match="rank"):
        get_variable("w", [4, 4], partitioner=lambda **_: [2])
    with pytest.raises(ValueError, match="one dimension"):
        get_variable("w", [4, 4], partitioner=lambda **_: [2, 2])


def test_partition_info() -> None:
    info = PartitionInfo([4, 2], [2, 0])
    assert info.single_offset([2, 2]) == 2
    assert info.single_slice_dim([2, 2]) == 0
    with pytest.raises(ValueError, match="exceeds"):
        info.single_slice_dim([3, 2])


def test_an_initializer_that_must_be_told_of_partitions() -> None:
    told = []

    def make(shape: Any, dtype: Any, partition_info: Any) -> Any:
        told.append(partition_info)
        return raw.Fill(shape, 6.0)

    get_variable("whole", [2], initializer=make)
    assert told == [None]
    get_variable("cut", [2], initializer=make, partitioner=lambda **_: [2])
    assert [info.var_offset for info in told[1:]] == [[0], [1]]


def test_create_partitioned_variables() -> None:
    parts = create_partitioned_variables([4, 2], [2, 1], initializers.Ones(), name="big")
    assert [v.name for v in parts] == ["big/part_0:0", "big/part_1:0"]


def test_the_dtype_of_partitioned_variables_is_that_of_a_given_value() -> None:
    value = np.arange(8).reshape(4, 2)
    parts = create_partitioned_variables([4, 2], [2, 1], value)
    assert {v.dtype.base_dtype for v in parts} == {dtypes.int64}
    np.testing.assert_array_equal(np.concatenate(values_of(*parts)), value)


# ---------------------------------------------------------------------- templates
def test_templates_share_variables() -> None:
    def scaled(x: Any, name: str) -> Any:
        return raw.Mul(x, get_variable(name, [], initializer=initializers.Constant(3.0)))

    template = make_template("scale", scaled, name="w")
    other = make_template("scale", scaled, name="w")
    results = [template(1.0), template(2.0), other(3.0)]
    assert [v.name for v in functions.global_variables()] == ["scale/w:0", "scale_1/w:0"]
    assert values_of(*results) == [3, 6, 9]
    assert [v.name for v in template.variables] == ["scale/w:0"]
    assert template.trainable_variables == template.global_variables
    assert template.name == "scale"


def test_a_template_with_its_scope_opened_early_names_its_first_operations_like_its_variables() -> None:
    def twice() -> Any:
        return raw.Mul(get_variable("v", [2]).value(), 2.0, name="twice")

    for name in ("foo", "foo_1"):
        template = make_template("foo", twice, create_scope_now_=True)
        first, second = template(), template()
        assert (template.variable_scope.name, template.variables[0].name) == (name, f"{name}/v:0")
        if name == "foo":
            assert (first.name, second.name) == ("foo/twice:0", "foo_1/twice:0")


def test_scopes_are_left_in_the_order_in_which_they_nest() -> None:
    with variable_scope("a"):
        outer = variable_scope("b")
        outer.__enter__()
        with variable_scope("c"), pytest.raises(RuntimeError, match="Improper nesting .*: 'a/b' .* 'a/b/c'"):
            outer.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        assert get_variable_scope().name == "a"


def test_a_template_may_not_make_variables_later() -> None:
    template = make_template("bad", lambda: Variable(1.0).value(), create_scope_now_=True)
    template()
    with pytest.raises(ValueError, match=r"tf.get_variable.*Variable_1|tf.get_variable"):
        template()


def test_a_template_without_a_name_has_its_scopes_name() -> None:
    template = make_template("", lambda: get_variable("x", []))
    with variable_scope("outer"):
        assert template().name == "outer//x:0"
    assert template.variable_scope_name == "outer/"


def test_the_first_call_of_a_template_reuses_nothing() -> None:
    told = []

    def getter(getter: Any, *args: Any, **kwargs: Any) -> Any:
        told.append((kwargs["reuse"], get_variable_scope().reuse))
        return getter(*args, **kwargs)

    layer = make_template("layer", lambda: get_variable("w", [1]), create_scope_now_=True, custom_getter_=getter)
    assert layer() is layer()
    assert [bool(one) for pair in told for one in pair] == [False, False, True, True]


def test_parts_take_their_dtype_from_a_value() -> None:
    with variable_scope("s", partitioner=fixed_size_partitioner(2)):
        v = get_variable("v", initializer=convert_to_tensor(np.arange(4.0)))
    assert v.dtype == dtypes.float64
    assert [part.dtype.base_dtype for part in v] == [dtypes.float64] * 2
    assert [part.shape.as_list() for part in v] == [[2], [2]]
