"""Graphs that TensorFlow wrote compute here what they computed there; ours survive the way through a GraphDef."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.storage import graph_util
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.ops import raw
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.training_pb2 import MetaGraphDef, VariableDef
from anabranch.session import Session
from anabranch.train.saver import import_meta_graph

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow"


def load(name: str) -> tuple[Graph, dict[str, Any], list[str], dict[str, Any]]:
    """The graph, and from its record: feeds, targets, fetches with the values that TensorFlow computed."""
    graph = Graph()
    with graph.as_default():
        import_graph_def(GraphDef.FromString((FIXTURES / f"{name}.pb").read_bytes()), name="")
    record = np.load(FIXTURES / f"{name}.npz", allow_pickle=False)
    feeds = {key.removeprefix("feed/"): record[key] for key in record if key.startswith("feed/")}
    fetches = {key.removeprefix("fetch/"): record[key] for key in record if key.startswith("fetch/")}
    return graph, feeds, [str(target) for target in record["targets"]], fetches


@pytest.mark.parametrize("name", ["conv", "ref_variables"])
def test_it_trains_as_with_tensorflow(name: str) -> None:
    graph, feeds, targets, fetches = load(name)
    with Session(graph=graph) as session:
        for target in targets:
            session.run(target, feeds)
        values = session.run(list(fetches), feeds)
    for key, value in zip(fetches, values, strict=True):
        np.testing.assert_allclose(value, fetches[key], rtol=2e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["conv", "ref_variables"])
def test_it_does_so_after_another_round_trip_and_under_a_prefix(name: str) -> None:
    graph, feeds, targets, fetches = load(name)
    again = Graph()
    with again.as_default():
        import_graph_def(graph.as_graph_def(), name="again")
    feeds = {f"again/{key}": value for key, value in feeds.items()}
    with Session(graph=again) as session:
        for target in targets:
            session.run(f"again/{target}", feeds)
        for key, expected in fetches.items():
            np.testing.assert_allclose(session.run(f"again/{key}", feeds), expected, rtol=2e-5, atol=1e-6)


#: graphs of Switch, Merge and loop frames; with stacks, tensor arrays and gradients, as TensorFlow 1 made them
PRIMITIVE_GRAPHS = (
    "v1_nested_while",
    "v1_cond_in_while",
    "v1_tensor_array",
    "v1_dynamic_rnn",
    "v1_cond",
    "v1_assign_in_while",
    "v1_loops_in_a_row",
    "conv_while",
)


@pytest.mark.parametrize("name", PRIMITIVE_GRAPHS)
def test_control_flow_of_primitives_computes_what_tensorflow_does(name: str) -> None:
    graph, feeds, targets, fetches = load(name)
    with Session(graph=graph) as session:
        for target in targets:
            session.run(target, feeds)
        values = session.run(list(fetches), feeds)
    # two elements of a pooling window are equal but for rounding: which one the gradient goes to is anybody's guess
    tolerance = {"rtol": 0.1, "atol": 3e-4} if name == "conv_while" else {"rtol": 2e-5, "atol": 1e-6}
    for key, value in zip(fetches, values, strict=True):
        if fetches[key].dtype.kind == "f":
            np.testing.assert_allclose(value, fetches[key], err_msg=key, **tolerance)
        elif fetches[key].dtype.kind in "SUO":
            assert value == fetches[key].item(), key
        else:
            np.testing.assert_array_equal(value, fetches[key], err_msg=key)


def test_a_meta_graph_which_says_the_shapes_of_stacks_computes_the_same() -> None:
    """Savers write the shapes of all outputs; to TensorFlow a stack's handle has two elements."""
    _, feeds, targets, fetches = load("conv_while")
    message = MetaGraphDef.FromString((FIXTURES / "conv_while.meta").read_bytes())
    stacks = [node for node in message.graph_def.node if node.op == "StackV2"]
    assert stacks
    assert all(node.attr["_output_shapes"].list.shape[0].dim[0].size == 2 for node in stacks)
    with Graph().as_default() as graph, Session() as session:
        import_meta_graph(message)
        for target in targets:
            session.run(target, feeds)
        np.testing.assert_allclose(session.run("loss:0", feeds), fetches["loss:0"], rtol=1e-3)
        assert graph.get_tensor_by_name(f"{stacks[0].name}:0").shape.ndims == 0


@pytest.mark.parametrize("p", [True, False])
def test_gradients_flow_through_imported_conditionals(p: bool) -> None:
    """Those that TensorFlow put into the graph, and those built here, agree."""
    graph, feeds, targets, fetches = load("v1_cond")
    feeds["p:0"] = np.array(p)
    with graph.as_default(), Session(graph=graph) as session:
        x, nested, constant, changed, *_ = (graph.get_tensor_by_name(n) for n in ["x:0", *fetches])
        mine = gradients(raw.AddV2(raw.Mul(nested, constant), changed), [x])[0]
        theirs = graph.get_tensor_by_name(list(fetches)[4])
        session.run(targets[0])
        np.testing.assert_allclose(*session.run([mine, theirs], feeds), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "y", "xs", "theirs"),
    [
        (
            "v1_nested_while",
            "outer/Exit_1:0",
            ["x:0", "weight:0"],
            ["gradients/outer/Enter_1_grad/Exit:0", "gradients/outer/inner/add_1/Enter_grad/b_acc_3:0"],
        ),
        (
            "v1_loops_in_a_row",
            "total:0",
            ["x:0", "y:0"],
            ["gradients/AddN_5:0", "gradients/AddN_4:0"],
        ),
        ("v1_cond_in_while", "short/Exit_1:0", ["x:0"], ["gradients_1/short/Enter_1_grad/Exit:0"]),
        (
            "v1_dynamic_rnn",
            "loss:0",
            ["kernel:0", "bias:0"],
            [f"gradients/rnn/{op}/ReadVariableOp/Enter_grad/b_acc_3:0" for op in ("MatMul", "add")],
        ),
    ],
)
def test_gradients_flow_through_imported_loops(name: str, y: str, xs: list[str], theirs: list[str]) -> None:
    """Those that TensorFlow put into the graph, and those built here, agree; and what was there goes on to run."""
    graph, feeds, targets, fetches = load(name)
    with graph.as_default(), Session(graph=graph) as session:
        mine = gradients(graph.get_tensor_by_name(y), [graph.get_tensor_by_name(x) for x in xs])
        for target in targets:  # the optimizer's steps by TensorFlow's gradients among them
            session.run(target, feeds)
        for key, value in zip(theirs, session.run(mine, feeds), strict=True):
            np.testing.assert_allclose(value, fetches[key], rtol=2e-5, atol=1e-6, err_msg=key)
        for key, value in zip(fetches, session.run(list(fetches), feeds), strict=True):
            np.testing.assert_allclose(value, fetches[key], rtol=2e-5, atol=1e-6, err_msg=key)


def test_a_loop_that_shares_arrays_with_others_is_differentiated() -> None:
    """An array that it reads is read after it, too; each call of `gradients` has arrays of gradients of its own."""
    graph, feeds, _, fetches = load("v1_tensor_array")
    with graph.as_default(), Session(graph=graph) as session:
        x, total, stacked = (graph.get_tensor_by_name(n) for n in ["x:0", "loop/Exit_1:0", "stacked/stacked:0"])
        y = raw.Mul(raw.Sum(stacked, [0, 1]), total)
        mine, again = (gradients(y, [x], name=name)[0] for name in ("gradients", "gradients_again"))
        for value in session.run([mine, again], feeds):
            np.testing.assert_allclose(value, fetches[list(fetches)[2]], rtol=2e-5)


def test_what_is_inside_of_an_imported_loop_has_no_gradient() -> None:
    graph, _, _, fetches = load("v1_assign_in_while")
    with (
        graph.as_default(),
        pytest.raises(errors.UnimplementedError, match="no gradient can be built through 'while/E"),
    ):
        gradients(graph.get_tensor_by_name(list(fetches)[1]), graph.get_tensor_by_name("while/Enter_1:0"))


def test_a_reference_variable_is_read_under_its_own_name() -> None:
    graph, _, targets, _ = load("ref_variables")
    with Session(graph=graph) as session:
        with pytest.raises(errors.FailedPreconditionError, match="w"):
            session.run("w:0")
        session.run(targets[0])
        first = session.run("w/initial_value:0")
        np.testing.assert_array_equal(session.run("w:0"), first)
        np.testing.assert_array_equal(session.run("w/read:0"), first)
        np.testing.assert_array_equal(session.run("w/Assign:0"), first)


def test_a_reference_variable_becomes_a_variable() -> None:
    graph, _, _, _ = load("ref_variables")
    message = VariableDef(
        variable_name="w:0",
        initializer_name="w/Assign",
        snapshot_name="w/read:0",
        initial_value_name="w/initial_value:0",
    )
    with graph.as_default(), Session() as session:
        variable = Variable.from_proto(message)
        assert variable.name == "w:0"
        assert variable.shape.as_list() == [3, 2]
        session.run(variable.initializer)
        variable.load(np.ones([3, 2], np.float32), session)
        np.testing.assert_array_equal(session.run("w:0"), np.ones([3, 2], np.float32))
        assert Variable.from_proto(variable.to_proto()).name == "w:0"


def test_reads_are_ordered_by_control_edges() -> None:
    graph_def = GraphDef()
    graph_def.node.add(name="w", op="VariableV2").attr["dtype"].type = 1
    graph_def.node[0].attr["shape"].shape.SetInParent()
    with get_default_graph().as_default():
        convert_to_tensor(5.0, name="five")
    graph_def.node.extend(get_default_graph().as_graph_def().node)
    graph_def.node.add(name="set", op="Assign", input=["w", "five"]).attr["T"].type = 1
    graph_def.node.add(name="add", op="AssignAdd", input=["set", "five"]).attr["T"].type = 1
    graph_def.node.add(name="y", op="Neg", input=["w", "^add"]).attr["T"].type = 1
    graph = Graph()
    with graph.as_default():
        import_graph_def(graph_def, name="")
    assert Session(graph=graph).run("y:0") == -10.0


def test_a_conditional_of_ours_survives() -> None:
    with Graph().as_default() as graph:
        x = raw.Placeholder(dtype="float32", shape=[], name="x")
        y = cond(raw.Greater(x, 0.0), lambda: raw.Mul(x, 2.0), lambda: raw.Sub(x, 1.0))
        name = y.name
        definition = graph.as_graph_def()
    assert len(definition.library.function) == 2
    again = Graph()
    with again.as_default():
        import_graph_def(definition, name="")
    with Session(graph=again) as session:
        assert session.run(name, {"x:0": 3.0}) == 6.0
        assert session.run(name, {"x:0": -3.0}) == -4.0


# ---------------------------------------------------------------------- graph_util
def test_a_frozen_graph_needs_no_variables() -> None:
    graph, feeds, targets, fetches = load("conv")
    output = "add:0"
    with Session(graph=graph) as session:
        for target in targets:
            session.run(target, feeds)
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["add"])
    assert not {node.op for node in frozen.node} & {"VarHandleOp", "ReadVariableOp"}
    slim = graph_util.remove_training_nodes(frozen, protected_nodes=["add"])
    assert "Identity" not in {node.op for node in slim.node}
    for definition in (frozen, slim):
        small = Graph()
        with small.as_default():
            import_graph_def(definition, name="")
        value = Session(graph=small).run(output, {"x:0": feeds["x:0"]})
        np.testing.assert_allclose(value, fetches[output], rtol=2e-5, atol=1e-6)


def test_freezing_an_old_graph() -> None:
    graph, feeds, targets, fetches = load("ref_variables")
    theirs = GraphDef.FromString((FIXTURES / "ref_variables.pb").read_bytes())
    with Session(graph=graph) as session:
        for target in targets:
            session.run(target, feeds)
        for definition in (theirs, graph.as_graph_def()):
            frozen = graph_util.convert_variables_to_constants(session, definition, ["y"])
            small = Graph()
            with small.as_default():
                import_graph_def(frozen, name="")
            np.testing.assert_allclose(Session(graph=small).run("y:0", feeds), fetches["y:0"], rtol=2e-5)


def test_a_gather_from_a_variable_is_frozen() -> None:
    with Graph().as_default() as graph, Session() as session:
        table = Variable([[1.0, 2.0], [3.0, 4.0]], name="table")
        raw.ResourceGather(table.handle, [1], dtype="float32", name="rows")
        session.run(table.initializer)
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["rows"])
    assert {node.op for node in frozen.node} == {"Const", "GatherV2"}
    small = Graph()
    with small.as_default():
        import_graph_def(frozen, name="")
    assert Session(graph=small).run("rows:0").tolist() == [[3.0, 4.0]]


def test_what_cannot_be_frozen_is_named() -> None:
    with Graph().as_default() as graph, Session() as session:
        variable = Variable(1.0, name="v")
        raw.AssignAddVariableOp(variable.handle, 1.0, name="step")
        session.run(variable.initializer)
        with pytest.raises(ValueError, match="'step' .*changes the variable 'v'"):
            graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["step"])
        kept = graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["step"], variable_names_blacklist=["v"]
        )
        assert "VarHandleOp" in {node.op for node in kept.node}


def test_extract_sub_graph() -> None:
    graph, _, _, _ = load("conv")
    definition = graph.as_graph_def()
    part = graph_util.extract_sub_graph(definition, ["conv/Relu"])
    names = {node.name for node in part.node}
    assert {"x", "conv/kernel", "conv/Relu"} <= names
    assert "loss" not in names
    assert "dense/kernel" not in names
    with pytest.raises(AssertionError, match="nowhere is not in graph"):
        graph_util.extract_sub_graph(definition, ["nowhere"])
    with pytest.raises(TypeError, match="list"):
        graph_util.extract_sub_graph(definition, "loss")
    assert graph_util.tensor_shape_from_node_def_name(graph, "conv/Relu").as_list() == [None, 8, 8, 4]
