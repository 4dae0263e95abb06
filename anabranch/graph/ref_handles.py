"""Graphs with TensorFlow's older handles of queues, tables and readers, as nodes with resource handles.

The older operations pass a handle as a reference to two strings; the newer ones do the same with a tensor of dtype
resource, and are otherwise alike. So a node is renamed, and what passes handles on gets their new dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch.proto.graph_pb2 import DT_RESOURCE, NodeDef

_QUEUES: Final = ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue")
_USING_QUEUES: Final = ("Enqueue", "EnqueueMany", "Dequeue", "DequeueMany", "DequeueUpTo", "Close", "IsClosed", "Size")
_TABLES: Final = ("HashTable", "MutableHashTable", "MutableHashTableOfTensors", "MutableDenseHashTable")
_USING_TABLES: Final = ("Find", "Insert", "Size", "Export", "Import")
_READERS: Final = ("WholeFileReader", "TextLineReader", "TFRecordReader", "FixedLengthRecordReader", "IdentityReader")
_USING_READERS: Final = (
    *("Read", "ReadUpTo", "NumRecordsProduced", "NumWorkUnitsCompleted", "Reset", "SerializeState", "RestoreState"),
)

#: types that make handles
MAKERS: Final = frozenset((*_QUEUES, *_TABLES, *_READERS))

#: older type -> newer type
RENAMED: Final[Mapping[str, str]] = {
    name: f"{name}V2"
    for name in (
        *MAKERS,
        *(f"Queue{what}" for what in _USING_QUEUES),
        *(f"LookupTable{what}" for what in _USING_TABLES),
        *(f"Reader{what}" for what in _USING_READERS),
        *("InitializeTable", "InitializeTableFromTextFile"),
    )
}

#: types that hand a reference on, and what does the same to a handle
_PASSING: Final[Mapping[str, str]] = {
    **{name: name for name in ("Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration")},
    "RefIdentity": "Identity",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
}


def translate(nodes: Sequence[NodeDef]) -> list[NodeDef]:
    """The nodes with resource handles; nodes that have nothing to do with these are the same objects."""
    if not any(node.op in RENAMED for node in nodes):
        return list(nodes)
    handles = _handles(nodes)
    return list(_translated(nodes, handles))


def _handles(nodes: Sequence[NodeDef]) -> set[str]:
    """The names of the nodes whose first output is a handle."""
    handles = {node.name for node in nodes if node.op in MAKERS}
    passing = [node for node in nodes if node.op in _PASSING]
    while True:
        more = {n.name for n in passing if n.name not in handles and n.input and _producer(n.input[0]) in handles}
        if not more:
            return handles
        handles |= more


def _producer(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]


def _translated(nodes: Sequence[NodeDef], handles: set[str]) -> Iterator[NodeDef]:
    for node in nodes:
        new_type = RENAMED.get(node.op) or (_PASSING.get(node.op) if node.name in handles else None)
        if new_type is None:
            yield node
            continue
        changed = NodeDef()
        changed.CopyFrom(node)
        changed.op = new_type
        if node.op in _PASSING:
            changed.attr["T"].type = DT_RESOURCE
        if "_output_shapes" in changed.attr:
            del changed.attr["_output_shapes"]  # those of references: two strings
        yield changed
