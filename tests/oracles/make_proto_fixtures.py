"""Takes from a genuine TensorFlow what the tests of `anabranch.proto` and of the op vocabulary compare with.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_proto_fixtures.py

It writes

* `tests/fixtures/proto_fields.json`: every field of every message, and every enum (`_field_facts`);
* `tests/fixtures/tensorflow/op_signatures.json.gz`: the signature of every registered op (`_signature`);
* `tests/fixtures/tensorflow/tensors.json`: TensorProtos in all encodings and what TensorFlow reads in them
  (`tensor_cases.py`);
* graphs, examples, events, a meta graph and a saved model that TensorFlow wrote (`graph_files.py`).
"""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import graph_files
import numpy as np
import tensor_cases
import tensorflow as tf
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tensorboard.plugins.projector import projector_config_pb2
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import (
    attr_value_pb2,
    cost_graph_pb2,
    graph_pb2,
    op_def_pb2,
    summary_pb2,
    types_pb2,
    variable_pb2,
)
from tensorflow.core.protobuf import (
    config_pb2,
    control_flow_pb2,
    debug_pb2,
    error_codes_pb2,
    meta_graph_pb2,
    queue_runner_pb2,
    saved_model_pb2,
    saved_object_graph_pb2,
    struct_pb2,
    tensorflow_server_pb2,
    trackable_object_graph_pb2,
)
from tensorflow.core.util import event_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.training import checkpoint_state_pb2

FIXTURES = Path(__file__).parent.parent / "fixtures"

#: Files whose messages are taken, with all those that they refer to.
_MODULES = (
    attr_value_pb2,
    checkpoint_state_pb2,
    config_pb2,
    control_flow_pb2,
    cost_graph_pb2,
    debug_pb2,
    error_codes_pb2,
    event_pb2,
    example_pb2,
    graph_pb2,
    meta_graph_pb2,
    op_def_pb2,
    projector_config_pb2,
    queue_runner_pb2,
    saved_model_pb2,
    saved_object_graph_pb2,
    struct_pb2,
    summary_pb2,
    tensorflow_server_pb2,
    trackable_object_graph_pb2,
    types_pb2,
    variable_pb2,
)
_TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


class _Facts:
    """Collects messages and enums, following the types of fields."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, list[Any]]] = {}
        self.enums: dict[str, dict[str, int]] = {}

    def add_message(self, message: Descriptor) -> None:
        name = _name(message)
        if name in self.messages or not message.file.package.startswith(("tensorflow", "tensorboard")):
            return
        if message.GetOptions().map_entry:
            for field in message.fields:
                self._add_type(field)
            return
        self.messages[name] = {field.name: _field_facts(field) for field in message.fields}
        for field in message.fields:
            self._add_type(field)
        for nested in message.nested_types:
            self.add_message(nested)
        for enum in message.enum_types:
            self.add_enum(enum)

    def add_enum(self, enum: EnumDescriptor) -> None:
        self.enums[_name(enum)] = {value.name: value.number for value in enum.values}

    def _add_type(self, field: FieldDescriptor) -> None:
        if field.message_type is not None:
            self.add_message(field.message_type)
        if field.enum_type is not None:
            self.add_enum(field.enum_type)


def _name(descriptor: Descriptor | EnumDescriptor) -> str:
    return str(descriptor.full_name).removeprefix("tensorflow.").removeprefix("tensorboard.projector.")


def _field_facts(field: FieldDescriptor) -> list[Any]:
    """[number, type, label, oneof, packed]: label is "singular", "repeated" or "map"; oneof a name or null."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of = f"{_type_name(entry.fields_by_name['key'])}, {_type_name(entry.fields_by_name['value'])}"
        return [field.number, of, "map", None, False]
    oneof = field.containing_oneof.name if field.containing_oneof is not None else None
    label = "repeated" if field.is_repeated else "singular"
    return [field.number, _type_name(field), label, oneof, bool(field.is_packed)]


def _type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return _name(field.message_type)
    if field.enum_type is not None:
        return _name(field.enum_type)
    return _TYPE_NAMES[field.type]


def write_proto_fields(path: Path) -> None:
    facts = _Facts()
    for module in _MODULES:
        for message in module.DESCRIPTOR.message_types_by_name.values():
            facts.add_message(message)
        for enum in module.DESCRIPTOR.enum_types_by_name.values():
            facts.add_enum(enum)
    _write_json(path, {"tensorflow": tf.__version__, "messages": facts.messages, "enums": facts.enums})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    """One line per entry of the second level, so that changes can be read."""
    lines = []
    for key, entry in value.items():
        if isinstance(entry, dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(entry.items()))
            lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(entry)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def registered_ops() -> op_def_pb2.OpList:
    """Every op of this TensorFlow's registry, also those without a Python name."""
    return op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))


def _signature(op: op_def_pb2.OpDef) -> dict[str, Any]:
    """{"inputs": [arg], "outputs": [arg], "attrs": [attr]} and the op's flags; see `_arg` and `_attr`."""
    return {
        "inputs": [_arg(arg) for arg in op.input_arg],
        "outputs": [_arg(arg) for arg in op.output_arg],
        "attrs": [_attr(attr) for attr in op.attr],
        "stateful": op.is_stateful,
        "commutative": op.is_commutative,
        "aggregate": op.is_aggregate,
        "allows_uninitialized_input": op.allows_uninitialized_input,
    }


def _arg(arg: op_def_pb2.OpDef.ArgDef) -> dict[str, Any]:
    """{"name"} and, where set, "type" (a dtype's name), "type_attr", "type_list_attr", "number_attr", "is_ref"."""
    facts: dict[str, Any] = {"name": arg.name}
    if arg.type:
        facts["type"] = _dtype_name(arg.type)
    for key in ("type_attr", "type_list_attr", "number_attr"):
        if getattr(arg, key):
            facts[key] = getattr(arg, key)
    if arg.is_ref:
        facts["is_ref"] = True
    return facts


def _attr(attr: op_def_pb2.OpDef.AttrDef) -> dict[str, Any]:
    """{"name", "type"} and those of "default", "allowed", "minimum" that the op states."""
    facts: dict[str, Any] = {"name": attr.name, "type": attr.type}
    if attr.HasField("default_value"):
        facts["default"] = _attr_json(attr.type, attr.default_value)
    if attr.HasField("allowed_values"):
        kind = attr.type.removeprefix("list(").removesuffix(")")
        facts["allowed"] = _attr_json(f"list({kind})", attr.allowed_values)
    if attr.has_minimum:
        facts["minimum"] = attr.minimum
    return facts


def _attr_json(kind: str, value: attr_value_pb2.AttrValue) -> Any:
    """The value as JSON.

    Types by name; shapes as lists with null for an unknown size, or null; floats as the shortest decimal that is the
    same float32, or as text ("inf"); tensors as {"dtype", "shape", "values"}; functions as {"name"}.
    """
    field = {"string": "s", "int": "i", "float": "f", "bool": "b"}
    if kind.startswith("list("):
        element = kind.removeprefix("list(").removesuffix(")")
        items = getattr(value.list, field.get(element, element))
        return [_scalar_json(element, item) for item in items]
    return _scalar_json(kind, getattr(value, field.get(kind, kind)))


def _scalar_json(kind: str, value: Any) -> Any:
    if kind == "string":
        return value.decode("utf-8")
    if kind == "type":
        return _dtype_name(value)
    if kind == "shape":
        return None if value.unknown_rank else [None if dim.size < 0 else dim.size for dim in value.dim]
    if kind == "func":
        return {"name": value.name}
    if kind == "tensor":
        array = tf.make_ndarray(value)
        return {"dtype": _dtype_name(value.dtype), "shape": list(array.shape), "values": array.tolist()}
    if kind == "float":
        return float(str(np.float32(value))) if math.isfinite(value) else str(value)
    return value


def _dtype_name(number: int) -> str:
    return "invalid" if number == 0 else tf.as_dtype(number).name


#: what TensorFlow 1.15 registered and the TensorFlow of today does not
_OF_THAT_TIME: dict[str, dict[str, Any]] = {
    "CompareAndBitpack": {
        "inputs": [{"name": "input", "type_attr": "T"}, {"name": "threshold", "type_attr": "T"}],
        "outputs": [{"name": "output", "type": "uint8"}],
        "attrs": [
            {
                "name": "T",
                "type": "type",
                "allowed": ["bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"],
            }
        ],
    }
}


def write_op_signatures(path: Path) -> None:
    ops = _OF_THAT_TIME | {op.name: _signature(op) for op in registered_ops().op}
    text = json.dumps({"tensorflow": tf.__version__, "ops": ops}, sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    files = FIXTURES / "tensorflow"
    files.mkdir(parents=True, exist_ok=True)
    write_proto_fields(FIXTURES / "proto_fields.json")
    write_op_signatures(files / "op_signatures.json.gz")
    tensor_cases.write(files / "tensors.json")
    graph_files.write(files)


if __name__ == "__main__":
    main()
