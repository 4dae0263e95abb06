"""Messages, and events and errors to and from them: what passes between a master and its workers while steps run.

A message goes as *frames*: the first is the message itself, the others are the bytes of the arrays that it mentions, in
order, so that no large array is copied into a message. Those that carry arrays are in `runtime.step_messages`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from anabranch.errors import (
    InvalidArgumentError,
    OpError,
    UnknownError,
    exception_type_from_error_code,
)
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.proto.step_plan_pb2 import ErrorDef, ItemEventDef
from anabranch.runtime.item_call import ItemEvent
from anabranch.xla.partitions import Partition

#: What a frame is held in: a large one that came from elsewhere stays where it was received.
Buffer: TypeAlias = bytes | memoryview
#: the bytes of a message, then those of the arrays that it mentions
Frames: TypeAlias = list[Buffer]


class Transport(Protocol):
    """Carries a message to a worker's service, and its reply back."""

    def call(self, frames: Frames) -> Frames:
        """Sends a message, and waits for the reply."""

    def start(self, frames: Frames, on_reply: Callable[[Frames | OpError], None]) -> None:
        """Sends a message, and returns; `on_reply` gets the reply, or why there is none, on whichever thread."""

    def post(self, frames: Frames) -> None:
        """Sends a message that is not answered.

        Raises:
            OpError: it cannot be sent.
        """


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
