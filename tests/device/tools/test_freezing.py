"""`tensorflow.python.tools`: graphs that are frozen, stripped and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import anabranch as tf
from anabranch.compat.private import freezing
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.tools import tensorflow_alias

POINTS = np.array([[1.0, 2.0]], np.float32)


def written(folder: Path) -> tuple[Path, str]:
    """A graph whose output is x @ w + b, the paths of it and of its checkpoint."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        with tf.device("/cpu:0"):
            w = tf.get_variable("w", initializer=[[1.0], [10.0]])
        b = tf.get_variable("b", initializer=[3.0])
        twice = tf.identity(tf.matmul(x, w) + b, name="y")
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(twice))
        session.run(tf.global_variables_initializer())
        checkpoint = tf.train.Saver().save(session, str(folder / "model"))
        tf.train.write_graph(graph, str(folder), "graph.pb", as_text=False)
        tf.train.write_graph(graph, str(folder), "graph.pbtxt")
        signature = tf.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": twice})
        builder = tf.saved_model.builder.SavedModelBuilder(str(folder / "saved"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    return folder, str(checkpoint)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, str]:
    return written(tmp_path)


def outputs(graph_def: GraphDef) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run("y:0", {"x:0": POINTS})


@pytest.mark.parametrize("source", ["binary", "text", "meta", "saved model"])
def test_a_graph_is_frozen(model: tuple[Path, str], source: str) -> None:
    folder, checkpoint = model
    binary = source != "text"
    graph = {"binary": str(folder / "graph.pb"), "text": str(folder / "graph.pbtxt")}.get(source)
    frozen = freezing.freeze_graph(
        graph,
        None,
        binary,
        None if source == "saved model" else checkpoint,
        "y",
        "save/restore_all",
        "save/Const:0",
        str(folder / "frozen.pb"),
        True,
        "",
        input_meta_graph=f"{checkpoint}.meta" if source == "meta" else None,
        input_saved_model_dir=str(folder / "saved") if source == "saved model" else None,
    )
    assert not {node.op for node in frozen.node} & {"VarHandleOp", "VariableV2", "ReadVariableOp"}
    np.testing.assert_allclose(outputs(frozen), [[24.0]])
    assert GraphDef.FromString((folder / "frozen.pb").read_bytes()) == frozen
    if source != "saved model":
        assert not any(node.device for node in frozen.node)


def test_what_is_not_there_is_told(model: tuple[Path, str]) -> None:
    folder, checkpoint = model
    freeze: Callable[..., Any] = freezing.freeze_graph
    rest = ("", "", None, True, "")
    with pytest.raises(OSError, match="Input GraphDef file 'nowhere' does not exist"):
        freeze("nowhere", None, True, checkpoint, "y", *rest)
    graph = str(folder / "graph.pb")
    with pytest.raises(ValueError, match="checkpoint 'nothing' doesn't exist"):
        freeze(graph, None, True, "nothing", "y", *rest)
    with pytest.raises(ValueError, match="supply the name of a node"):
        freeze(graph, None, True, checkpoint, "", *rest)
    frozen = freeze(graph, None, True, checkpoint, "y", *rest)
    with pytest.raises(ValueError, match="cannot freeze a graph twice"):
        freezing.freeze_graph_with_def_protos(frozen, None, checkpoint, "y", *rest)


def test_a_graph_is_stripped(model: tuple[Path, str]) -> None:
    graph_def = GraphDef.FromString((model[0] / "graph.pb").read_bytes())
    kind = tf.float32.as_datatype_enum
    for make in (freezing.strip_unused, freezing.optimize_for_inference):
        stripped = make(graph_def, ["MatMul"], ["y"], kind)
        assert "x" not in {node.name for node in stripped.node}
        assert {node.name: node.op for node in stripped.node}["MatMul"] == "Placeholder"
    with pytest.raises(KeyError, match="absent"):
        freezing.strip_unused(graph_def, ["absent"], ["y"], [kind])
    with pytest.raises(ValueError, match="refer to a Tensor"):
        freezing.strip_unused(graph_def, ["x:0"], ["y"], kind)
    broken = text_format.Parse("node { name: 'a' op: 'NoOp' input: '^b' }", GraphDef())
    with pytest.raises(ValueError, match="not found"):
        freezing.ensure_graph_is_valid(broken)
    broken = text_format.Parse("node { name: 'a' op: 'NoOp' } node { name: 'a' op: 'NoOp' }", GraphDef())
    with pytest.raises(ValueError, match="Duplicate"):
        freezing.ensure_graph_is_valid(broken)


def test_a_checkpoint_is_printed(model: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    freezing.print_tensors_in_checkpoint_file(model[1], "b", False)
    assert capsys.readouterr().out == "tensor_name:  b\n[3.]\n# Total number of params: 3\n"
    freezing.print_tensors_in_checkpoint_file(model[1], "", False, all_tensor_names=True, count_exclude_pattern="^w$")
    assert capsys.readouterr().out == "tensor_name:  b\ntensor_name:  w\n# Total number of params: 1\n"
    freezing.print_tensors_in_checkpoint_file(model[1], None, False)
    assert "w (float32) [2, 1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("freeze_graph", "freeze_graph"),
        ("inspect_checkpoint", "print_tensors_in_checkpoint_file"),
        ("optimize_for_inference_lib", "optimize_for_inference"),
        ("strip_unused_lib", "strip_unused"),
    ],
)
def test_programs_find_them(module: str, name: str) -> None:
    assert tensorflow_alias.is_there(f"tensorflow.python.tools.{module}.{name}")
