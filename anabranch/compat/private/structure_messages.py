"""`tensorflow.python.saved_model.nested_structure_coder`: nested structures of specifications as messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.frontend.bounded_specs import BoundedTensorSpec
from anabranch.proto.saved_object_pb2 import NoneValue, StructuredValue


class NotEncodableError(Exception):
    """There is no message for an object."""


class StructureCoder:
    """Makes messages of structures of numbers, texts, shapes, dtypes and specifications of tensors, and back."""

    def can_encode(self, nested: PassedOn) -> bool:
        """Whether there is a message for a structure."""
        try:
            self.encode_structure(nested)
        except NotEncodableError:
            return False
        return True

    def encode_structure(self, nested_structure: PassedOn) -> StructuredValue:
        """The message of a structure.

        Raises:
            NotEncodableError: there is none for something in it.
        """
        return _encoded(nested_structure)

    def decode_proto(self, proto: StructuredValue) -> Any:
        """The structure of a message.

        Raises:
            NotEncodableError: it holds something that is unknown here.
        """
        return _decoded(proto)


def _encoded(value: PassedOn) -> StructuredValue:
    made = StructuredValue()
    message: Any = made
    if value is None:
        message.none_value.CopyFrom(NoneValue())
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        message.int64_value = value
    elif isinstance(value, float):
        message.float64_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, tf.TensorShape):
        message.tensor_shape_value.CopyFrom(value.as_proto())
    elif isinstance(value, tf.DType):
        message.tensor_dtype_value = value.as_datatype_enum
    elif isinstance(value, tf.TensorSpec):
        _encode_spec(value, message)
    else:
        _encode_nest(value, message)
    return made


def _encode_nest(value: PassedOn, message: StructuredValue) -> None:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        message.named_tuple_value.name = type(value).__name__
        for key, item in zip(value._fields, value, strict=True):
            message.named_tuple_value.values.add(key=key, value=_encoded(item))
    elif isinstance(value, tuple):
        message.tuple_value.values.extend(map(_encoded, value))
        message.tuple_value.SetInParent()
    elif isinstance(value, list):
        message.list_value.values.extend(map(_encoded, value))
        message.list_value.SetInParent()
    elif isinstance(value, Mapping):
        message.dict_value.SetInParent()
        for key, item in value.items():
            message.dict_value.fields[key].CopyFrom(_encoded(item))
    else:
        raise NotEncodableError(f"No encoder for object {value!r} of type {type(value)}.")


def _encode_spec(spec: tf.TensorSpec, message: StructuredValue) -> None:
    is_bounded = isinstance(spec, BoundedTensorSpec)
    inner: Any = message.bounded_tensor_spec_value if is_bounded else message.tensor_spec_value
    inner.name = spec.name or ""
    inner.shape.CopyFrom(spec.shape.as_proto())
    inner.dtype = spec.dtype.as_datatype_enum
    if isinstance(spec, BoundedTensorSpec):
        inner.minimum.CopyFrom(tf.make_tensor_proto(spec.minimum))
        inner.maximum.CopyFrom(tf.make_tensor_proto(spec.maximum))


def _decoded(message: StructuredValue) -> Any:
    kind = message.WhichOneof("kind")
    value: Any = None if kind is None else getattr(message, kind)
    if kind == "none_value":
        return None
    if kind in ("bool_value", "int64_value", "float64_value", "string_value"):
        return value
    if kind == "tensor_shape_value":
        return tf.TensorShape(value)
    if kind == "tensor_dtype_value":
        return tf.as_dtype(value)
    if kind in ("tensor_spec_value", "bounded_tensor_spec_value"):
        return _decode_spec(value, kind)
    if kind in ("list_value", "tuple_value"):
        items = [_decoded(item) for item in value.values]
        return items if kind == "list_value" else tuple(items)
    if kind == "dict_value":
        return {key: _decoded(item) for key, item in value.fields.items()}
    if kind == "named_tuple_value":
        fields = {pair.key: _decoded(pair.value) for pair in value.values}
        kind_of_tuple: Any = NamedTuple(value.name, [(key, Any) for key in fields])  # type: ignore[misc]
        return kind_of_tuple(**fields)
    raise NotEncodableError(f"No decoder for a value of kind {kind!r}.")


def _decode_spec(value: PassedOn, kind: str) -> tf.TensorSpec:
    shape, dtype, name = tf.TensorShape(value.shape), tf.as_dtype(value.dtype), value.name or None
    if kind == "tensor_spec_value":
        return tf.TensorSpec(shape, dtype, name)
    return BoundedTensorSpec(shape, dtype, tf.make_ndarray(value.minimum), tf.make_ndarray(value.maximum), name)
