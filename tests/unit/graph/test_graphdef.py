"""GraphDef export and import: round trips of TensorFlow's files, names, devices, errors that leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import float32
from anabranch.core.op_def import OpDef
from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.frontend.storage.graph_io import read_message, write_graph
from anabranch.graph.building import define_op
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.ops import raw
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.tensors import make_ndarray, make_tensor_proto
from tests.unit.graph.graphdefs import FIXTURES, FLOAT, X, imported, parsed


def fixture(name: str) -> GraphDef:
    return GraphDef.FromString((FIXTURES / f"{name}.pb").read_bytes())


# ---------------------------------------------------------------------- round trips
def without_what_only_tensorflow_knows(node: NodeDef, op_def: OpDef) -> NodeDef:
    copy = NodeDef()
    copy.CopyFrom(node)
    copy.ClearField("experimental_type")
    if node.op == "Const":  # the same elements can be written in several ways
        copy.attr["value"].tensor.CopyFrom(make_tensor_proto(make_ndarray(node.attr["value"].tensor)))
    for key in node.attr:
        if key not in op_def.attrs and not key.startswith("_"):
            del copy.attr[key]
    return copy


def test_tensorflows_graph_comes_out_as_it_went_in() -> None:
    theirs = fixture("conv")
    ours = imported(theirs).as_graph_def()
    by_name = {node.name: node for node in ours.node}
    assert len(by_name) == len(theirs.node)
    for node in theirs.node:
        op_def = find_op_def(node.op)
        assert op_def is not None
        expected = without_what_only_tensorflow_knows(node, op_def)
        mine = by_name[node.name]
        for attr in op_def.attrs.values():
            if attr.name not in expected.attr:  # written by TensorFlow only where it differs from the default
                assert attr.has_default
                del mine.attr[attr.name]
        if "_class" in mine.attr:
            expected.device = mine.device  # colocated operations share a device
        assert mine == expected


def test_nodes_keep_the_order_of_the_message() -> None:
    theirs = fixture("conv")
    assert [op.name for op in imported(theirs).get_operations()] == [node.name for node in theirs.node]


@pytest.mark.parametrize("name", ["conv", "ref_variables"])
def test_a_second_round_trip_changes_nothing(name: str) -> None:
    first = imported(fixture(name)).as_graph_def(add_shapes=True)
    second = imported(first).as_graph_def(add_shapes=True)
    assert second == first


def test_the_text_form_is_the_same_graph(tmp_path: Path) -> None:
    graph = imported(fixture("conv"))
    path = write_graph(graph, str(tmp_path / "deep" / "down"), "graph.pbtxt")
    assert Path(path).read_text().startswith("node {")
    assert read_message(path, GraphDef()) == graph.as_graph_def()
    path = write_graph(graph.as_graph_def(), str(tmp_path), "graph.pb", as_text=False)
    assert read_message(path, GraphDef()) == graph.as_graph_def()


def test_a_file_that_is_no_graph_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(b"\xff\xff no graph")
    with pytest.raises(OSError, match=r"Cannot parse file .*graph\.pb.*no GraphDef"):
        read_message(str(tmp_path / "graph.pb"), GraphDef())


def test_inputs_controls_devices_and_colocation() -> None:
    graph = get_default_graph()
    with graph.device("/job:ps/task:1"):
        value = convert_to_tensor([[1.0, 2.0]], name="value")
    parts = raw.Split(1, value, num_split=2, name="parts")
    with graph.control_dependencies([value]), graph.colocate_with(value):
        total = raw.AddV2(parts[0], parts[1], name="total")
    with graph._attr_scope({"_mark": True, "_words": [b"a", b"b"]}):
        raw.Neg(total, name="negative")
    nodes = {node.name: node for node in graph.as_graph_def().node}
    assert list(nodes["total"].input) == ["parts", "parts:1", "^value"]
    assert nodes["value"].device == "/job:ps/task:1"
    assert list(nodes["total"].attr["_class"].list.s) == [b"loc:@value"]
    assert nodes["total"].device == "/job:ps/task:1"
    assert nodes["negative"].attr["_mark"].b
    assert list(nodes["negative"].attr["_words"].list.s) == [b"a", b"b"]
    assert total.op.node_def == nodes["total"]


def test_export_from_a_version_on() -> None:
    graph = get_default_graph()
    convert_to_tensor(1.0, name="first")
    version = graph.version
    convert_to_tensor(2.0, name="second")
    assert [node.name for node in graph.as_graph_def(from_version=version).node] == ["second"]
    assert graph.graph_def_versions.producer > 0


def test_shapes_are_added_on_demand_and_read_as_hints() -> None:
    raw.Placeholder(dtype="float32", shape=[None, 3], name="x")
    exported = get_default_graph().as_graph_def(add_shapes=True)
    exported.node[0].attr["shape"].shape.Clear()
    exported.node[0].attr["shape"].shape.unknown_rank = True
    assert imported(exported).get_tensor_by_name("x:0").shape.as_list() == [None, 3]


def test_strings_and_empty_constants_survive() -> None:
    convert_to_tensor(["a", "bc"], name="words")
    convert_to_tensor([], "string", name="none")
    convert_to_tensor(np.array([1.5, -2.0], "float16"), name="half")
    graph = imported(get_default_graph().as_graph_def())
    values = {op.name: op.attrs["value"] for op in graph.get_operations()}
    assert values["words"].tolist() == [b"a", b"bc"]
    assert values["none"].dtype == np.object_
    assert values["none"].shape == (0,)
    assert values["half"].tolist() == [1.5, -2.0]


def test_an_annotation_that_cannot_be_written_is_named() -> None:
    tensor = convert_to_tensor(1.0, name="odd")
    tensor.op._set_attr("_thing", object())
    with pytest.raises(TypeError, match=r"'odd'.*'_thing'"):
        get_default_graph().as_graph_def()


# ---------------------------------------------------------------------- functions
def square_sum(outer: Graph) -> FunctionGraph:
    body = FunctionGraph("square_sum", outer)
    with body.as_default():
        x = body.add_parameter(float32, [None], "X/in")
        total = raw.Sum(raw.Mul(x, x, name="Square"), 0, name="Total")
        body.outputs = [total, x]
    return body


@pytest.fixture
def call_op(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operation type that has a function, for the time of a test."""
    with_registry_restored(monkeypatch)
    return define_op("CallForTest", "args: Tin -> output: Tout", "Tin: list(type), Tout: list(type), f: func")


def with_registry_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.core.registry._op_defs", all_op_defs())


def test_functions_go_into_the_library_and_come_back(call_op: Any) -> None:
    graph = Graph()
    with graph.as_default():
        graph.add_function("square_sum", square_sum(graph))
        x = raw.Placeholder(dtype="float32", shape=[3], name="x")
        call_op([x], Tout=["float32", "float32"], f="square_sum", name="call")
        exported = graph.as_graph_def()
    (function,) = exported.library.function
    assert [arg.name for arg in function.signature.input_arg] == ["x_in"]
    assert [arg.name for arg in function.signature.output_arg] == ["total", "x_in"]
    assert dict(function.ret) == {"total": "Total:output:0", "x_in": "x_in"}
    assert list(function.node_def[0].input) == ["x_in", "x_in"]
    assert "Square:z:0" in function.node_def[-1].input
    assert exported.versions.min_consumer == 12

    again = imported(exported)
    body = again.get_function("square_sum")
    assert isinstance(body, FunctionGraph)
    assert body.inputs[0].shape.as_list() == [None]
    assert [t.dtype.name for t in body.outputs] == ["float32", "float32"]
    assert again.as_graph_def() == exported


def test_importing_a_library_twice_does_not_double_it(call_op: Any) -> None:
    graph = Graph()
    with graph.as_default():
        graph.add_function("square_sum", square_sum(graph))
        exported = graph.as_graph_def()
    target = Graph()
    with target.as_default():
        import_graph_def(exported)
        import_graph_def(exported)
        assert list(target.functions) == ["square_sum"]
        exported.library.function[0].node_def[0].name = "Other"
        for node in exported.library.function[0].node_def:
            node.input[:] = [text.replace("Square:", "Other:") for text in node.input]
        import_graph_def(exported)
        assert list(target.functions) == ["square_sum", "square_sum_1"]


def test_bodies_share_the_library(call_op: Any) -> None:
    graph = Graph()
    with graph.as_default():
        graph.add_function("square_sum", square_sum(graph))
        outer = FunctionGraph("outer", graph)
        with outer.as_default():
            x = outer.add_parameter(float32, [2], "x")
            y = call_op([x], Tout=["float32", "float32"], f="square_sum")[0]
            outer.outputs = [raw.Neg(y)]
        graph.add_function("outer", outer)
        exported = graph.as_graph_def()
        exported.library.function.reverse()
    assert [f.signature.name for f in exported.library.function] == ["outer", "square_sum"]
    again = imported(exported)
    call = next(op for op in again.get_function("outer").get_operations() if op.type == "CallForTest")
    assert call.attrs["f"] == FuncAttr("square_sum")
    assert list(again.functions) == ["square_sum", "outer"]


def test_tensorflows_function_is_read(call_op: Any) -> None:
    theirs = fixture("functions")
    graph_def = GraphDef(versions=theirs.versions)
    graph_def.library.function.extend(
        f for f in theirs.library.function if f.signature.name == "__inference_scaled_711"
    )
    assert graph_def.library.function
    body = imported(graph_def).get_function("__inference_scaled_711")
    assert isinstance(body, FunctionGraph)
    assert [t.dtype.name for t in body.inputs] == ["float32", "float32"]
    assert [t.shape.as_list() for t in body.outputs] == [[None]]


def test_a_node_whose_type_is_a_function_calls_it(call_op: Any) -> None:
    graph = Graph()
    with graph.as_default():
        graph.add_function("square_sum", square_sum(graph))
        exported = graph.as_graph_def()
    exported.node.extend(parsed(f"{X}\ncall square_sum x").node)
    again = imported(exported)
    op = again.get_operation_by_name("call")
    assert (op.type, [t.name for t in op.inputs]) == ("IdentityN", ["call/Total:0", "x:0"])
    assert not again.functions


def test_a_generic_function_is_refused(call_op: Any) -> None:
    graph_def = parsed(
        f"{X}\ncall CallForTest x Tin=list{{type:DT_FLOAT}} Tout=list{{type:DT_FLOAT}} f=func{{name:'f'}}"
    )
    function = graph_def.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="x", type_attr="T")
    with pytest.raises(errors.UnimplementedError, match="'f' is generic"):
        imported(graph_def)


# ---------------------------------------------------------------------- loops
@pytest.fixture
def loop_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation types of loops, for the time of a test where the vocabulary does not have them."""
    with_registry_restored(monkeypatch)
    for name, signature, attrs in (
        (
            "Enter",
            "data: T -> output: T",
            "T: any, frame_name: string, is_constant: bool = False, parallel_iterations: int = 10",
        ),
        ("Merge", "inputs: N * T -> output: T, value_index: int32", "T: any, N: int >= 1"),
        ("NextIteration", "data: T -> output: T", "T: any"),
        ("Exit", "data: T -> output: T", "T: any"),
        ("Switch", "data: T, pred: bool -> output_false: T, output_true: T", "T: any"),
        ("LoopCond", "input: bool -> output: bool", ""),
    ):
        if find_op_def(name) is None:
            define_op(name, signature, attrs)


LOOP = f"""
zero Const - dtype=type:DT_FLOAT value=tensor{{dtype:DT_FLOAT~tensor_shape{{}}~float_val:0}}
enter Enter zero {FLOAT} frame_name=s:'f'
merge Merge enter,next {FLOAT} N=i:2
ten Const ^merge dtype=type:DT_FLOAT value=tensor{{dtype:DT_FLOAT~tensor_shape{{}}~float_val:10}}
less Less merge,ten {FLOAT}
cond LoopCond less
switch Switch merge,cond {FLOAT}
add AddV2 switch:1,ten {FLOAT}
next NextIteration add {FLOAT}
exit Exit switch {FLOAT}
"""


@pytest.mark.usefixtures("loop_ops")
def test_a_loop_is_put_together() -> None:
    graph_def = parsed(LOOP)
    graph = imported(graph_def)
    merge = graph.get_operation_by_name("merge")
    assert [t.name for t in merge.inputs] == ["enter:0", "next:0"]
    assert graph.get_tensor_by_name("next:0").consumers() == [merge]
    again = imported(graph.as_graph_def())
    assert again.as_graph_def() == graph.as_graph_def()


@pytest.mark.usefixtures("loop_ops")
def test_a_loop_without_an_entry_is_refused() -> None:
    text = f"merge Merge next {FLOAT} N=i:1\nnext NextIteration merge {FLOAT}"
    with pytest.raises(ValueError, match="node 'merge' .*outside the loop"):
        imported(parsed(text))


@pytest.mark.usefixtures("loop_ops")
def test_a_cycle_beside_a_loop_is_still_one() -> None:
    with pytest.raises(ValueError, match="cycle"):
        imported(parsed(LOOP + f"p Neg q {FLOAT}\nq Neg p {FLOAT}"))


# ---------------------------------------------------------------------- reference variables
REF = f"""
{X}
w VariableV2 - dtype=type:DT_FLOAT shape=shape{{dim{{size:2}}}}
one Const - dtype=type:DT_FLOAT value=tensor{{dtype:DT_FLOAT~tensor_shape{{dim{{size:2}}}}~float_val:1}}
"""


def test_reference_variables_become_resources_under_their_names() -> None:
    graph = imported(
        parsed(
            REF
            + f"w/read Identity w {FLOAT}\nw/Assign Assign w,one {FLOAT} use_locking=b:true\n"
            + f"y AddV2 x,w,^w/Assign {FLOAT}"
        )
    )
    kinds = {op.name: op.type for op in graph.get_operations()}
    assert kinds["w/handle"] == "VarHandleOp"
    assert kinds["w"] == kinds["w/read"] == kinds["w/Assign"] == "ReadVariableOp"
    assert kinds["w/Assign/AssignVariableOp"] == "AssignVariableOp"
    read = graph.get_operation_by_name("y").inputs[1].op
    assert (read.name, read.type) == ("y/w/read", "ReadVariableOp")
    assert [op.name for op in read.control_inputs] == ["w/Assign"]
    assert graph.get_tensor_by_name("w:0").shape.as_list() == [2]
    assert graph.get_operation_by_name("w/handle").attrs["shared_name"] == b"w"
    after = graph.get_operation_by_name("w/Assign").control_inputs
    assert [op.name for op in after] == ["w/Assign/AssignVariableOp"]


def test_the_variables_shared_name_has_the_prefix() -> None:
    with Graph().as_default() as graph:
        import_graph_def(parsed(REF), name="old")
    assert graph.get_operation_by_name("old/w/handle").attrs["shared_name"] == b"old/w"


def test_updates_of_updates_wait_for_each_other() -> None:
    graph = imported(parsed(REF + f"a Assign w,one {FLOAT}\nb AssignAdd a,one {FLOAT}\nc Neg b {FLOAT}"))
    add = graph.get_operation_by_name("b/AssignAddVariableOp")
    assert add.inputs[0].name == "w/handle:0"
    assert [op.name for op in add.control_inputs] == ["a"]
    assert graph.get_operation_by_name("c").inputs[0].name == "b:0"


def test_waiting_for_a_variable_is_not_reading_it() -> None:
    op = imported(parsed(REF + "go NoOp ^w")).get_operation_by_name("go")
    assert [c.name for c in op.control_inputs] == ["w/handle"]


def test_a_variable_that_changes_its_shape_has_an_unknown_one() -> None:
    graph = imported(parsed(REF + f"a Assign w,x {FLOAT} validate_shape=b:false"))
    assert graph.get_tensor_by_name("w:0").shape.ndims is None


def test_a_reference_may_be_mapped_to_a_handle_but_not_updated_as_a_value() -> None:
    graph_def = parsed(REF + f"a AssignAdd w,one {FLOAT}\ny Neg w {FLOAT}")
    with Graph().as_default() as graph:
        handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="mine")
        import_graph_def(graph_def, {"w:0": handle}, name="p")
        assert graph.get_operation_by_name("p/a/AssignAddVariableOp").inputs[0] is handle
        assert graph.get_operation_by_name("p/y").inputs[0].op.inputs == [handle]
        with pytest.raises(ValueError, match="node 'a' .*must be a variable"):
            import_graph_def(graph_def, {"w:0": convert_to_tensor([1.0, 2.0])}, name="q")


def test_an_update_of_what_is_no_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="node 'a' .*must be a variable"):
        imported(parsed(f"{X}\na AssignAdd x,x {FLOAT}"))
    with pytest.raises(ValueError, match="node '[ab]' .*(itself|must be a variable)"):
        imported(parsed(f"{X}\na AssignAdd b,x {FLOAT}\nb AssignAdd a,x {FLOAT}"))


@pytest.mark.usefixtures("loop_ops")
def test_references_pass_through_switches_as_handles() -> None:
    graph = imported(
        parsed(
            REF
            + f"p Placeholder - dtype=type:DT_BOOL shape=shape{{}}\ns RefSwitch w,p {FLOAT}\n"
            + f"a AssignAdd s:1,one {FLOAT}\ny Neg s {FLOAT}"
        )
    )
    assert graph.get_operation_by_name("s").inputs[0].name == "w/handle:0"
    assert graph.get_operation_by_name("a/AssignAddVariableOp").inputs[0].name == "s:1"
    assert graph.get_operation_by_name("y").inputs[0].op.inputs[0].name == "s:0"
