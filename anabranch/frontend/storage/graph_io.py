"""Graphs to files, and messages from files in either form, binary or text."""

from __future__ import annotations

import os
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from anabranch.graph.graph import Graph
from anabranch.io import durable, gfile
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.texts import parse_text

M = TypeVar("M", bound=Message)


def write_graph(graph_or_graph_def: Graph | GraphDef, logdir: str, name: str, as_text: bool = True) -> str:
    """Writes a graph to a file, atomically.

    Args:
        graph_or_graph_def: a Graph or a GraphDef message.
        logdir: the directory; made if it is not there.
        name: the file's name.
        as_text: the text form, which people can read; else bytes.

    Returns:
        The file's path.

    Raises:
        OpError: of the class of the system's refusal.

    Example:
        >>> _ = tf.constant(1.0, name="one")
        >>> tf.train.write_graph(tf.get_default_graph(), "directory", "graph.pbtxt")
        'directory/graph.pbtxt'
    """
    message = graph_or_graph_def.as_graph_def() if isinstance(graph_or_graph_def, Graph) else graph_or_graph_def
    path = os.path.join(os.fsdecode(logdir), os.fsdecode(name))
    gfile.makedirs(os.path.dirname(path) or ".")
    write_message(message, path, as_text)
    return path


def write_message(message: Message, path: str, as_text: bool) -> None:
    """Puts a message in a file, atomically; text with `as_text`, else bytes."""
    data = text_format.MessageToString(message).encode() if as_text else message.SerializeToString(deterministic=True)
    durable.replace_file(path, data)


def read_message(path: str, message: M) -> M:
    """Fills `message` from a file, which may be in either form.

    Raises:
        NotFoundError: there is no such file.
        OSError: the file holds no such message.
    """
    with gfile.GFile(path, "rb") as file:
        data: bytes = file.read()
    try:
        message.ParseFromString(data)
        return message
    except DecodeError:
        message.Clear()
    try:
        parse_text(data.decode("utf-8"), message)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        kind = message.DESCRIPTOR.name
        raise OSError(
            f"Cannot parse file {path!r}: it holds no {kind}, neither as bytes nor as text: {error}"
        ) from error
    return message
