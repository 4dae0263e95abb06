"""Scopes, collections, seeds and conversions of the front end."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.frontend import framework
from anabranch.frontend.arrays.constants import constant, placeholder
from anabranch.graph import conversion
from anabranch.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def test_name_scopes() -> None:
    with framework.name_scope("a") as scope:
        assert scope == "a/"
        assert constant(1).op.name == "a/Const"
        with framework.name_scope(None, "default", []):
            assert constant(1).op.name == "a/default/Const"
        with framework.name_scope(None):
            assert constant(1).op.name == "Const"
    with framework.name_scope(scope):
        assert constant(1).op.name == "a/Const_1"
    with framework.op_scope([], None, "b") as scope:
        assert scope == "b/"
    with pytest.raises(TypeError, match="must be a string"):
        framework.name_scope(5)
    with pytest.raises(ValueError, match="at least one"):
        framework.name_scope(None, None, [])


def test_a_name_scope_enters_the_graph_of_its_values() -> None:
    other = Graph()
    with other.as_default():
        x = constant(1.0)
    with framework.name_scope("s", None, [x]):
        assert get_default_graph() is other
    assert get_default_graph() is not other
    with pytest.raises(ValueError, match="same graph"), framework.name_scope("s", None, [x, constant(1.0)]):
        pass
    assert get_default_graph() is not other


def test_scopes_of_the_default_graph() -> None:
    x = constant(1.0)
    with framework.device("/cpu:0"), framework.control_dependencies([x]):
        y = constant(2.0)
        with framework.init_scope():
            z = constant(3.0)
    assert y.op.control_inputs == [x.op]
    assert z.op.control_inputs == []
    assert y.device.endswith("CPU:0")
    with framework.colocate_with(y):
        assert constant(1.0).op.colocation_groups() == [b"loc:@Const_1"]
    with framework.container("c"):
        assert get_default_graph().current_container == "c"


def test_init_scope_leaves_function_graphs_and_keeps_names() -> None:
    outer = get_default_graph()
    body = FunctionGraph("f", outer)
    with body.as_default(), framework.name_scope("layer"), framework.init_scope():
        created = constant(1.0)
    assert created.graph is outer
    assert created.op.name == "layer/Const"


def test_collections() -> None:
    x = constant(1.0, name="scope/x")
    framework.add_to_collection("a", x)
    framework.add_to_collections(["a", "b"], 5)
    assert framework.get_collection("a") == [x, 5]
    assert framework.get_collection("a", scope="scope") == [x]
    framework.get_collection_ref("b").append(6)
    assert framework.get_collection("b") == [5, 6]


def test_seeds() -> None:
    assert framework.get_seed(None) == (None, None)
    assert framework.get_seed(5) == (framework.DEFAULT_GRAPH_SEED, 5)
    framework.set_random_seed(7)
    assert framework.get_seed(None) == (7, 0)
    constant(1)
    assert framework.get_seed(None) == (7, 1)
    assert framework.get_seed(3) == (7, 3)
    assert framework.get_seed(2**31) == (7, 1)
    framework.set_random_seed(0)
    assert framework.get_seed(0) == (0, 2**31 - 1)


def test_what_is_a_tensor() -> None:
    assert framework.is_tensor(constant(1))
    assert framework.is_tensor(SparseTensor([[0]], [1], [1]))
    assert not framework.is_tensor(np.zeros(2))
    assert framework.get_static_value(raw.AddV2(constant(1), 2)) == 3
    assert framework.get_static_value(placeholder("int32")) is None


def test_composite_values_are_converted_or_kept() -> None:
    slices = IndexedSlices(constant([[1.0], [2.0], [4.0]]), constant([2, 0, 2]), constant([3, 1]))
    assert framework.convert_to_tensor_or_indexed_slices(slices) is slices
    dense = conversion.convert_to_tensor(slices)
    with Session() as session:
        assert session.run(dense).tolist() == [[2.0], [0.0], [5.0]]
    with pytest.raises(ValueError, match="dtype"):
        framework.convert_to_tensor_or_indexed_slices(slices, "int32")
    with pytest.raises(ValueError, match="without dense_shape"):
        conversion.convert_to_tensor(IndexedSlices(slices.values, slices.indices))
    sparse = framework.convert_to_tensor_or_sparse_tensor(SparseTensorValue([[0]], [1.0], [1]))
    assert isinstance(sparse, SparseTensor)
    assert framework.convert_to_tensor_or_sparse_tensor([1.0]).shape.as_list() == [1]
