"""Meta graphs: collections, variables, savers, scopes, TensorFlow's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.errors import DataLossError
from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.proto.training_pb2 import MetaGraphDef, SaverDef, VariableDef
from anabranch.session import Session
from anabranch.train import meta_graph
from anabranch.train.meta_graph import export_meta_graph, import_scoped_meta_graph, register_proto_function
from anabranch.train.saver import Saver, import_meta_graph

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow"


def model() -> Any:
    x = raw.Placeholder(dtype="float32", shape=[None, 2], name="x")
    w = Variable(np.array([[1.0], [2.0]], np.float32), name="w")
    Variable(3.0, name="untrained", trainable=False)
    y = raw.MatMul(x, w, name="y")
    graph = get_default_graph()
    graph.add_to_collection("outputs", y)
    graph.add_to_collection("outputs", y.op)
    graph.add_to_collection("numbers", 3)
    graph.add_to_collection("ratios", 0.5)
    graph.add_to_collection("words", "text")
    return y


def saved_model(folder: Path) -> str:
    with Graph().as_default(), Session() as session:
        model()
        session.run(global_variables_initializer())
        prefix = Saver(max_to_keep=9).save(session, str(folder / "model"), global_step=4)
        assert prefix is not None
        return prefix


def test_a_saved_graph_runs_in_another_program(tmp_path: Path) -> None:
    prefix = saved_model(tmp_path)
    with Graph().as_default() as graph, Session() as session:
        saver = import_meta_graph(prefix + ".meta")
        assert saver is not None
        assert saver.as_saver_def().max_to_keep == 9  # type: ignore[union-attr]
        saver.restore(session, prefix)
        y, op = graph.get_collection("outputs")
        assert op is y.op
        assert session.run(y, {"x:0": [[1.0, 1.0]]}).tolist() == [[3.0]]
        assert graph.get_collection("numbers") == [3]
        assert graph.get_collection("ratios") == [0.5]
        assert graph.get_collection("words") == [b"text"]
        w, untrained = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        assert graph.get_collection(GraphKeys.TRAINABLE_VARIABLES) == [w]
        assert (w.name, w.shape.as_list(), w.trainable) == ("w:0", [2, 1], True)
        session.run([w.initializer, untrained.initializer])
        assert saver.save(session, str(tmp_path / "again")) == str(tmp_path / "again")


def test_a_scope_for_what_is_imported(tmp_path: Path) -> None:
    prefix = saved_model(tmp_path)
    with Graph().as_default() as graph, Session() as session:
        for scope in ("part", "part_1"):
            saver = import_meta_graph(prefix + ".meta", import_scope="part")
            assert saver is not None
            saver.restore(session, prefix)
            assert session.run(f"{scope}/y:0", {f"{scope}/x:0": [[0.0, 2.0]]}).tolist() == [[4.0]]
        names = [v.name for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)]
        assert names == ["part/w:0", "part/untrained:0", "part_1/w:0", "part_1/untrained:0"]


def test_without_a_saver_one_is_made(tmp_path: Path) -> None:
    with Graph().as_default():
        model()
        message = export_meta_graph()
        text = export_meta_graph(str(tmp_path / "graph.pbtxt"), as_text=True)
        assert text == message
        empty = export_meta_graph(graph=Graph())
    with Graph().as_default():
        assert isinstance(import_meta_graph(message), Saver)
    with Graph().as_default():
        assert isinstance(import_meta_graph(str(tmp_path / "graph.pbtxt")), Saver)
    with Graph().as_default():
        assert import_meta_graph(empty) is None


def test_devices_defaults_and_other_savers_are_left_out_on_demand() -> None:
    with Graph().as_default() as graph:
        with graph.device("/device:CPU:0"):
            model()
        saver = Saver(name="mine")
        for each in (Saver(name="other"), saver):
            graph.add_to_collection("savers", each)
        message = saver.export_meta_graph(clear_devices=True, clear_extraneous_savers=True, strip_default_attrs=True)
    nodes = {node.name: node for node in message.graph_def.node}
    assert not any(node.device for node in nodes.values())
    assert "mine/SaveV2" in nodes
    assert not any(name.startswith("other/") for name in nodes)
    assert "transpose_a" not in nodes["y"].attr
    assert message.meta_info_def.stripped_default_attrs
    assert {op.name for op in message.meta_info_def.stripped_op_list.op} >= {"MatMul", "SaveV2", "VarHandleOp"}
    assert message.saver_def.save_tensor_name == "mine/control_dependency:0"
    kept = message.collection_def["savers"].bytes_list.value
    assert [SaverDef.FromString(data) for data in kept] == [message.saver_def]
    with Graph().as_default():
        assert import_meta_graph(message) is not None


def test_only_some_collections() -> None:
    with Graph().as_default():
        model()
        assert set(export_meta_graph(collection_list=["numbers"]).collection_def) == {"numbers"}
        message = export_meta_graph()
    with Graph().as_default() as graph:
        import_scoped_meta_graph(message, restore_collections_predicate=lambda key: key == "words")
        assert graph.get_all_collection_keys() == ["words"]


def test_a_part_of_a_graph_goes_elsewhere() -> None:
    with Graph().as_default() as graph:
        outside = raw.Placeholder(dtype="float32", shape=[2, 2], name="outside")
        with graph.name_scope("part"), graph.colocate_with(outside):
            w = Variable(np.ones((2, 2), np.float32), name="w")
            raw.MatMul(outside, w, name="y")
        message = export_meta_graph(export_scope="part", unbound_inputs_col_name="unbound_inputs")
    assert {"w", "y"} <= {node.name for node in message.graph_def.node}
    with Graph().as_default() as graph, Session() as session:
        with pytest.raises(ValueError, match=r"unbound inputs: \['\$unbound_inputs_outside'\]"):
            import_scoped_meta_graph(message)
        given = convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
        variables = import_scoped_meta_graph(
            message, import_scope="there", input_map={"$unbound_inputs_outside": given}
        )
        assert list(variables) == ["w"]
        session.run(variables["w"].initializer)
        assert session.run("there/y:0").tolist() == [[3.0, 3.0], [7.0, 7.0]]


def test_objects_with_functions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_graph, "_registered", dict(meta_graph._registered))

    class Thing:
        def __init__(self, name: str) -> None:
            self.name = name

    def to_proto(thing: Thing, export_scope: str | None = None) -> VariableDef:
        return VariableDef(variable_name=thing.name)

    def from_proto(message: VariableDef, import_scope: str | None = None) -> Thing:
        return Thing(f"{import_scope}/{message.variable_name}")

    register_proto_function("things", VariableDef, to_proto, from_proto)
    with pytest.raises(KeyError, match="things"):
        register_proto_function("things", VariableDef)
    with pytest.raises(TypeError, match="callable"):
        register_proto_function("others", VariableDef, to_proto=3)  # type: ignore[arg-type]
    with Graph().as_default() as graph:
        raw.NoOp()
        graph.add_to_collection("things", Thing("one"))
        graph.add_to_collection("unknown", Thing("left out"))
        message = export_meta_graph()
    assert "unknown" not in message.collection_def
    with Graph().as_default() as graph:
        import_scoped_meta_graph(message, import_scope="s")
        assert [thing.name for thing in graph.get_collection("things")] == ["s/one"]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="does not exist"):
        import_meta_graph(str(tmp_path / "none.meta"))
    (tmp_path / "bad.meta").write_bytes(b"\xff\xfe")
    with pytest.raises(OSError, match=r"bad\.meta.*MetaGraphDef"):
        import_meta_graph(str(tmp_path / "bad.meta"))


def test_nothing_is_added_when_a_collection_cannot_be_restored() -> None:
    with Graph().as_default():
        model()
        message = export_meta_graph()
    message.collection_def["outputs"].node_list.value.append("nowhere:0")
    with Graph().as_default() as graph:
        with pytest.raises(KeyError, match="nowhere"):
            import_meta_graph(message)
        assert graph.get_operations() == []
        assert graph.get_all_collection_keys() == []


# ---------------------------------------------------------------------- what TensorFlow wrote
def test_nothing_is_added_where_collections_or_the_saver_are_damaged() -> None:
    message = MetaGraphDef.FromString((FIXTURES / "conv_while.meta").read_bytes())
    message.collection_def["variables"].bytes_list.value[0] += b"\xff"
    with Graph().as_default() as graph:
        with pytest.raises(DataLossError, match=r"'variables'.*is damaged"):
            import_meta_graph(message)
        assert not graph.get_operations()
        message.collection_def["variables"].bytes_list.ClearField("value")
        message.saver_def.restore_op_name = ""
        with pytest.raises(ValueError, match="restore_op_name"):
            import_meta_graph(message)
        assert not graph.get_operations()


def test_tensorflows_old_meta_graph_and_checkpoint_continue_here(tmp_path: Path) -> None:
    record = np.load(FIXTURES / "ref_variables.npz", allow_pickle=False)
    feeds = {"x:0": record["feed/x:0"]}
    with Graph().as_default() as graph, Session() as session:
        saver = import_meta_graph(str(FIXTURES / "ref_variables.ckpt.meta"))
        assert saver is not None
        saver.restore(session, str(FIXTURES / "ref_variables.ckpt"))
        np.testing.assert_allclose(session.run("y:0", feeds), record["fetch/y:0"], rtol=2e-5)
        before = session.run("loss:0", feeds)
        session.run("train", feeds)
        assert session.run("loss:0", feeds) < before
        (w,) = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        assert w.name == "w:0"
        prefix = saver.save(session, str(tmp_path / "ours"))
        value = session.run(w)
    with Graph().as_default() as graph, Session() as session:
        saver = import_meta_graph(f"{prefix}.meta")
        assert saver is not None
        saver.restore(session, prefix)
        np.testing.assert_array_equal(session.run("w:0"), value)
        Saver().restore(session, str(FIXTURES / "ref_variables.ckpt"))
        np.testing.assert_allclose(session.run("y:0", feeds), record["fetch/y:0"], rtol=2e-5)


def test_tensorflows_collections_are_read() -> None:
    message = MetaGraphDef.FromString((FIXTURES / "conv_while.meta").read_bytes())
    assert set(message.collection_def) >= {"variables", "trainable_variables", "global_step", "while_context"}
    definitions = [VariableDef.FromString(v) for v in message.collection_def["variables"].bytes_list.value]
    assert {d.variable_name for d in definitions} >= {"conv/kernel:0", "global_step:0"}


def test_a_variable_in_a_collection_of_the_programs_own_comes_back_as_one() -> None:
    rate = Variable(0.5, name="rate", trainable=False)
    get_default_graph().add_to_collection("a_rate", rate)
    message = export_meta_graph()
    with Graph().as_default() as graph:
        import_scoped_meta_graph(message, import_scope="again")
        (found,) = graph.get_collection("a_rate")
        assert found is graph.get_collection(GraphKeys.GLOBAL_VARIABLES)[0]
        with Session() as session:
            session.run(global_variables_initializer())
            assert session.run(found) == 0.5
