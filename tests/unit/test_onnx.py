"""ONNX models: import, export, and what is refused. Without the package onnx there is nothing to test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anabranch as tf

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import anabranch.onnx  # noqa: E402
from tests import onnx_backend  # noqa: E402


def _model(nodes, inputs, outputs, initializers=(), opset=21):
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in names]
        for names in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *infos, initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("case", list(onnx_backend.cases(every=60)), ids=lambda case: case.name)
def test_node_cases_of_the_onnx_package(case):
    reason = onnx_backend.judge(case, onnx_backend.run_here)
    if "UnimplementedError" in reason:
        pytest.skip(reason)
    assert not reason


def test_export_and_import_give_equal_results(tmp_path: Path):
    value = np.linspace(-1, 1, 96, dtype=np.float32).reshape(2, 4, 4, 3)
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 4, 4, 3])
        w = tf.get_variable("w", initializer=np.linspace(-1, 1, 108, dtype=np.float32).reshape(3, 3, 3, 4))
        pooled = tf.nn.max_pool(
            tf.nn.relu(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"
        )
        y = tf.nn.softmax(tf.reshape(pooled, [-1, 16]))
        sess.run(w.initializer)
        anabranch.onnx.save(sess, tmp_path / "model.onnx", {"x": x}, {"y": y})
        wanted = sess.run(y, {x: value})
    with tf.Graph().as_default(), tf.Session() as sess:
        model = anabranch.onnx.import_model(tmp_path / "model.onnx")
        np.testing.assert_allclose(sess.run(model.outputs["y"], {model.inputs["x"]: value}), wanted, rtol=1e-6)
    onnxruntime = pytest.importorskip("onnxruntime")
    found = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found.run(None, {"x": value})[0], wanted, rtol=1e-5)


def test_initializers_can_be_trained():
    weight = numpy_helper.from_array(np.array([3.0, 4.0], np.float32), "w")
    message = _model([helper.make_node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], [weight])
    with tf.Graph().as_default(), tf.Session() as sess:
        model = anabranch.onnx.import_model(message, initializers="variables")
        (gradient,) = tf.gradients(model.outputs["y"], [model.variables["w"]])
        sess.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(sess.run(gradient, {model.inputs["x"]: [[5.0, 6.0]]}), [5, 6])


def test_all_unknown_operators_are_listed_and_the_graph_stays_empty():
    message = _model([helper.make_node("Foo", ["x"], ["a"]), helper.make_node("Bar", ["a"], ["y"])], ["x"], ["y"])
    with tf.Graph().as_default() as graph:
        with pytest.raises(tf.errors.UnimplementedError, match=r"2 operators.*Bar.*Foo"):
            anabranch.onnx.import_model(message)
        assert not graph.get_operations()


def test_all_operations_that_cannot_be_exported_are_listed():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [2])
        y = tf.lgamma(tf.digamma(x))
        with pytest.raises(tf.errors.UnimplementedError, match=r"2 operations.*Digamma.*Lgamma"):
            anabranch.onnx.export_graph(sess, {"x": x}, {"y": y})


def _external(location: str):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.mark.parametrize(
    ("nodes", "initializers", "reason"),
    [
        ([("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["b"], ["y"])], [], "cycle"),
        ([("Relu", ["z"], ["y"])], [], "nothing makes"),
        ([("Relu", ["x"], ["y"]), ("Relu", ["x"], ["y"])], [], "another node makes"),
        ([("Add", ["x", "w"], ["y"])], [_external("../secret")], "outside of the model's folder"),
        ([("Add", ["x", "w"], ["y"])], [_external("/etc/passwd")], "outside of the model's folder"),
        (
            [("Add", ["x", "w"], ["y"])],
            [TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"1234")],
            "holds 4",
        ),
    ],
)
def test_invalid_models_are_refused(tmp_path: Path, nodes, initializers, reason):
    message = _model([helper.make_node(*node) for node in nodes], ["x"], ["y"], initializers)
    path = tmp_path / "model.onnx"
    path.write_bytes(message.SerializeToString())
    with tf.Graph().as_default() as graph:
        with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
            anabranch.onnx.import_model(path)
        assert not graph.get_operations()


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (("Loop", ["n", "", "x"], ["y"]), "body"),
        (("Scan", ["x"], ["y"]), "body"),
        (("If", ["c"], ["y"]), "then_branch"),
    ],
)
def test_loops_and_conditionals_without_a_graph_are_refused(node, name):
    constants = [TensorProto(name="n", data_type=TensorProto.INT64, int64_data=[3])]
    constants.append(TensorProto(name="c", data_type=TensorProto.BOOL, int32_data=[1]))
    attributes = {"num_scan_inputs": 1} if node[0] == "Scan" else {}
    message = _model([helper.make_node(*node, **attributes)], ["x"], ["y"], constants)
    with tf.Graph().as_default(), pytest.raises((tf.errors.OpError, ValueError), match=f"attribute '{name}'"):
        anabranch.onnx.import_model(message)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("DeformConv", ["x"], ["y"], name="n1"),
        helper.make_node("Gemm", ["x"], ["y"]),
        helper.make_node("CumSum", ["x"], ["y"]),
        helper.make_node("Concat", [], ["y"]),
    ],
    ids=lambda node: node.op_type,
)
def test_nodes_without_their_inputs_are_named(node):
    with tf.Graph().as_default() as graph:
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError, TypeError)) as caught:
            anabranch.onnx.import_model(_model([node], ["x"], ["y"]))
        assert not graph.get_operations()
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert (node.name or "'y'") in said
    assert node.op_type in said


def test_names_that_are_no_text_are_refused():
    data = _model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    for damaged in (data.replace(b"Relu", b"Rel\xff"), data.replace(b"\x0a\x01x", b"\x0a\x01\xff")):
        assert damaged != data
        with tf.Graph().as_default(), pytest.raises((tf.errors.OpError, ValueError), match=r"UTF-8|is damaged"):
            anabranch.onnx.import_model(damaged)


def test_unknown_versions_are_refused():
    message = _model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"], opset=999)
    with pytest.raises(tf.errors.UnimplementedError, match="operator set 999"):
        anabranch.onnx.import_model(message)


def test_damaged_files_are_refused_or_read():
    data = _model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    refusals = (tf.errors.OpError, ValueError, TypeError)
    for place in range(len(data)):
        for damaged in (data[:place], data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]):
            with tf.Graph().as_default() as graph:
                try:
                    anabranch.onnx.import_model(damaged)
                except refusals:
                    assert not graph.get_operations()
