"""Saving and restoring tensors as operations of the graph  (§4.3; design D10)."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core.arrays import Array
from anabranch.core.compat import as_bytes, as_text
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.io import checkpoint_store, checkpoint_writer, older_checkpoint, tensor_bundle_writer
from anabranch.io.slices import SliceInfo
from anabranch.io.tensor_reader import TensorReader
from anabranch.ops import shape_rules

_MAX_NAMES_SHOWN = 20
_SCALAR = TensorShape([])


def _bytes(value: Array) -> bytes:
    return as_bytes(np.asarray(value, np.object_).reshape(())[()])


def _text(value: Array) -> str:
    return as_text(np.asarray(value, np.object_).reshape(())[()])


def _texts(values: Array) -> list[str]:
    return [as_text(item) for item in np.asarray(values, np.object_).reshape(-1)]


def _check_vectors(prefix: TensorShape, names: TensorShape, slices: TensorShape, count: int) -> None:
    shape_rules.with_rank(prefix, 0, "prefix")
    for what, shape in (("tensor_names", names), ("shape_and_slices", slices)):
        length = shape_rules.with_rank(shape, 1, what)[0].value
        if length is not None and length != count:
            raise ValueError(f"{what} has {length} entries, but there are {count} tensors")


# ---------------------------------------------------------------------- saving
SaveV2 = define_op(
    "SaveV2",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes ->",
    "dtypes: list(type) >= 1",
    stateful=True,
)
SaveV2.not_differentiable()


@SaveV2.shape
def _no_outputs(prefix: TensorShape, names: TensorShape, slices: TensorShape, tensors: list[TensorShape]) -> tuple[()]:
    _check_vectors(prefix, names, slices, len(tensors))
    return ()


@SaveV2.host_kernel
def _(prefix: Array, tensor_names: Array, shape_and_slices: Array, tensors: list[Any]) -> None:
    target = _text(prefix)
    values, boxes = _by_key(target, tensor_names, shape_and_slices, tensors)
    checkpoint_writer.write_checkpoint(target, values, slices=boxes, step=_step_of(target))


def _by_key(
    target: str, tensor_names: Array, shape_and_slices: Array, tensors: list[Any]
) -> tuple[dict[str, Any], dict[str, SliceInfo]]:
    """The tensors to save, each under a key of its own, and what those that are slices are slices of."""
    values: dict[str, Any] = {}
    boxes: dict[str, SliceInfo] = {}
    for name, spec, value in zip(_texts(tensor_names), _texts(shape_and_slices), tensors, strict=True):
        key = f"{name}/{spec}" if spec else name
        if key in values:
            problem = f"the tensor {key!r} is given twice to the checkpoint {target!r}"
            raise errors.InvalidArgumentError(None, None, problem)
        values[key] = value
        if spec:
            boxes[key] = SliceInfo.from_spec(name, spec)
    return values, boxes


def _step_of(prefix: str) -> int | None:
    """The global step that a prefix ends in; a shard's prefix has its own number after that."""
    match = re.search(r"-(\d+)$", re.sub(r"-\d{5}-of-\d{5}$", "", prefix))
    return int(match[1]) if match else None


_SaveTensorBundle = define_op(
    "_SaveTensorBundle",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes ->",
    "dtypes: list(type) >= 1",
    stateful=True,
)
_SaveTensorBundle.not_differentiable()
_SaveTensorBundle.shape(_no_outputs)


@_SaveTensorBundle.host_kernel
def _(prefix: Array, tensor_names: Array, shape_and_slices: Array, tensors: list[Any]) -> None:
    """Saves in TensorFlow's format, in the place of a checkpoint of either format; slices become whole tensors."""
    target = _text(prefix)
    values, boxes = _by_key(target, tensor_names, shape_and_slices, tensors)
    checkpoint_writer.make_directory(os.path.dirname(target))
    tensor_bundle_writer.write_bundle(target, _wholes(target, values, boxes), replace=True)
    checkpoint_writer.remove_checkpoint(target)


def _wholes(
    target: str, values: Mapping[str, Any], boxes: Mapping[str, SliceInfo]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The tensors by name, the parts of one joined."""
    parts: dict[str, list[tuple[SliceInfo, Any]]] = {}
    for key, value in values.items():
        if key in boxes:
            parts.setdefault(boxes[key].full_name, []).append((boxes[key], value))
        else:
            yield key, np.asarray(value)
    for name, pieces in parts.items():
        first = pieces[0][0]
        whole = np.empty(first.full_shape, np.asarray(pieces[0][1]).dtype)
        covered = sum(math.prod(box.var_shape) for box, _ in pieces)
        if covered != whole.size or any(box.full_shape != first.full_shape for box, _ in pieces):
            problem = f"the parts of {name!r} given to the checkpoint {target!r} do not make up the whole"
            raise errors.InvalidArgumentError(None, None, problem)
        for box, value in pieces:
            begins = zip(box.var_offset, box.var_shape, strict=True)
            whole[tuple(slice(begin, begin + length) for begin, length in begins)] = value
        yield name, whole


# ---------------------------------------------------------------------- restoring
RestoreV2 = define_op(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string -> tensors: dtypes",
    "dtypes: list(type) >= 1",
    stateful=True,
)
RestoreV2.not_differentiable()


@RestoreV2.shape
def _(
    prefix: TensorShape, names: TensorShape, slices: TensorShape, *, dtypes: list[DType], ctx: ShapeContext
) -> list[TensorShape]:
    _check_vectors(prefix, names, slices, len(dtypes))
    specs = ctx.constant("shape_and_slices")
    if specs is None:
        return [shape_rules.UNKNOWN] * len(dtypes)
    return [TensorShape(SliceInfo.from_spec("", s).var_shape) if s else shape_rules.UNKNOWN for s in _texts(specs)]


@RestoreV2.host_kernel
def _(prefix: Array, tensor_names: Array, shape_and_slices: Array, *, dtypes: list[DType]) -> list[Any]:
    source = _text(prefix)
    names = _texts(tensor_names)
    with checkpoint_store.open_checkpoint(source) as reader:
        _check_names(reader, names, source)
        _check_dtypes(reader, names, dtypes, source)
        return [
            reader.get_slice(name, spec) if spec else reader.read_tensor(name)
            for name, spec in zip(names, _texts(shape_and_slices), strict=True)
        ]


def _check_names(reader: TensorReader, names: Sequence[str], source: str) -> None:
    missing = [name for name in dict.fromkeys(names) if not reader.has_tensor(name)]
    if not missing:
        return
    stored = reader.names()
    problems = [f"Key {name} not found in checkpoint{_closest(name, stored)}" for name in missing[:_MAX_NAMES_SHOWN]]
    more = f" and {len(missing) - _MAX_NAMES_SHOWN} more" if len(missing) > _MAX_NAMES_SHOWN else ""
    raise errors.NotFoundError(None, None, f"checkpoint {source!r}: {'; '.join(problems)}{more}")


def _closest(name: str, stored: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, stored, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _check_dtypes(reader: TensorReader, names: Sequence[str], dtypes: Sequence[DType], source: str) -> None:
    stored = reader.get_variable_to_dtype_map()
    for name, dtype in zip(names, dtypes, strict=True):
        if stored[name] is not dtype:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"tensor {name!r} of checkpoint {source!r}: expected dtype {dtype.name} does not equal original dtype "
                f"{stored[name].name}; restore it as {stored[name].name} and cast",
            )


# ---------------------------------------------------------------------- sharded checkpoints
ShardedFilename = define_op(
    "ShardedFilename",
    "basename: string, shard: int32, num_shards: int32 -> filename: string",
    ranks={"basename": 0, "shard": 0, "num_shards": 0},
)
ShardedFilename.not_differentiable()
ShardedFilename.shape(shape_rules.scalar)


def _c_string(text: Array) -> bytes:
    """What C's formatting takes of a string, as it is the name of a file: all up to the first zero byte."""
    return _bytes(text).split(b"\0", 1)[0]


@ShardedFilename.host_kernel
def _(basename: Array, shard: Array, num_shards: Array) -> bytes:
    return _c_string(basename) + f"-{int(shard):05d}-of-{int(num_shards):05d}".encode()


ShardedFilespec = define_op(
    "ShardedFilespec", "basename: string, num_shards: int32 -> filename: string", ranks={"basename": 0, "num_shards": 0}
)
ShardedFilespec.not_differentiable()
ShardedFilespec.shape(shape_rules.scalar)


@ShardedFilespec.host_kernel
def _(basename: Array, num_shards: Array) -> bytes:
    return _c_string(basename) + f"-?????-of-{int(num_shards):05d}".encode()


MergeV2Checkpoints = define_op(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string ->",
    "delete_old_dirs: bool = True, allow_missing_files: bool = False",
    stateful=True,
)
MergeV2Checkpoints.not_differentiable()


@MergeV2Checkpoints.shape
def _(checkpoint_prefixes: TensorShape, destination_prefix: TensorShape) -> tuple[()]:
    shape_rules.with_rank(checkpoint_prefixes, 1, "checkpoint_prefixes")
    shape_rules.with_rank(destination_prefix, 0, "destination_prefix")
    return ()


@MergeV2Checkpoints.host_kernel
def _(
    checkpoint_prefixes: Array, destination_prefix: Array, *, delete_old_dirs: bool, allow_missing_files: bool
) -> None:
    parts, target = _texts(checkpoint_prefixes), _text(destination_prefix)
    if allow_missing_files:
        parts = [part for part in parts if checkpoint_store.checkpoint_exists(part)]
    checkpoint_writer.merge_checkpoints(parts, target, delete_old=delete_old_dirs)
    if delete_old_dirs:
        for directory in {os.path.dirname(part) for part in parts} - {os.path.dirname(target)}:
            # only what the save made for itself: a directory that holds anything else stays
            if os.path.isdir(directory) and not os.listdir(directory):
                os.rmdir(directory)


# ---------------------------------------------------------------------- the format before 2017
Save = define_op(
    "Save",
    "filename: string, tensor_names: string, data: T ->",
    "T: list(type) >= 1",
    stateful=True,
    ranks={"filename": 0},
)
SaveSlices = define_op(
    "SaveSlices",
    "filename: string, tensor_names: string, shapes_and_slices: string, data: T ->",
    "T: list(type) >= 1",
    stateful=True,
    ranks={"filename": 0},
)
_RESTORED = "dt: any, preferred_shard: int = -1"
Restore = define_op(
    "Restore",
    "file_pattern: string, tensor_name: string -> tensor: dt",
    _RESTORED,
    stateful=True,
    ranks={"file_pattern": 0, "tensor_name": 0},
)
RestoreSlice = define_op(
    "RestoreSlice",
    "file_pattern: string, tensor_name: string, shape_and_slice: string -> tensor: dt",
    _RESTORED,
    stateful=True,
    ranks={"file_pattern": 0, "tensor_name": 0, "shape_and_slice": 0},
)
for _op in (Save, SaveSlices, Restore, RestoreSlice):
    _op.not_differentiable()


@Save.shape
def _(filename: TensorShape, names: TensorShape, data: list[TensorShape]) -> tuple[()]:
    _check_vectors(_SCALAR, names, names, len(data))
    return ()


@SaveSlices.shape
def _(filename: TensorShape, names: TensorShape, slices: TensorShape, data: list[TensorShape]) -> tuple[()]:
    _check_vectors(_SCALAR, names, slices, len(data))
    return ()


@Save.host_kernel
def _(filename: Array, tensor_names: Array, data: list[Any]) -> None:
    _save(_text(filename), _texts(tensor_names), [""] * len(data), data)


@SaveSlices.host_kernel
def _(filename: Array, tensor_names: Array, shapes_and_slices: Array, data: list[Any]) -> None:
    _save(_text(filename), _texts(tensor_names), _texts(shapes_and_slices), data)


def _save(path: str, names: Sequence[str], specs: Sequence[str], data: Sequence[Any]) -> None:
    boxes = []
    for name, spec, value in zip(names, specs, data, strict=True):
        array = np.asarray(value)
        box = SliceInfo.from_spec(name, spec) if spec else SliceInfo.from_slices(name, array.shape, ())
        if box.var_shape != array.shape:
            problem = f"the slice {spec!r} of tensor {name!r} has another shape than what is saved, {[*array.shape]}"
            raise errors.InvalidArgumentError(None, None, problem)
        boxes.append((box, array))
    older_checkpoint.write_older_checkpoint(path, boxes)


@Restore.shape
def _(file_pattern: TensorShape, tensor_name: TensorShape) -> TensorShape:
    return shape_rules.UNKNOWN


@RestoreSlice.shape
def _(file_pattern: TensorShape, tensor_name: TensorShape, spec: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    known = ctx.constant("shape_and_slice")
    if known is None or not (text := _text(known)):
        return shape_rules.UNKNOWN
    return TensorShape(SliceInfo.from_spec("", text).var_shape)


@Restore.host_kernel
def _(file_pattern: Array, tensor_name: Array, *, dt: DType) -> Any:
    return _restored(_text(file_pattern), _text(tensor_name), "", dt)


@RestoreSlice.host_kernel
def _(file_pattern: Array, tensor_name: Array, shape_and_slice: Array, *, dt: DType) -> Any:
    return _restored(_text(file_pattern), _text(tensor_name), _text(shape_and_slice), dt)


def _restored(source: str, name: str, spec: str, dtype: DType) -> Any:
    """A tensor of a checkpoint of any format; several files in the older one may make up the checkpoint."""
    exists = checkpoint_store.checkpoint_exists(source)
    opened = checkpoint_store.open_checkpoint if exists else older_checkpoint.OlderCheckpointReader
    with opened(source) as reader:
        _check_names(reader, [name], source)
        _check_dtypes(reader, [name], [dtype], source)
        return reader.get_slice(name, spec) if spec else reader.read_tensor(name)
