"""SavedModels: written and read here, read by TensorFlow, written by TensorFlow, damaged."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import anabranch as tf
from anabranch import errors
from anabranch.proto.training_pb2 import AssetFileDef, SavedModel
from anabranch.serving import assets, loader
from anabranch.tools.docstrings import parse
from tests.example_checker import run_example

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "saved_model"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
WORDS = ["b", "z", "a"]

#: loads a model with TensorFlow, and prints what it computes of the words
LOAD_IT = """
import json, sys
import tensorflow.compat.v1 as tf
with tf.Graph().as_default(), tf.Session() as session:
    model = tf.saved_model.loader.load(session, ["serve"], sys.argv[1])
    signature = model.signature_def["serving_default"]
    feeds = {signature.inputs["words"].name: sys.argv[2:]}
    print(json.dumps(session.run(signature.outputs["found"].name, feeds).tolist()))
"""


def outputs_of(folder: Path, import_scope: str | None = None) -> list[list[float]]:
    """Loads a model, and computes what its signature says of the words."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        model = tf.saved_model.loader.load(session, {"serve"}, str(folder), import_scope)
        signature = model.signature_def["serving_default"]
        words = tf.saved_model.get_tensor_from_tensor_info(signature.inputs["words"], graph, import_scope)
        found = tf.saved_model.get_tensor_from_tensor_info(signature.outputs["found"], graph, import_scope)
        result: list[list[float]] = session.run(found, {words: WORDS}).tolist()
        return result


def build(tmp_path: Path, *, as_text: bool = False) -> tuple[Path, list[list[float]]]:
    """A model with a table, an asset and a partitioned variable; and its outputs."""
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a\nb\nc\n")
    folder = tmp_path / "model"
    with tf.Graph().as_default(), tf.Session() as session:
        words = tf.placeholder(tf.string, [None], name="words")
        table = tf.contrib.lookup.index_table_from_file(str(vocabulary), default_value=3)
        with tf.variable_scope("part", partitioner=tf.fixed_size_partitioner(2)):
            rows = tf.get_variable("rows", initializer=np.arange(8, dtype=np.float32).reshape(4, 2))
        scale = tf.get_variable("scale", initializer=0.25)
        with tf.device("/cpu:0"):
            found = tf.multiply(tf.gather(tf.convert_to_tensor(rows), table.lookup(words)), scale, name="found")
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        builder = tf.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": tf.saved_model.predict_signature_def({"words": words}, {"found": found})},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            clear_devices=True,
            strip_default_attrs=True,
        )
        builder.save(as_text)
        outputs = session.run(found, {words: WORDS}).tolist()
    vocabulary.unlink()
    return folder, outputs


def test_assets_that_are_spelled_out_in_text_are_loaded(tmp_path: Path) -> None:
    """So TensorFlow's builder writes them."""
    folder, outputs = build(tmp_path, as_text=True)
    file = folder / "saved_model.pbtxt"
    kept = next(line for line in file.read_text().splitlines() if line.strip().startswith("type_url:"))
    start = file.read_text().index(kept)
    end = file.read_text().index("}", start)
    spelled_out = (
        "[type.googleapis.com/tensorflow.AssetFileDef] { "
        f"{text_format.MessageToString(_only_asset(file), as_one_line=True)} }}"
    )
    file.write_text(f"{file.read_text()[:start]}{spelled_out}{file.read_text()[end:]}")
    assert outputs_of(folder) == outputs


def _only_asset(file: Path) -> AssetFileDef:
    model = text_format.Parse(file.read_text(), SavedModel())
    (packed,) = model.meta_graphs[0].collection_def["saved_model_assets"].any_list.value
    return AssetFileDef.FromString(packed.value)


@pytest.mark.parametrize("as_text", [False, True])
def test_what_is_written_is_loaded(tmp_path: Path, as_text: bool) -> None:
    folder, outputs = build(tmp_path, as_text=as_text)
    assert tf.saved_model.contains_saved_model(str(folder))
    moved = folder.rename(tmp_path / "moved")
    assert outputs_of(moved) == outputs
    assert outputs_of(moved, "scope") == outputs
    (graph,) = loader.parse_saved_model(str(moved)).meta_graphs
    assert graph.meta_info_def.stripped_default_attrs
    assert not any(node.device for node in graph.graph_def.node)
    assert not list(moved.glob(".*")), "something written aside is left"


@pytest.mark.skipif(not PEERS.exists(), reason="there is no genuine TensorFlow here")
def test_tensorflow_loads_what_is_written(tmp_path: Path) -> None:
    folder, outputs = build(tmp_path)
    command = [PEERS, "-c", LOAD_IT, str(folder), *WORDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == outputs


def test_what_tensorflow_wrote_is_loaded(tmp_path: Path) -> None:
    expected = json.loads((FIXTURES / "outputs.json").read_text())
    assert outputs_of(FIXTURES / "builder") == expected
    shutil.copytree(FIXTURES / "builder", tmp_path / "text")
    binary = tmp_path / "text" / "saved_model.pb"
    model = SavedModel.FromString(binary.read_bytes())
    binary.with_suffix(".pbtxt").write_text(text_format.MessageToString(model))
    binary.unlink()
    assert outputs_of(tmp_path / "text") == expected


def test_what_tensorflow_2_saves_is_served() -> None:
    """Signatures, restoring and initializing are calls of functions, which call others (`graph.copied_calls`)."""
    expected = json.loads((FIXTURES / "functions.json").read_text())
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.loader.load(session, ["serve"], str(FIXTURES / "functions")).signature_def
        serve, look_up = signatures["serving_default"], signatures["look_up"]
        for x, outputs in zip(expected["inputs"], expected["outputs"], strict=True):
            got = session.run({key: info.name for key, info in serve.outputs.items()}, {serve.inputs["x"].name: x})
            assert got.keys() == outputs.keys()
            for key, value in outputs.items():
                assert np.allclose(got[key], value, rtol=1e-6), key
        found = session.run(look_up.outputs["values"].name, {look_up.inputs["keys"].name: expected["keys"]})
        assert found.tolist() == expected["values"]
        # in the function that saves; here readers pin buffers
        session.run([op for op in session.graph.get_operations() if op.type == "DisableCopyOnRead"])


def test_tags_choose_a_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.saved_model.loader.load(session, ["gpu", "train"], str(FIXTURES / "builder"))
        assert session.run("scale:0") == 0.5
        assert [v.op.name for v in tf.global_variables()] == ["scale"]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with pytest.raises(RuntimeError, match=r"tags \['train'\] could not be found.*\['gpu', 'train'\]"):
            tf.saved_model.loader.load(session, ["train"], str(FIXTURES / "builder"))
        assert not graph.get_operations()


def test_a_further_graph_has_the_main_operation_and_the_assets_of_the_first(tmp_path: Path) -> None:
    """As TensorFlow's, whose builder leaves both in collections of the graph."""
    (tmp_path / "words.txt").write_text("a\nb\n")
    with tf.Graph().as_default(), tf.Session() as session:
        path = tf.constant(str(tmp_path / "words.txt"))
        kind = (tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *kind), -1)
        local = tf.Variable(1.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        out = tf.add(tf.cast(table.lookup(tf.constant(["b"])), tf.float32), local, name="out")
        tf.Variable(0.0)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        builder = tf.saved_model.Builder(str(tmp_path / "model"))
        main = tf.group(tf.tables_initializer(), tf.assign(local, 10.0))
        builder.add_meta_graph_and_variables(session, ["first"], assets_collection=[path], main_op=main)
        builder.add_meta_graph(["second"])
        builder.save()
    (tmp_path / "words.txt").unlink()
    for tag in ("first", "second"):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.saved_model.load(session, [tag], str(tmp_path / "model"))
            assert session.run(out.name) == [11.0]


def test_the_builder_refuses(tmp_path: Path) -> None:
    builder = tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "model"))
    with pytest.raises(AssertionError, match="has not been saved yet"):
        builder.add_meta_graph(["serve"])
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, name="x")
        nameless = tf.saved_model.build_signature_def({"x": tf.saved_model.build_tensor_info(x)})
        nameless.inputs["x"].name = ""
        with pytest.raises(AssertionError, match="'x' of signature 'k' has none"):
            builder.add_meta_graph_and_variables(session, ["serve"], {"k": nameless})
        with pytest.raises(KeyError, match="reserved"):
            builder.add_meta_graph_and_variables(session, ["serve"], {"__saved_model_init_op": nameless})
        with pytest.raises(TypeError, match="main_op needs to be an Operation"):
            builder.add_meta_graph_and_variables(session, ["serve"], main_op=x)
        absent = tf.constant(str(tmp_path / "absent"))
        with pytest.raises(errors.NotFoundError, match="absent"):
            builder.add_meta_graph_and_variables(session, ["serve"], assets_collection=[absent])
        builder.add_meta_graph_and_variables(session, ["serve"])
        with pytest.raises(AssertionError, match="already been saved"):
            builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
        with pytest.raises(AssertionError, match="isn't empty"):
            tf.saved_model.Builder(str(tmp_path / "model"))
        tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "model"), "copy")  # without any variables
        assert session.graph.get_tensor_by_name("copy/x:0").dtype == tf.float32


def test_uninitialized_variables_leave_no_model(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("v", initializer=1.0)
        x = tf.placeholder(tf.float32, name="x")
        with pytest.raises(errors.FailedPreconditionError):
            tf.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": x})
    assert not tf.saved_model.contains_saved_model(str(tmp_path / "model"))
    assert not [path for path in (tmp_path / "model").rglob("*") if path.is_file()]


def test_signatures() -> None:
    with tf.Graph().as_default():
        examples, classes = tf.placeholder(tf.string, [None]), tf.placeholder(tf.string, [None, 2])
        scores = tf.placeholder(tf.float32, [None, 2])
        utils = tf.saved_model.signature_def_utils
        good = [
            utils.classification_signature_def(examples, classes, scores),
            utils.classification_signature_def(examples, None, scores),
            utils.regression_signature_def(examples, scores),
            utils.predict_signature_def({"x": scores}, {"y": scores}),
        ]
        assert all(utils.is_valid_signature(signature) for signature in good)
        assert not utils.is_valid_signature(utils.build_signature_def(good[0].inputs, {}, good[0].method_name))
        assert not utils.is_valid_signature(None)
        bad: list[tuple[Any, tuple[Any, ...]]] = [
            (utils.classification_signature_def, (examples, None, None)),
            (utils.classification_signature_def, (scores, classes, None)),
            (utils.regression_signature_def, (examples, classes)),
            (utils.regression_signature_def, (None, scores)),
            (utils.predict_signature_def, ({}, {"y": scores})),
        ]
        for function, arguments in bad:
            with pytest.raises(ValueError, match=r"cannot|must be"):
                function(*arguments)
        sparse = tf.sparse_placeholder(tf.int64)
        info = tf.saved_model.build_tensor_info(sparse)
        assert tf.saved_model.get_tensor_from_tensor_info(info).values is sparse.values


@pytest.mark.parametrize("name", ["Builder", "simple_save", "load"])
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = parse(getattr(tf.saved_model, name)).sections["Example"]
    with tf.Graph().as_default(), tf.Session() as sess:
        failed, said = run_example(name, example, {"tf": tf, "np": np, "sess": sess})
    assert failed == 0, said


# ---------------------------------------------------------------------- bad input
@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "builder", tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "", "link", "x\0y", ".", "absent"])
def test_assets_stay_in_their_folder(model: Path, name: str) -> None:
    (model.parent / "secret").write_text("secret")
    (model / "assets" / "link").symlink_to(model.parent / "secret")
    message = SavedModel.FromString((model / "saved_model.pb").read_bytes())
    graph = message.meta_graphs[0]
    graph.asset_file_def.append(AssetFileDef(filename=name))
    (model / "saved_model.pb").write_bytes(message.SerializeToString())
    with tf.Graph().as_default() as loaded, tf.Session() as session:
        with pytest.raises((errors.InvalidArgumentError, errors.NotFoundError), match=r"asset|Asset") as caught:
            tf.saved_model.loader.load(session, ["serve"], str(model))
        assert not loaded.get_operations(), caught.value


def test_assets_of_one_name_are_told_apart(tmp_path: Path) -> None:
    tensors = []
    with tf.Graph().as_default():
        for folder, text in (("one", "1"), ("two", "2"), ("three", "1")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "words").write_text(text)
            tensors.append(tf.constant(str(tmp_path / folder / "words")))
        message = tf.MetaGraphDef()
        assert sorted(assets.list_assets(message, tensors)) == ["words", "words_1"]
        assert len(message.collection_def["saved_model_assets"].any_list.value) == 3


def test_other_versions_and_no_models(model: Path) -> None:
    path = model / "saved_model.pb"
    whole = path.read_bytes()
    path.write_bytes(SavedModel(saved_model_schema_version=9).SerializeToString())
    with pytest.raises(errors.UnimplementedError, match=r"saved_model\.pb' has schema version 9"):
        loader.parse_saved_model(str(model))
    path.write_bytes(b"")
    with pytest.raises(errors.DataLossError, match="holds no meta graph"):
        loader.parse_saved_model(str(model))
    with path.open("wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(errors.DataLossError, match="4294967296 bytes"):
        loader.parse_saved_model(str(model))
    path.write_bytes(whole)
    shutil.rmtree(model / "variables")
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with pytest.raises(errors.NotFoundError, match="variables are missing"):
            tf.saved_model.loader.load(session, ["serve"], str(model))
        assert not graph.get_operations()
    with pytest.raises(OSError, match="SavedModel file does not exist at"):
        loader.parse_saved_model(str(model.parent))


@pytest.mark.parametrize("role", ["main operation", "restore_op_name", "filename_tensor_name"])
@pytest.mark.parametrize("name", ["", "nothing:0", "/etc/passwd"])
def test_nodes_that_a_model_needs_and_lacks(model: Path, role: str, name: str) -> None:
    message = SavedModel.FromString((model / "saved_model.pb").read_bytes())
    (graph,) = (graph for graph in message.meta_graphs if list(graph.meta_info_def.tags) == ["serve"])
    if role == "main operation":
        graph.collection_def["saved_model_main_op"].node_list.value[:] = [name]
    else:
        setattr(graph.saver_def, role, name)
    (model / "saved_model.pb").write_bytes(message.SerializeToString())
    with tf.Graph().as_default() as loaded, tf.Session() as session:
        # an entry of the saver's description that is empty is refused as TensorFlow does
        with pytest.raises((errors.InvalidArgumentError, ValueError), match=role):
            tf.saved_model.loader.load(session, ["serve"], str(model))
        assert not loaded.get_operations()


def test_damaged_models_are_refused_or_loaded(model: Path) -> None:
    """Whatever a few bytes become: an error of ours, or a model; never another exception, never a lost process."""
    dice = random.Random(0)
    files = [path for path in model.rglob("*") if path.is_file()]
    whole = {path: path.read_bytes() for path in files}
    refused = 0
    for _ in range(60):
        path = dice.choice(files)
        data = bytearray(whole[path])
        if dice.random() < 0.3:
            del data[dice.randrange(len(data)) :]
        else:
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        try:
            with tf.Graph().as_default(), tf.Session() as session:
                tf.saved_model.loader.load(session, ["serve"], str(model))
        except (errors.OpError, ValueError, TypeError, KeyError, RuntimeError, OSError):
            refused += 1
        path.write_bytes(whole[path])
    assert refused > 20
