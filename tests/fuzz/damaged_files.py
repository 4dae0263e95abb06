"""What is damaged: files and messages of every format that is read, and what a program does with each."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

import anabranch as tf
from anabranch.io import checkpoint_store, crc32c, plain_safetensors, records, sstable
from anabranch.proto.summary_pb2 import Event
from anabranch.proto.training_pb2 import SavedModel
from anabranch.tools import convert, inspect
from tests.fuzz.damaged_messages import damage, damaged_bytes
from tests.fuzz.sides import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
TENSORFLOW = FIXTURES / "tensorflow"
#: what a refusal of a message may be, beside the errors of steps: those that TensorFlow raises
OF_GRAPHS = (ValueError, TypeError, DecodeError, text_format.ParseError)
#: a step that does not end by itself is ended
_DEADLINE_MS = 4000
#: tensors that are asked for of a graph
_FETCHES = 6


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        make: draws a damaged one, in a folder; returns what it is (a path, or a message).
        use: reads it and runs what it holds.
        refusals: exceptions that are documented there, beside `tf.errors.OpError`.
    """

    make: Callable[[random.Random, Path], Any]
    use: Callable[[Any, Path], None]
    refusals: tuple[type[BaseException], ...] = ()


# ---------------------------------------------------------------------- graphs
def _graph_defs(prefix: str) -> list[Path]:
    found = [path for path in sorted(TENSORFLOW.glob(f"{prefix}*.pb*")) if path.name not in _NO_GRAPHS]
    return [path for path in found if path.suffix != ".pbtxt"]


_NO_GRAPHS = frozenset({"example.pb", "sequence_example.pb", "saved_model.pb"})


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def damaged_graph(draw: random.Random, folder: Path, prefix: str = "") -> tf.GraphDef:
    """A graph that TensorFlow wrote, with a few fields changed."""
    message = tf.GraphDef.FromString(_read(draw.choice(_graph_defs(prefix))))
    damage(message, draw)
    return message


def _damaged_wiring(draw: random.Random, folder: Path) -> tf.GraphDef:
    """A graph of loops and conditionals of primitives, of which inputs go elsewhere and frames have other names."""
    message = tf.GraphDef.FromString(_read(draw.choice(_graph_defs("v1_") + _graph_defs("conv_while"))))
    primitives = ("Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond", "RefEnter", "TensorArrayV3")
    nodes = [node for node in message.node if node.op in primitives]
    for _ in range(draw.choice((1, 1, 2, 3))):
        node, other = draw.choice(nodes), draw.choice(nodes)
        kind = draw.choice(("input", "input", "type", "frame", "constant", "drop", "control"))
        if kind == "input" and node.input:
            node.input[draw.randrange(len(node.input))] = draw.choice((other.name, f"{other.name}:1", f"^{other.name}"))
        elif kind == "type":
            node.op = draw.choice(primitives)
        elif kind == "frame":
            node.attr["frame_name"].s = draw.choice((other.attr["frame_name"].s, b"", b"another"))
        elif kind == "constant":
            node.attr["is_constant"].b = not node.attr["is_constant"].b
            node.attr["parallel_iterations"].i = draw.choice((0, -1, 2**62))
        elif kind == "drop" and node.input:
            del node.input[draw.randrange(len(node.input))]
        else:
            node.input.append(f"^{other.name}")
    return message


def _damaged_functions(draw: random.Random, folder: Path) -> tf.GraphDef:
    """A graph of functions, of which some are missing, call themselves, or have another's signature."""
    message = tf.GraphDef.FromString(_read(TENSORFLOW / draw.choice(("functions.pb", "conv_while.pb"))))
    functions = message.library.function
    if not functions:
        damage(message, draw)
        return message
    names = [function.signature.name for function in functions]
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.choice(("name", "name", "delete", "swap", "body", "call", "call", "any"))
        at = draw.randrange(len(functions))
        nodes = [node for each in [message.node, *(f.node_def for f in functions)] for node in each]
        if kind == "name":
            places = [attr.func for node in nodes for attr in node.attr.values() if attr.WhichOneof("value") == "func"]
            if places:
                draw.choice(places).name = draw.choice(names)
        elif kind == "delete":
            del functions[at]
        elif kind == "swap":
            functions[at].signature.name = draw.choice(names)
        elif kind == "body":
            functions[at].signature.CopyFrom(draw.choice(functions).signature)
        elif kind == "call":
            node = functions[at].node_def.add()
            node.CopyFrom(draw.choice(nodes))
            node.name = draw.choice((node.name, node.name + "_again"))
        else:
            damage(functions[at], draw)
        if not functions:
            break
    return message


def _import(message: tf.GraphDef, folder: Path) -> None:
    with tf.Graph().as_default() as graph:
        before = graph.as_graph_def().SerializeToString()
        try:
            tf.import_graph_def(message, name="")
        except Exception:
            assert graph.as_graph_def().SerializeToString() == before, "the graph has changed"
            raise
        _run_some(graph)


def _run_some(graph: Any) -> None:
    """Runs a step of a few of a graph's tensors, which it feeds what its placeholders say, and exports the graph."""
    random_numbers, feeds = np.random.default_rng(0), {}
    for op in graph.get_operations():
        if op.type == "Placeholder" and (value := _fed(op.outputs[0], random_numbers)) is not None:
            feeds[op.outputs[0]] = value
    hidden = (tf.resource, tf.variant)
    taken = {tensor for op in graph.get_operations() for tensor in op.inputs}
    results = [t for op in graph.get_operations() for t in op.outputs if t not in taken and t.dtype not in hidden]
    options = tf.RunOptions(timeout_in_ms=_DEADLINE_MS)
    graph.as_graph_def(add_shapes=True)
    with tf.Session(graph=graph) as session:
        with contextlib.suppress(tf.errors.OpError):
            session.run([op for op in graph.get_operations() if op.type.startswith("Assign")], options=options)
        if results:
            session.run(results[-_FETCHES:], feeds, options)


def _fed(tensor: Any, random_numbers: np.random.Generator) -> Any:
    rank = tensor.shape.ndims
    shape = [3] * 2 if rank is None else [2 if size is None else size for size in tensor.shape.as_list()]
    if int(np.prod(shape, dtype=object)) > 10**6 or tensor.dtype in (tf.resource, tf.variant):
        return None
    if tensor.dtype == tf.string:
        return np.full(shape, b"text", object)
    return random_numbers.integers(0, 2, shape).astype(tensor.dtype.as_numpy_dtype)


def _bytes_of(*paths: Path) -> Callable[[random.Random, Path], Path]:
    """Makes a damaged copy of one of these files."""

    def make(draw: random.Random, folder: Path) -> Path:
        source = draw.choice(paths)
        target = folder / source.name.removesuffix(".gz")
        data = _read(source)
        for _ in range(draw.choice((1, 1, 2))):
            data = damaged_bytes(data, draw)
        target.write_bytes(data)
        return target

    return make


def _import_file(path: Path, folder: Path) -> None:
    _import(tf.GraphDef.FromString(path.read_bytes()), folder)


def _import_text(path: Path, folder: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    _import(text_format.Parse(text, tf.GraphDef()), folder)


# ---------------------------------------------------------------------- meta graphs and models
_META = (TENSORFLOW / "conv_while.meta", TENSORFLOW / "ref_variables.ckpt.meta")


def _damaged_meta_graph(draw: random.Random, folder: Path) -> Path:
    message = tf.MetaGraphDef.FromString(_read(draw.choice(_META)))
    part = draw.choice((message, message.saver_def, message.collection_def["variables"], message.graph_def))
    damage(part, draw)
    path = folder / "model.meta"
    path.write_bytes(message.SerializeToString())
    return path


def _import_meta_graph(path: Path, folder: Path) -> None:
    with tf.Graph().as_default() as graph:
        try:
            tf.train.import_meta_graph(str(path))
        except Exception:
            assert not graph.get_operations(), "the graph has changed"
            raise
        _run_some(graph)


_MODELS = (
    FIXTURES / "saved_model" / "builder",
    FIXTURES / "saved_model" / "functions",
    TENSORFLOW / "boosted_trees" / "exported",
)


def _copied_model(draw: random.Random, folder: Path) -> Path:
    target = folder / "model"
    shutil.copytree(draw.choice(_MODELS), target)
    return target


def _damaged_model(draw: random.Random, folder: Path) -> Path:
    """A SavedModel whose message says something else."""
    target = _copied_model(draw, folder)
    path = target / "saved_model.pb"
    message = SavedModel.FromString(path.read_bytes())
    graph = message.meta_graphs[0]
    parts: list[Any] = [message, graph.saver_def, graph.meta_info_def, graph.graph_def, *graph.signature_def.values()]
    parts += [*graph.collection_def.values(), *graph.asset_file_def]
    damage(draw.choice(parts), draw)
    if draw.random() < 0.2:
        path.unlink()
        (target / "saved_model.pbtxt").write_text(text_format.MessageToString(message), encoding="utf-8")
    else:
        path.write_bytes(message.SerializeToString())
    return target


def _damaged_model_files(draw: random.Random, folder: Path) -> Path:
    target = _copied_model(draw, folder)
    path = draw.choice([path for path in sorted(target.rglob("*")) if path.is_file()])
    if draw.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
    return target


def _load_model(path: Path, folder: Path) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        message = tf.saved_model.loader.load(session, ["serve"], str(path))
        for signature in message.signature_def.values():
            fetches = [info.name for info in signature.outputs.values() if info.name]
            feeds = {}
            for info in signature.inputs.values():
                tensor = graph.get_tensor_by_name(info.name)
                value = _fed(tensor, np.random.default_rng(0))
                if value is not None:
                    feeds[tensor] = value
            if fetches and signature.method_name:
                session.run(fetches, feeds, tf.RunOptions(timeout_in_ms=_DEADLINE_MS))


# ---------------------------------------------------------------------- checkpoints
def _whole_checkpoint(folder: Path) -> str:
    prefix = str(folder / "model")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("weights", initializer=np.arange(12, dtype=np.float32).reshape(3, 4))
        tf.get_variable("words", initializer=np.array([b"a", b"bcd"], object))
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix, write_meta_graph=False)
    return prefix


def _damaged_own(draw: random.Random, folder: Path) -> Path:
    """A checkpoint in our own format; a manifest that was changed is often sealed anew."""
    prefix = _whole_checkpoint(folder)
    path = Path(draw.choice(checkpoint_store.list_files(prefix)))
    data = path.read_bytes()
    if path.suffix == ".json" and draw.random() < 0.7:
        manifest = json.loads(data)
        _damage_json(manifest, draw)
        manifest.pop("manifest_crc32c", None)
        body = json.dumps(manifest)[:-1].encode()
        path.write_bytes(body + b',\n"manifest_crc32c": "%08x"\n}\n' % crc32c.crc32c(body))
    else:
        path.write_bytes(damaged_bytes(data, draw))
    return Path(prefix)


def _damage_json(value: Any, draw: random.Random) -> None:
    """Changes something in lists and dictionaries."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.9:
            value = inner
            continue
        if draw.random() < 0.15:
            del value[key]
        else:
            value[key] = draw.choice(
                (-1, 0, 1, 2**40, 2**62, 2**70, "", "../x", "float99", None, [], {}, 1.5, True, [2**40] * 3, "\0")
            )
        return


_BUNDLES = (
    FIXTURES / "tensor_bundle" / "variables",
    FIXTURES / "tensor_bundle" / "sharded",
    FIXTURES / "object_checkpoints" / "graph-1",
    TENSORFLOW / "ref_variables.ckpt",
)


def _damaged_bundle(draw: random.Random, folder: Path) -> Path:
    """A checkpoint of version 2; an index that was changed is often sealed anew."""
    source = draw.choice(_BUNDLES)
    for path in sorted(source.parent.glob(f"{source.name}.*")):
        if path.suffix not in (".npz", ".meta"):
            shutil.copy(path, folder / path.name)
    prefix = folder / source.name
    path = draw.choice(sorted(folder.glob(f"{source.name}.*")))
    if path.suffix == ".index" and draw.random() < 0.8:
        path.write_bytes(_damaged_table(path.read_bytes(), draw))
    else:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
    return prefix


def _damaged_table(data: bytes, draw: random.Random) -> bytes:
    entries = sstable.read_table(data)
    key = draw.choice(sorted(entries))
    value = entries.pop(key)
    kind = draw.choice(("value", "value", "value", "key", "drop", "swap", "insert"))
    if kind == "value":
        entries[key] = damaged_bytes(value, draw)
    elif kind == "key":
        entries[damaged_bytes(key, draw)] = value
    elif kind == "swap":
        entries[key] = entries[draw.choice(sorted(entries))] if entries else value
    elif kind == "insert":
        entries |= {key: value, draw.choice((b"\xff", b"../x", b"\0", b"")): value}
    return sstable.write_table(entries)


_OLDER = (TENSORFLOW / "older_checkpoint" / "whole", TENSORFLOW / "older_checkpoint" / "shard-00000-of-00002")


def _damaged_older(draw: random.Random, folder: Path) -> Path:
    """A checkpoint of version 1, a table whose values are messages; often sealed anew."""
    source = draw.choice(_OLDER)
    data = source.read_bytes()
    target = folder / "model"
    target.write_bytes(_damaged_table(data, draw) if draw.random() < 0.7 else damaged_bytes(data, draw))
    return target


def _damaged_plain(draw: random.Random, folder: Path) -> Path:
    """A safetensors file: damage to its header, which is JSON, or to its bytes."""
    path = folder / "model.safetensors"
    with checkpoint_store.open_checkpoint(str(FIXTURES / "tensor_bundle" / "sharded")) as reader:
        plain_safetensors.write_plain_file(str(path), reader, reader.names())
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    if draw.random() < 0.7:
        header = json.loads(data[8 : 8 + size])
        _damage_json(header, draw)
        text = json.dumps(header).encode()
        data = struct.pack("<Q", len(text)) + text + data[8 + size :]
    else:
        data = damaged_bytes(data, draw)
    path.write_bytes(data)
    return path


def _read_checkpoint(prefix: Path, folder: Path) -> None:
    reader = tf.train.NewCheckpointReader(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    for name in sorted(shapes):
        value = reader.get_tensor(name)
        assert list(np.shape(value)) == list(shapes[name]), f"{name}: {np.shape(value)}, said to be {shapes[name]}"
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [
            tf.get_variable(f"v{number}", shape, dtype)
            for number, (name, dtype) in enumerate(sorted(reader.get_variable_to_dtype_map().items()))
            if (shape := shapes[name]) is not None
        ]
        if variables:
            names = sorted(shapes)
            tf.train.Saver(dict(zip(names, variables, strict=True))).restore(session, str(prefix))
    target = str(folder / "converted.safetensors")
    convert.convert(str(prefix), target, "safetensors")


# ---------------------------------------------------------------------- records and events
def _damaged_records(draw: random.Random, folder: Path) -> Path:
    """TFRecords of examples, plain or compressed; records that were changed are often framed anew."""
    compression = draw.choice(("", "GZIP", "ZLIB"))
    example = _read(TENSORFLOW / "example.pb")
    contents = [example, b"", draw.randbytes(200)]
    framed = draw.random() < 0.5
    if framed:
        contents = [damaged_bytes(content, draw) for content in contents]
    path = folder / f"data{compression}.tfrecord"
    with tf.python_io.TFRecordWriter(str(path), records.TFRecordOptions(compression)) as writer:
        for content in contents:
            writer.write(content)
    if not framed:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
    return path


def _read_records(path: Path, folder: Path) -> None:
    compression = path.stem.removeprefix("data")
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tf.data.TFRecordDataset(str(path), compression)
        record = dataset.make_one_shot_iterator().get_next()
        parsed = tf.parse_single_example(record, {"nothing": tf.VarLenFeature(tf.float32)})
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                with contextlib.suppress(tf.errors.InvalidArgumentError):
                    session.run(parsed)
    for _ in tf.python_io.tf_record_iterator(str(path), records.TFRecordOptions(compression)):
        pass


def _damaged_events(draw: random.Random, folder: Path) -> Path:
    """An event file: damage to its bytes, or to the messages in it."""
    source = TENSORFLOW / "events.out.tfevents"
    path = folder / "events.out.tfevents.1.host"
    if draw.random() < 0.6:
        events = [Event.FromString(record) for record in tf.python_io.tf_record_iterator(str(source))]
        damage(draw.choice(events), draw)
        texts = [event.SerializeToString() for event in events]
        if draw.random() < 0.3:
            texts = [damaged_bytes(text, draw) for text in texts]
        path.write_bytes(b"".join(map(records.frame, texts)))
    else:
        path.write_bytes(damaged_bytes(source.read_bytes(), draw))
    return path


def _read_events(path: Path, folder: Path) -> None:
    _inspect(path, folder)
    for event in tf.train.summary_iterator(str(path)):
        for value in event.summary.value:
            if value.HasField("tensor"):
                tf.make_ndarray(value.tensor)


def _inspect(path: Path, folder: Path) -> None:
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        inspect.main([str(path), "--verify", "--all"])


def _damaged_for_inspect(draw: random.Random, folder: Path) -> Path:
    makers = (_damaged_bundle, _damaged_own, _damaged_older, _damaged_plain, _damaged_model, _damaged_meta_graph)
    return draw.choice(makers)(draw, folder)


# ---------------------------------------------------------------------- ONNX
def _onnx_models() -> Iterator[Path]:
    import onnx.backend.test  # an extra, which need not be there

    folder = Path(onnx.backend.test.__file__).parent / "data" / "node"
    yield from sorted(folder.glob("*/model.onnx"))


def _damaged_onnx(draw: random.Random, folder: Path) -> Any:
    import onnx

    path = draw.choice(list(_onnx_models()))
    message = onnx.ModelProto.FromString(path.read_bytes())
    if draw.random() < 0.15:
        return damaged_bytes(message.SerializeToString(), draw)
    damage(message, draw)
    return message


def _import_onnx(message: Any, folder: Path) -> None:
    import anabranch.onnx

    with tf.Graph().as_default() as graph:
        try:
            model = anabranch.onnx.import_model(message)
        except Exception:
            assert not graph.get_operations(), "the graph has changed"
            raise
        random_numbers = np.random.default_rng(0)
        feeds = {tensor: _fed(tensor, random_numbers) for tensor in model.inputs.values()}
        if model.outputs and all(value is not None for value in feeds.values()):
            with tf.Session() as session:
                session.run(dict(model.outputs), feeds, tf.RunOptions(timeout_in_ms=_DEADLINE_MS))


#: what `import_graph_def` documents, and what protocol buffers say of bytes
_FILES = (*OF_GRAPHS, OSError, UnicodeError)
SUBJECTS: dict[str, Subject] = {
    "graph": Subject(damaged_graph, _import, OF_GRAPHS),
    "loops": Subject(_damaged_wiring, _import, OF_GRAPHS),
    "functions": Subject(_damaged_functions, _import, OF_GRAPHS),
    "graph-bytes": Subject(_bytes_of(*_graph_defs("")), _import_file, OF_GRAPHS),
    "graph-text": Subject(
        _bytes_of(TENSORFLOW / "conv_while.pbtxt", TENSORFLOW / "functions.pbtxt"), _import_text, OF_GRAPHS
    ),
    "meta-graph": Subject(_damaged_meta_graph, _import_meta_graph, (*_FILES, KeyError)),
    "meta-graph-bytes": Subject(_bytes_of(*_META), _import_meta_graph, (*_FILES, KeyError)),
    "model": Subject(_damaged_model, _load_model, (*_FILES, RuntimeError, KeyError)),
    "model-files": Subject(_damaged_model_files, _load_model, (*_FILES, RuntimeError, KeyError)),
    "own-checkpoint": Subject(_damaged_own, _read_checkpoint, (ValueError,)),
    "bundle": Subject(_damaged_bundle, _read_checkpoint, (ValueError,)),
    "older-checkpoint": Subject(_damaged_older, _read_checkpoint, (ValueError,)),
    "safetensors": Subject(_damaged_plain, _read_checkpoint, (ValueError,)),
    "records": Subject(_damaged_records, _read_records),
    "events": Subject(_damaged_events, _read_events, OF_GRAPHS),
    "inspect": Subject(_damaged_for_inspect, _inspect),
    "onnx": Subject(_damaged_onnx, _import_onnx, OF_GRAPHS),
}
