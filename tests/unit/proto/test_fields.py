"""Every message and enum agrees with TensorFlow's: names, numbers, types, labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from anabranch import errors
from anabranch.core.dtypes import as_dtype
from anabranch.proto import (
    config_pb2,
    error_code_pb2,
    example_pb2,
    graph_pb2,
    projector_pb2,
    saved_object_pb2,
    step_stats_pb2,
    summary_pb2,
    training_pb2,
)
from tests.each_case import each_case

FACTS = json.loads((Path(__file__).parents[2] / "fixtures" / "proto_fields.json").read_text())
MODULES: tuple[ModuleType, ...] = (
    config_pb2,
    error_code_pb2,
    example_pb2,
    graph_pb2,
    projector_pb2,
    saved_object_pb2,
    step_stats_pb2,
    summary_pb2,
    training_pb2,
)
TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
#: Messages of TensorFlow's that anabranch has no use for, though the files above refer to none of them.
LEFT_OUT = {
    "BatchingOptions",
    "DebuggedSourceFile",
    "DebuggedSourceFiles",
    "RequestedExitCode",
    "WatchdogConfig",
    "WorkerHeartbeatRequest",
    "WorkerHeartbeatResponse",
}


def name_of(descriptor: Descriptor | EnumDescriptor) -> str:
    return str(descriptor.full_name).removeprefix("anabranch.")


def messages_in(descriptor: Descriptor) -> list[Descriptor]:
    nested = [m for m in descriptor.nested_types if not m.GetOptions().map_entry]
    return [descriptor] + [inner for m in nested for inner in messages_in(m)]


def type_of(field: FieldDescriptor) -> str:
    of = field.message_type or field.enum_type
    return TYPE_NAMES[field.type] if of is None else name_of(of)


def facts_of(field: FieldDescriptor) -> list[Any]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return [field.number, f"{type_of(key)}, {type_of(value)}", "map", None, False]
    oneof = None if field.containing_oneof is None else field.containing_oneof.name
    return [field.number, type_of(field), "repeated" if field.is_repeated else "singular", oneof, bool(field.is_packed)]


TOP = [m for module in MODULES for m in module.DESCRIPTOR.message_types_by_name.values()]
MESSAGES = {name_of(m): m for top in TOP for m in messages_in(top)}
ENUMS = {name_of(e): e for module in MODULES for e in module.DESCRIPTOR.enum_types_by_name.values()} | {
    name_of(e): e for message in MESSAGES.values() for e in message.enum_types
}


@each_case("name", sorted(MESSAGES))
def test_message_has_exactly_tensorflows_fields(name: str) -> None:
    assert {field.name: facts_of(field) for field in MESSAGES[name].fields} == FACTS["messages"][name]


@each_case("name", sorted(ENUMS))
def test_enum_has_exactly_tensorflows_numbers(name: str) -> None:
    assert {value.name: value.number for value in ENUMS[name].values} == FACTS["enums"][name]


def test_no_message_is_missing() -> None:
    assert set(FACTS["messages"]) - set(MESSAGES) == LEFT_OUT


def test_dtypes_have_the_numbers_of_the_enum() -> None:
    words = {"HALF": "float16", "FLOAT": "float32", "DOUBLE": "float64"}
    for name, number in graph_pb2.DataType.items():
        text, _, ref = name.removeprefix("DT_").partition("_REF")
        if text in ("INVALID", "FLOAT8_E4M3FNUZ", "FLOAT8_E4M3B11FNUZ", "FLOAT8_E5M2FNUZ", "FLOAT4_E2M1FN"):
            continue
        if text in ("INT4", "UINT4", "INT2", "UINT2"):
            continue
        dtype = as_dtype(number)
        assert dtype.name == words.get(text, text.lower()) + ("_ref" if name.endswith("_REF") else "")
        assert ref == ""


def test_error_classes_have_the_numbers_of_the_enum() -> None:
    for name in ("CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "DATA_LOSS", "UNAUTHENTICATED"):
        assert getattr(errors, name) == error_code_pb2.Code.Value(name)
