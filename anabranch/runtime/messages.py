"""Values, events and errors to and from messages: what passes between a master and its workers while steps run.

A message goes as *frames*: the first is the message itself, the others are the bytes of the arrays that it mentions, in
order, so that no array is copied into a message. What arrives is not believed: the sizes that a message states are
compared with the frames that came before memory is taken for them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.core.dtypes import as_dtype, string
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import (
    InvalidArgumentError,
    OpError,
    UnimplementedError,
    UnknownError,
    exception_type_from_error_code,
)
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.proto.step_plan_pb2 import ErrorDef, ItemEventDef, ValueDef
from anabranch.proto.tensors import dtype_to_proto
from anabranch.runtime.item_call import ItemEvent
from anabranch.xla.partition_codec import handle_from_proto, handle_to_proto
from anabranch.xla.partitions import Partition

#: What a frame is held in: a large one that came from elsewhere stays where it was received.
Buffer: TypeAlias = bytes | memoryview
#: the bytes of a message, then those of the arrays that it mentions
Frames: TypeAlias = list[Buffer]


#: arrays of fewer bytes are copied into their frames, which is quicker than to keep them alive
_COPIED_BELOW: Final = 1 << 16


# ---------------------------------------------------------------------- values
def value_to_proto(value: TensorValue, frames: Frames) -> ValueDef:
    """The message of a value; the bytes of an array are added to the frames.

    Raises:
        UnimplementedError: the value is neither an array of numbers or strings nor a handle.
    """
    if isinstance(value, ResourceHandle):
        return ValueDef(handle=handle_to_proto(value))
    array = np.array(value, np.object_) if isinstance(value, bytes) else np.asarray(value)
    # an array of objects holds strings, or what has no bytes: functions, datasets, iterators
    if array.dtype == np.object_:
        strings = array.reshape(-1).tolist()
        if not all(isinstance(item, bytes) for item in strings):
            raise UnimplementedError(
                None,
                None,
                f"a value that holds a {type(strings[0]).__name__} cannot leave its task; fetch the tensors in it",
            )
        frames.append(b"".join(strings))
        return ValueDef(
            dtype=dtype_to_proto(string), dim=array.shape, is_array=True, length=[len(item) for item in strings]
        )
    frames.append(_bytes_of(array))
    return ValueDef(dtype=dtype_to_proto(as_dtype(array.dtype)), dim=array.shape, is_array=True)


def _bytes_of(array: np.ndarray[Any, Any]) -> Buffer:
    """The bytes of an array; those of a large one where they are."""
    if array.nbytes < _COPIED_BELOW:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def value_from_proto(message: ValueDef, frames: Iterator[Buffer], is_own: bool = True) -> TensorValue:
    """The value of a message, whose bytes are the next of the frames: an array, or a handle.

    Args:
        is_own: whether the array can be written, and keeps no frame alive.

    Raises:
        ValueError, TypeError: the message and the frames do not fit each other.
    """
    if not message.is_array:
        return handle_from_proto(message.handle)
    dtype, shape = as_dtype(message.dtype), tuple(message.dim)
    count, content = _count(shape), next(frames, b"")
    if dtype is string:
        return _strings(bytes(content), list(message.length), count).reshape(shape)
    if len(content) != count * dtype.size:
        raise ValueError(f"an array of {count} elements of {dtype.name} came with {len(content)} bytes")
    array = np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)
    return array.copy() if is_own else array


def _count(shape: Sequence[int]) -> int:
    if any(size < 0 for size in shape):
        raise ValueError(f"an array cannot have the shape {list(shape)}")
    return math.prod(shape)


def _strings(content: bytes, lengths: Sequence[int], count: int) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    if len(lengths) != count or any(length < 0 for length in lengths) or sum(lengths) != len(content):
        raise ValueError(f"{count} strings came with {len(lengths)} lengths and {len(content)} bytes")
    strings = np.empty(count, np.object_)
    start = 0
    for position, length in enumerate(lengths):
        strings[position] = content[start : start + length]
        start += length
    return strings


# ---------------------------------------------------------------------- events
def event_to_proto(event: ItemEvent) -> ItemEventDef:
    """The message of what a task tells of an item that ran."""
    return ItemEventDef(
        name=event.name,
        kind=event.kind,
        operation=event.operations,
        input=event.inputs,
        start=event.start,
        end=event.end,
        thread=event.thread,
        output_bytes=event.output_bytes,
        device=event.device,
    )


def event_from_proto(message: ItemEventDef) -> ItemEvent:
    """What a task tells of an item that ran."""
    return ItemEvent(
        message.name,
        message.kind,
        tuple(message.operation),
        tuple(message.input),
        message.start,
        message.end,
        message.thread,
        message.output_bytes,
        message.device,
    )


# ---------------------------------------------------------------------- errors
def error_to_proto(error: Exception) -> ErrorDef:
    """The message of what a step failed with."""
    written = ErrorDef(type=type(error).__name__, note=getattr(error, "__notes__", ()))
    if not isinstance(error, OpError):
        written.message = str(error)
        return written
    written.code, written.message = error.error_code, error.message
    if error.op is not None:
        written.node, written.origin = error.op.name, getattr(error.op, "origin", error.op.name)
    return written


def error_from_proto(message: ErrorDef, nodes: Mapping[str, StepNode]) -> Exception:
    """What a step failed with: an `OpError` of the same code, or an exception of Python's own of the same name.

    Args:
        nodes: those of the step, by their origin.
    """
    op = nodes.get(message.origin)
    error: Exception
    if message.code:
        try:
            error = exception_type_from_error_code(message.code)(None, op, message.message)
        except KeyError:
            error = UnknownError(None, op, message.message, message.code)
    else:
        kind = getattr(builtins, message.type, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            error = kind(message.message)
        else:
            error = UnknownError(None, op, f"{message.type}: {message.message}")
    for note in message.note:
        error.add_note(note)
    return error


def nodes_by_origin(partition: Partition) -> dict[str, StepNode]:
    """The nodes of a partition and of the functions that it calls, by what names them beyond it."""
    nodes: dict[str, StepNode] = {}
    stack, entered = list(partition.operations), set[StepFunction]()
    while stack:
        op = stack.pop()
        nodes.setdefault(op.origin, op)
        # also those that are kept for later, as a dataset keeps the function of its elements
        for body in op.functions.values():
            if body not in entered:
                entered.add(body)
                stack.extend(body.operations)
    return nodes


def malformed(error: Exception) -> InvalidArgumentError:
    """The error for a message that cannot be what it should."""
    return InvalidArgumentError(
        None, None, f"a message between tasks is malformed: {error}; both must be of one version"
    )
