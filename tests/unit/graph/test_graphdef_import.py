"""Graphs are imported under new names, with inputs mapped; what cannot be right is refused and adds nothing."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from anabranch import errors
from anabranch.core.registry import all_op_defs
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.graph.node_plans import HINT_ATTRS
from anabranch.graph.op_list import op_list_of, strip_default_attrs
from anabranch.ops import raw
from anabranch.proto.graph_pb2 import OpList
from tests.unit.graph.graphdefs import DTYPE, FIXTURES, FLOAT, SIZED, X, imported, parsed


def test_names_get_a_prefix_that_is_unique() -> None:
    graph_def = parsed(f"{X}\ny Neg x {FLOAT}")
    with Graph().as_default() as graph:
        import_graph_def(graph_def)
        import_graph_def(graph_def)
        with graph.name_scope("outer"):
            import_graph_def(graph_def, name="inner")
        names = [op.name for op in graph.get_operations()]
    assert names == ["import/x", "import/y", "import_1/x", "import_1/y", "outer/inner/x", "outer/inner/y"]
    assert graph.get_operation_by_name("import_1/y").inputs[0].name == "import_1/x:0"


def test_names_of_an_import_are_taken() -> None:
    imported_graph = imported(parsed(X))
    with imported_graph.as_default():
        assert raw.Placeholder(dtype="float32", shape=[], name="x").name == "x_1:0"


def test_input_map_and_return_elements() -> None:
    graph_def = parsed(f"{X}\ny Neg x {FLOAT}\nz AddV2 y,x,^x {FLOAT}")
    with Graph().as_default() as graph:
        mine = convert_to_tensor(3.0, name="mine")
        y, z, x = import_graph_def(graph_def, {"x:0": mine, "^x": mine}, ["y", "z:0", "x:0"]) or []
        assert (y.name, z.name, x) == ("import/y", "import/z:0", mine)
        assert y.inputs == [mine]
        assert z.op.control_inputs == [mine.op]
        assert graph.get_operation_by_name("import/x").outputs[0].consumers() == []
        assert import_graph_def(graph_def) is None
        assert import_graph_def(graph_def, return_elements=[]) == []
        with pytest.raises(ValueError, match=r"requires a non-empty `name`"):
            import_graph_def(graph_def, {"x": 2.0}, name="")
        (w,) = import_graph_def(graph_def, {"x": 2.0}, ["y:0"], name="made") or []
        assert w.op.inputs[0].op.type == "Const"


def test_a_map_can_stand_for_a_missing_node() -> None:
    graph_def = parsed(f"y Neg gone:2 {FLOAT}")
    with Graph().as_default():
        value = convert_to_tensor([1.0, 2.0])
        (y,) = import_graph_def(graph_def, {"gone:2": value}, ["y:0"]) or []
        assert y.shape.as_list() == [2]


def test_devices_are_merged_with_the_scopes() -> None:
    graph_def = parsed(f"{X}\ny Neg x {FLOAT}")
    graph_def.node[1].device = "/job:worker/device:GPU:1"
    with Graph().as_default() as graph, graph.device("/job:ps/task:3"):
        import_graph_def(graph_def, name="")
    assert graph.get_operation_by_name("x").device == "/job:ps/task:3"
    assert graph.get_operation_by_name("y").device == "/job:worker/task:3/device:GPU:1"


def test_colocation_is_renamed_and_shares_the_device() -> None:
    graph_def = parsed(f"{X}\ny Neg x {FLOAT} _class=list{{s:'loc:@x'}}")
    graph_def.node[0].device = "/device:CPU:0"
    with Graph().as_default() as graph:
        import_graph_def(graph_def)
    y = graph.get_operation_by_name("import/y")
    assert y.attrs["_class"] == [b"loc:@import/x"]
    assert y.device == "/device:CPU:0"


def test_open_scopes_other_than_names_and_devices_do_not_matter() -> None:
    with Graph().as_default() as graph:
        before = convert_to_tensor(1.0)
        with graph.control_dependencies([before]), graph._attr_scope({"_a": 1}), graph.colocate_with(before):
            import_graph_def(parsed(X), name="")
    op = graph.get_operation_by_name("x")
    assert op.control_inputs == []
    assert set(op.attrs) == {"dtype", "shape"}


def test_attributes_are_completed_and_defaults_stripped() -> None:
    graph_def = parsed(f"{X}\ny MatMul x,x {FLOAT} sparkle=i:7")
    with pytest.raises(ValueError, match=r"'y' \(MatMul\).*'sparkle'.*producer_op_list"):
        imported(graph_def)
    producer = OpList()
    attr = producer.op.add(name="MatMul").attr.add(name="sparkle", type="int")
    attr.default_value.i = 7
    op = imported(graph_def, producer_op_list=producer).get_operation_by_name("y")
    assert op.attrs["transpose_a"] is False
    assert "sparkle" not in op.attrs
    exported = imported(graph_def, producer_op_list=producer).as_graph_def()
    strip_default_attrs(exported)
    assert set(exported.node[1].attr) == {"T"}
    assert {attr.name for attr in op_list_of(exported).op[0].attr} >= {"transpose_a", "transpose_b", "T"}


@pytest.mark.parametrize("hints", ["grad_x=b:true", "grad_y=b:true"])
@pytest.mark.parametrize("op", ["BatchMatMul", "BatchMatMulV2"])
def test_hints_of_newer_programs_are_dropped(op: str, hints: str) -> None:
    """TensorFlow 2 marks the products of matrices that stand in gradients."""
    product = imported(parsed(f"{X}\ny {op} x,x {FLOAT} {hints}")).get_operation_by_name("y")
    assert set(product.attrs) == {"T", "adj_x", "adj_y"}


def test_every_attribute_of_tensorflows_that_may_be_dropped_has_a_harmless_default() -> None:
    """What an operation here does not have is dropped at zero; so zero must be TensorFlow's default, or a hint."""
    signatures = json.loads(gzip.decompress((FIXTURES / "op_signatures.json.gz").read_bytes()))["ops"]
    suspicious = [
        f"{name}.{attr['name']} = {attr.get('default')!r}"
        for name, op_def in all_op_defs().items()
        for attr in signatures.get(name, {"attrs": []})["attrs"]
        if attr["name"] not in op_def.attrs
        and attr["name"] not in HINT_ATTRS
        and attr.get("default") not in (False, 0, "", [])
    ]
    assert suspicious == []


# ---------------------------------------------------------------------- import: bad input
BAD: dict[str, tuple[str, type[Exception], str]] = {
    "unknown types, all of them": (
        f"{X}\na Foo x\nb Bar a\nc Foo b",
        errors.NotFoundError,
        r"'Bar' \(node 'b'\), 'Foo' \(node 'a'\)",
    ),
    "a missing input": (f"y Neg gone {FLOAT}", ValueError, "node 'y' .*Node 'y': Unknown input node 'gone'"),
    "a missing control input": (f"{X}\ny Neg x,^gone {FLOAT}", ValueError, r"Node 'y': Unknown input node '\^gone'"),
    "a missing output": (f"{X}\ny Neg x:1 {FLOAT}", ValueError, "invalid output 1 of source node x which has 1"),
    "a name twice": (f"{X}\n{X}", ValueError, "node 'x' .*not unique"),
    "an invalid name": ("_x NoOp -", ValueError, "node '_x' .*invalid characters"),
    "an empty name": (" NoOp -".replace(" NoOp", "- NoOp", 1), ValueError, "invalid characters"),
    "a malformed input": (f"{X}\ny Neg x:a {FLOAT}", ValueError, "Node 'y': Unknown input node 'x:a'"),
    "data after control": (f"{X}\ny AddV2 x,^x,x {FLOAT}", ValueError, "node 'y' .*after a control input"),
    "too few inputs": (f"{X}\ny AddV2 x {FLOAT}", ValueError, "expected inputs 'float, float' do not match 1"),
    "another dtype": (
        f"{X}\ny Neg x T=type:DT_INT32",
        ValueError,
        "Input 0 of node part/y was passed float from part/x:0 incompatible with expected int32",
    ),
    "a dtype that the type does not take": (f"{X}\ny Neg x T=type:DT_STRING", ValueError, "node 'y' .*allowed values"),
    "a missing attribute": (f"{X}\ny Neg x", ValueError, "node 'y' .*missing attr 'T'"),
    "an attribute of another kind": (f"{X}\ny Neg x T=i:1", ValueError, "node 'y' .*'T'.*kind type"),
    "a type number of nobody": (f"{X}\ny Neg x T=type:77", ValueError, "node 'y' .*'T'"),
    "a cycle": (
        f"a Neg c {FLOAT}\nb Neg a {FLOAT}\nc Neg b {FLOAT}",
        ValueError,
        "cycle that goes through no Merge.*a <- c <- b <- a",
    ),
    "a node that waits for itself": ("a NoOp ^a", ValueError, "node 'a' .*cycle"),
    "colocation with nobody": (f"{X}\ny Neg x {FLOAT} _class=list{{s:'loc:@z'}}", ValueError, "node 'y' .*'z'"),
    "shapes that do not go together": (
        f"{SIZED.format('a', 2)}\n{SIZED.format('b', 3)}\nc AddV2 a,b {FLOAT}",
        ValueError,
        "'c'",
    ),
    "a hint that contradicts": (
        SIZED.format("a", 2) + " _output_shapes=list{shape{dim{size:3}}}",
        ValueError,
        r"node 'a' .*_output_shapes",
    ),
    "a constant of another dtype": (
        "a Const - dtype=type:DT_INT32 value=tensor{dtype:DT_FLOAT~tensor_shape{}~float_val:1}",
        ValueError,
        "node 'a' .*float32.*int32",
    ),
    "an oversized constant": (
        f"a Const - {DTYPE} value=tensor{{dtype:DT_FLOAT~tensor_shape{{dim{{size:9999999999999}}}}~float_val:1}}",
        ValueError,
        "node 'a' .*'value'",
    ),
    "a constant shorter than its shape": (
        "a Const - dtype=type:DT_FLOAT value=tensor{dtype:DT_FLOAT~tensor_shape{dim{size:3}}~tensor_content:'abcd'}",
        ValueError,
        "node 'a' .*'value'",
    ),
    "a malformed device": (X, ValueError, "node 'x'"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_refused_and_nothing_added(case: str) -> None:
    text, error, message = BAD[case]
    graph_def = parsed(text)
    if case == "a malformed device":
        graph_def.node[0].device = "/gibberish:what"
    with Graph().as_default() as graph:
        kept = convert_to_tensor(1.0, name="kept")
        with graph.control_dependencies([kept]), pytest.raises(error, match=message):
            import_graph_def(graph_def, name="part")
        assert [op.name for op in graph.get_operations()] == ["kept"]
        assert graph.functions == {}
        assert kept.op.control_outputs == []
        assert kept.consumers() == []
        with graph.name_scope("part") as scope:
            assert scope == "part/"


def test_a_taken_name_gets_a_number() -> None:
    with Graph().as_default():
        convert_to_tensor(1.0, name="y")
        (y,) = import_graph_def(parsed(f"{X}\ny Neg x {FLOAT} _class=list{{s:'loc:@y'}}"), None, ["y"], "") or []
        assert (y.name, y.inputs[0].name, y.colocation_groups()) == ("y_1", "x:0", [b"loc:@y_1"])
        (y,) = import_graph_def(parsed(f"{X}\ny Neg x {FLOAT}"), None, ["y"], "") or []
        assert (y.name, y.inputs[0].name) == ("y_2", "x_1:0")


def test_an_imported_name_is_no_scope_of_what_is_there() -> None:
    with Graph().as_default() as graph:
        with graph.name_scope("outer"), graph.name_scope("inner"):
            convert_to_tensor(1.0, name="c")
        with graph.name_scope("empty"):
            pass
        text = "\n".join(f"{name} NoOp -" for name in ("outer", "inner", "outer/inner", "outer/inner/c", "empty"))
        names = ["outer", "inner", "outer/inner", "outer/inner/c", "empty"]
        found = [op.name for op in import_graph_def(parsed(text), None, names, "") or []]
        assert found == ["outer_1", "inner", "outer/inner_1", "outer/inner/c_1", "empty"]


def test_variables_of_a_graph_that_is_imported_twice_are_two() -> None:
    text = f"v VariableV2 - {DTYPE} shape=shape{{}}\nread Identity v {FLOAT}"
    with Graph().as_default() as graph:
        for _ in range(2):
            import_graph_def(parsed(text), name="")
        shared = [op.attrs["shared_name"] for op in graph.get_operations() if op.type == "VarHandleOp"]
        assert len(set(shared)) == 2


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"input_map": ["x"]}, TypeError, "input_map must be a dictionary"),
        ({"input_map": {1: 2}}, TypeError, "input_map must be a dictionary"),
        ({"input_map": {"nowhere:0": 1.0}}, ValueError, r"not found in graph_def: \[nowhere:0\]"),
        ({"return_elements": "x"}, TypeError, "list of strings"),
        ({"return_elements": [1]}, TypeError, "list of strings"),
        ({"return_elements": ["z"]}, ValueError, "'z' not found"),
        ({"return_elements": ["x:1"]}, ValueError, r"Invalid return output 1 of node 'x', which has 1 output\(s\)"),
        ({"return_elements": ["x:1:2"]}, ValueError, "Cannot convert 'x:1:2' to a tensor name"),
    ],
)
def test_bad_arguments(kwargs: Any, error: type[Exception], message: str) -> None:
    with Graph().as_default() as graph:
        with pytest.raises(error, match=message):
            import_graph_def(parsed(X), **kwargs)
        assert graph.get_operations() == []
        with pytest.raises(TypeError, match="GraphDef"):
            import_graph_def(b"bytes")


def test_a_mapped_tensor_of_another_graph_is_refused() -> None:
    other = convert_to_tensor(1.0)
    with Graph().as_default(), pytest.raises(ValueError, match=r"input_map\['x'\].*another graph"):
        import_graph_def(parsed(f"{X}\ny Neg x {FLOAT}"), {"x": other})
