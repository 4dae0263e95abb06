"""Reads ONNX files and their weights. Nothing that a file says of sizes and paths is believed before it is checked."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import ml_dtypes  # noqa: F401  # gives NumPy the type bfloat16
import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, numpy_helper

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import element_types

_MAX_BYTES = (1 << 31) - 1  # What a message may have.
_MAX_IR = onnx.IR_VERSION
_PACKED = {TensorProto.BFLOAT16: 2, TensorProto.FLOAT16: 2, TensorProto.BOOL: 1}


def read(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str | None]:
    """The message of a model, and the folder of its file.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it holds no model, or a damaged one.
    """
    if isinstance(model, onnx.ModelProto):
        return model, None
    if isinstance(model, bytes):
        return _parse(model, "the bytes given"), None
    path = os.fsdecode(model)
    if not os.path.isfile(path):
        raise tf.errors.NotFoundError(None, None, f"there is no ONNX file {path!r}")
    size = os.path.getsize(path)
    if size > _MAX_BYTES:
        raise _damaged(repr(path), f"it has {size} bytes, and a message at most {_MAX_BYTES}")
    with open(path, "rb") as file:
        return _parse(file.read(), repr(path)), os.path.dirname(os.path.abspath(path))


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise _damaged(what, f"it is no ONNX model: {error}") from error
    return message


def check(model: onnx.ModelProto) -> None:
    """Checks versions and that every value is made once, before it is used.

    Raises:
        UnimplementedError: a version is newer than those known.
        InvalidArgumentError: the structure is wrong.
    """
    if not 1 <= model.ir_version <= _MAX_IR:
        raise tf.errors.UnimplementedError(
            None, None, f"the model has IR version {model.ir_version}; the versions 1 to {_MAX_IR} can be read"
        )
    newest = onnx.defs.onnx_opset_version()
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if model.ir_version >= 3 and not opsets:
        raise _invalid("the model states no operator set")
    for domain, version in opsets.items():
        if domain in ("", "ai.onnx") and not 1 <= version <= newest:
            raise tf.errors.UnimplementedError(
                None, None, f"the model uses operator set {version}; the sets 1 to {newest} can be read"
            )
    _check_texts(model)
    _check_graph(model.graph, set(), 0)
    for function in model.functions:
        _check_nodes(function.node, set(function.input), f"function {function.name!r}", 0)


def _check_texts(message: Message) -> None:
    """Checks that names are text: a message of this kind is read whatever its strings are, which are bytes then."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in [value] if isinstance(value, Message) else value:
                _check_texts(item)
        elif field.type == FieldDescriptor.TYPE_STRING:
            for text in [value] if isinstance(value, str | bytes) else value:
                if isinstance(text, bytes):
                    raise _invalid(f"{field.full_name} is no text in UTF-8: {text!r:.80}")


def _check_graph(graph: onnx.GraphProto, outer: set[str], depth: int) -> None:
    names = [entry.name for entry in graph.input]
    if len(set(names)) != len(names):
        raise _invalid(f"graph {graph.name!r} has two inputs of one name")
    made = outer | set(names) | {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    made = _check_nodes(graph.node, made, f"graph {graph.name!r}", depth)
    missing = [entry.name for entry in graph.output if entry.name not in made]
    if missing:
        raise _invalid(f"graph {graph.name!r}: nobody makes the outputs {missing}")


def _check_nodes(nodes: Sequence[onnx.NodeProto], given: set[str], where: str, depth: int) -> set[str]:
    if depth > 64:
        raise _invalid(f"{where}: subgraphs are nested more than 64 deep")
    made = {*given, ""}
    everything = made | {name for node in nodes for name in node.output}
    for node in nodes:
        label = f"{where}, node {node.name or list(node.output)} ({node.op_type})"
        for name in node.input:
            if name not in everything:
                raise _invalid(f"{label} needs {name!r}, which nothing makes")
            if name not in made:
                raise _invalid(
                    f"{label} needs {name!r}, which a later node makes: there is a cycle, or the nodes are unsorted"
                )
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _check_graph(attribute.g, made, depth + 1)
        twice = [name for name in node.output if name and name in made and name not in given]
        if twice:
            raise _invalid(f"{label} makes {twice}, which another node makes too")
        made.update(node.output)
    return made


def weights(graph: onnx.GraphProto, folder: str | None) -> dict[str, HostArray]:
    """The initializers of a graph."""
    result = {tensor.name: array_of(tensor, folder) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        result[sparse.values.name] = dense(sparse, folder)
    return result


def dense(sparse: onnx.SparseTensorProto, folder: str | None) -> HostArray:
    """A sparse tensor as a dense array."""
    values, indices = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    dims = [int(d) for d in sparse.dims]
    if any(d < 0 for d in dims) or np.prod(dims, dtype=object) * values.itemsize > _MAX_BYTES:
        raise _invalid(f"sparse tensor {sparse.values.name!r} has the shape {dims}, which is not a size of a message")
    result = np.zeros(dims, values.dtype)
    places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
    if places.size and (places.min() < 0 or places.max() >= result.size):
        raise _invalid(f"sparse tensor {sparse.values.name!r} has places outside of the shape {dims}")
    result.reshape(-1)[places] = values
    return result


def array_of(tensor: onnx.TensorProto, folder: str | None = None) -> HostArray:
    """The value of a tensor; what it says of its size is held against the data that are there.

    Values of a narrow type are those of the dtype that carries it (`element_types`).

    Raises:
        InvalidArgumentError: sizes and data do not fit, or the data are outside of the model's folder.
        UnimplementedError: the element type is not known.
    """
    where = f"tensor {tensor.name!r}"
    narrow = element_types.narrow(tensor.data_type)
    if narrow is not None:
        return _narrow_array(tensor, narrow, folder, where)
    dtype = element_types.numpy_dtype(element_types.dtype_of(tensor.data_type, where))
    if any(size < 0 for size in tensor.dims):
        raise _invalid(f"{where} has a negative size: {list(tensor.dims)}")
    count = 1
    for size in tensor.dims:
        count *= int(size)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _from_bytes(_external(tensor, folder, where), dtype, count, tensor, where)
    if tensor.HasField("raw_data"):
        return _from_bytes(tensor.raw_data, dtype, count, tensor, where)
    stored = max(
        len(tensor.float_data),
        len(tensor.int32_data),
        len(tensor.int64_data),
        len(tensor.string_data),
        len(tensor.double_data),
        len(tensor.uint64_data),
    )
    wanted = count * (2 if dtype.kind == "c" else 1)
    if stored != wanted:
        raise _invalid(f"{where} has the shape {list(tensor.dims)}, which is {wanted} elements, and holds {stored}")
    if tensor.data_type == TensorProto.STRING:
        return np.array(list(tensor.string_data), dtype=object).reshape(tuple(tensor.dims))
    try:
        return np.asarray(numpy_helper.to_array(tensor)).astype(dtype, copy=False)
    except (ValueError, TypeError) as error:
        raise _invalid(f"{where} cannot be read: {error}") from error


def _narrow_array(
    tensor: onnx.TensorProto, narrow: element_types.NarrowType, folder: str | None, where: str
) -> HostArray:
    """Values of an 8-bit type, or of a 4-bit one: two in a byte, the first in the lower half."""
    if any(size < 0 for size in tensor.dims):
        raise _invalid(f"{where} has a negative size: {list(tensor.dims)}")
    count = 1
    for size in tensor.dims:
        count *= int(size)
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, folder, where)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        data = np.array(tensor.int32_data, np.int64).astype(np.uint8).tobytes()
    halves = narrow.bits == 4
    wanted = (count + 1) // 2 if halves else count
    if len(data) != wanted:
        raise _invalid(
            f"{where} has the shape {list(tensor.dims)} of {narrow.name}, which is {wanted} bytes, and holds "
            f"{len(data)}"
        )
    bits = np.frombuffer(data, np.uint8)
    if halves:
        bits = np.stack([bits & 15, bits >> 4], 1).reshape(-1)[:count]
    return narrow.from_bits(bits).reshape(tuple(tensor.dims))


def _from_bytes(
    data: bytes, dtype: np.dtype[np.generic], count: int, tensor: onnx.TensorProto, where: str
) -> HostArray:
    if dtype.kind in "OSU":
        raise _invalid(f"{where} holds strings as raw data")
    if len(data) != count * dtype.itemsize:
        raise _invalid(
            f"{where} has the shape {list(tensor.dims)} of {dtype}, which is {count * dtype.itemsize} bytes, and holds "
            f"{len(data)}"
        )
    return (
        np.frombuffer(data, dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype)
        .astype(dtype)
        .reshape(tuple(tensor.dims))
    )


def _external(tensor: onnx.TensorProto, folder: str | None, where: str) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise _invalid(f"{where} has its data in the file {location!r}: give the path of the model, not its message")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if not location or os.path.isabs(location) or os.path.commonpath([root, path]) != root:
        raise _invalid(f"{where} has its data in {location!r}, which is outside of the model's folder {folder!r}")
    if not os.path.isfile(path):
        raise _invalid(f"{where} has its data in {location!r}, and {folder!r} has no such file")
    size = os.path.getsize(path)
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size - offset)))
    except ValueError as error:
        raise _invalid(f"{where}: offset and length of external data must be numbers: {entries}") from error
    if offset < 0 or length < 0 or offset + length > size:
        raise _invalid(f"{where} has {length} bytes at {offset} of {location!r}, which has {size}")
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


def static_shape(declared: onnx.TypeProto) -> list[int | None] | None:
    """The shape that a model declares; None for sizes that it leaves open."""
    if declared.WhichOneof("value") != "tensor_type" or not declared.tensor_type.HasField("shape"):
        return None
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in declared.tensor_type.shape.dim]
    if any(size is not None and size < 0 for size in sizes):
        raise _invalid(f"the model declares a negative size: {sizes}")
    return sizes


def scope_name(name: str) -> str:
    """A name as operations may have it."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", name).lstrip("_./-") or "value"


def _invalid(reason: str) -> tf.errors.InvalidArgumentError:
    return tf.errors.InvalidArgumentError(None, None, f"The ONNX model is not valid: {reason}.")


def _damaged(what: str, reason: str) -> tf.errors.DataLossError:
    return tf.errors.DataLossError(None, None, f"{what} is damaged: {reason}. Copy or export the model again.")
