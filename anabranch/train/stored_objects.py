"""The objects that a checkpoint has: read from it, checked, and named  (§4.3).

A checkpoint of `tf.train.Checkpoint` describes them in a message, which is believed nothing: its numbers are checked
here, once, and whoever walks it goes to each object once, whatever circles there are. Those that this package wrote
before it had such messages name tensors after the attributes on the way to them; their objects are read off these
names.
"""

from __future__ import annotations

import collections
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from anabranch import errors
from anabranch.core import dtypes
from anabranch.core.trackables import OBJECT_GRAPH_PROTO_KEY, VARIABLE_VALUE_KEY
from anabranch.io.tensor_reader import TensorReader
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph

_NAMED_VALUE: Final = f"/.ATTRIBUTES/{VARIABLE_VALUE_KEY}"
_NAMED_TABLE: Final = "/.ATTRIBUTES/table-keys"
_SLOT: Final = "/.OPTIMIZER_SLOT/"


class StoredObjects:
    """The objects of a checkpoint.

    Args:
        prefix: of the checkpoint, for messages.
        message: the objects; the first is the root.
        from_names: whether they were read off the names of tensors.

    Raises:
        DataLossError: numbers in the message are those of no object.
    """

    def __init__(self, prefix: str, message: TrackableObjectGraph, from_names: bool = False) -> None:
        self.prefix, self.from_names = prefix, from_names
        self.nodes = message.nodes
        if not self.nodes:
            raise _damaged(prefix, "it has no object, not even a root")
        for number, node in enumerate(self.nodes):
            for child in node.children:
                self._check(child.node_id, f"object {number} holds under {child.local_name!r}")
            for slot in node.slot_variables:
                where = f"object {number} has as the slot {slot.slot_name!r}"
                self._check(slot.slot_variable_node_id, where)
                self._check(slot.original_variable_node_id, f"{where} belongs to")
        self._parents: dict[int, tuple[int, str]] | None = None

    def _check(self, number: int, where: str) -> None:
        if not 0 <= number < len(self.nodes):
            raise _damaged(self.prefix, f"{where} object {number}, but there are {len(self.nodes)} objects")

    def name_of(self, number: int) -> str:
        """An object by the names on the shortest way to it from the root."""
        parents = self._ways()
        for keeper, node in enumerate(self.nodes) if number not in parents else ():
            for slot in node.slot_variables:
                if slot.slot_variable_node_id == number:
                    variable = self._path(slot.original_variable_node_id)
                    return f"{self._path(keeper)}'s state '{slot.slot_name}' for {variable}"
        return self._path(number)

    def _path(self, number: int) -> str:
        parents, names = self._ways(), list[str]()
        while number in parents:
            number, name = parents[number]
            names.append(name)
        return ".".join(["(root)" if number == 0 else f"(object {number})", *reversed(names)])

    def _ways(self) -> dict[int, tuple[int, str]]:
        """For each object below the root, which one on the shortest way holds it, and under which name."""
        if self._parents is None:
            self._parents = {}
            waiting = collections.deque([0])
            while waiting:
                at = waiting.popleft()
                for child in self.nodes[at].children:
                    if child.node_id and child.node_id not in self._parents:
                        self._parents[child.node_id] = (at, child.local_name)
                        waiting.append(child.node_id)
        return self._parents

    def keys_by_full_name(self) -> dict[str, str]:
        """The keys of values by the names under which `tf.train.Saver` would have saved them."""
        return {
            value.full_name: value.checkpoint_key for node in self.nodes for value in node.attributes if value.full_name
        }


def read_stored_objects(reader: TensorReader) -> StoredObjects | None:
    """The objects of a checkpoint; None for one that is not of objects, as those of `tf.train.Saver`.

    Raises:
        DataLossError: the description of its objects is damaged.
    """
    if reader.has_tensor(OBJECT_GRAPH_PROTO_KEY):
        return StoredObjects(reader.prefix, _read_message(reader))
    names = [name for name in reader.names() if name.endswith((_NAMED_VALUE, _NAMED_TABLE))]
    return StoredObjects(reader.prefix, _message_of_names(names), from_names=True) if names else None


def _read_message(reader: TensorReader) -> TrackableObjectGraph:
    shape = reader.get_variable_to_shape_map()[OBJECT_GRAPH_PROTO_KEY]
    dtype = reader.get_variable_to_dtype_map()[OBJECT_GRAPH_PROTO_KEY]
    if dtype != dtypes.string or shape:
        raise _damaged(reader.prefix, f"it is {dtype.name} of shape {shape}, and no string")
    content: Any = np.asarray(reader.read_tensor(OBJECT_GRAPH_PROTO_KEY), object).reshape(())[()]
    try:
        return TrackableObjectGraph.FromString(content)
    except DecodeError as error:
        raise _damaged(reader.prefix, str(error)) from error


def _message_of_names(names: list[str]) -> TrackableObjectGraph:
    """The objects that names of tensors tell of: `model/layers/0/w/.ATTRIBUTES/VARIABLE_VALUE`."""
    message = TrackableObjectGraph()
    message.nodes.add()
    numbers: dict[tuple[int, str], int] = {}

    def at_path(path: str) -> int:
        at = 0
        for part in path.split("/") if path else ():
            if (at, part) not in numbers:
                numbers[at, part] = len(message.nodes)
                message.nodes[at].children.add(node_id=len(message.nodes), local_name=part.replace(".S", "/"))
                message.nodes.add()
            at = numbers[at, part]
        return at

    for name in names:
        path, _, value = name.rpartition("/.ATTRIBUTES/")
        variable, _, slot = path.partition(_SLOT)
        if slot:
            keeper, _, slot_name = slot.rpartition("/")
            optimizer, original = at_path(keeper), at_path(variable)
            at = len(message.nodes)
            message.nodes.add()
            message.nodes[optimizer].slot_variables.add(
                original_variable_node_id=original, slot_name=slot_name, slot_variable_node_id=at
            )
        else:
            at = at_path(path)
        key = name.removesuffix("-keys")
        message.nodes[at].attributes.add(name=value.removesuffix("-keys"), checkpoint_key=key)
    return message


def _damaged(prefix: str, reason: str) -> errors.DataLossError:
    return errors.DataLossError(
        None,
        None,
        f"The description of the objects ({OBJECT_GRAPH_PROTO_KEY!r}) in checkpoint {prefix!r} is damaged: {reason}. "
        "Restore another checkpoint.",
    )
