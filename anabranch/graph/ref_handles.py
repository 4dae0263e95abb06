"""Graphs with TensorFlow's older handles of queues, tables, readers and tensor arrays, as nodes with resource handles.

The older operations pass a handle as two strings, or as a reference to them; the newer ones do the same with a tensor
of dtype resource, and are otherwise alike. So a node is renamed, and what passes handles on gets their new dtype. Only
`TensorArrayPack` and `TensorArrayUnpack` have no successor: all elements are gathered or scattered in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from anabranch.core.dtypes import as_dtype, int32
from anabranch.graph.free_names import take_name
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.graph_pb2 import DT_RESOURCE, NodeDef
from anabranch.proto.node_inputs import control_inputs, data_inputs, producer_of

_QUEUES: Final = ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue")
_USING_QUEUES: Final = ("Enqueue", "EnqueueMany", "Dequeue", "DequeueMany", "DequeueUpTo", "Close", "IsClosed", "Size")
_TABLES: Final = ("HashTable", "MutableHashTable", "MutableHashTableOfTensors", "MutableDenseHashTable")
_USING_TABLES: Final = ("Find", "Insert", "Size", "Export", "Import")
_READERS: Final = ("WholeFileReader", "TextLineReader", "TFRecordReader", "FixedLengthRecordReader", "IdentityReader")
_USING_READERS: Final = (
    *("Read", "ReadUpTo", "NumRecordsProduced", "NumWorkUnitsCompleted", "Reset", "SerializeState", "RestoreState"),
)

_USING_ARRAYS: Final = ("Grad", "Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size", "Close")

#: types that make handles
MAKERS: Final = frozenset((*_QUEUES, *_TABLES, *_READERS, "LMDBReader"))
_ARRAYS: Final = ("TensorArray", "TensorArrayV2", "TensorArrayGrad", "TensorArrayGradV2")

#: older type -> newer type
RENAMED: Final[Mapping[str, str]] = (
    {
        name: f"{name}V2"
        for name in (
            *(MAKERS - {"LMDBReader"}),
            *(f"Queue{what}" for what in _USING_QUEUES),
            *(f"LookupTable{what}" for what in _USING_TABLES),
            *(f"Reader{what}" for what in _USING_READERS),
            *("InitializeTable", "InitializeTableFromTextFile"),
        )
    }
    | {"LMDBReader": "_LMDBReader"}
    | {f"TensorArray{what}{version}": f"TensorArray{what}V3" for what in ("", *_USING_ARRAYS) for version in ("", "V2")}
)

#: types of which several nodes come
EXPANDED: Final = ("TensorArrayPack", "TensorArrayUnpack")

#: makes an older handle of a newer one, which is the same here
FAKE_QUEUE: Final = "FakeQueue"

#: types that hand a reference on, and what does the same to a handle
_PASSING: Final[Mapping[str, str]] = {
    **{name: name for name in ("Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration")},
    "RefIdentity": "Identity",
    "DebugGradientRefIdentity": "Identity",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
    FAKE_QUEUE: "Identity",
}


def translate(nodes: Sequence[NodeDef]) -> list[NodeDef]:
    """The nodes with resource handles; nodes that have nothing to do with these are the same objects."""
    if not any(node.op in RENAMED or node.op in EXPANDED or node.op == FAKE_QUEUE for node in nodes):
        return list(nodes)
    handles = _handles(nodes)
    return list(_translated(nodes, handles))


def _handles(nodes: Sequence[NodeDef]) -> set[str]:
    """The names of the nodes whose first output is a handle."""
    handles = {node.name for node in nodes if node.op in MAKERS or node.op in _ARRAYS or node.op == FAKE_QUEUE}
    passing = [node for node in nodes if node.op in _PASSING]
    while True:
        more = {n.name for n in passing if n.name not in handles and n.input and producer_of(n.input[0]) in handles}
        if not more:
            return handles
        handles |= more


def _translated(nodes: Sequence[NodeDef], handles: set[str]) -> Iterator[NodeDef]:
    taken = {node.name for node in nodes}
    for node in nodes:
        new_type = RENAMED.get(node.op) or (_PASSING.get(node.op) if node.name in handles else None)
        if node.op in EXPANDED:
            yield from _expanded(node, taken)
        elif new_type is None:
            yield node
        else:
            yield _renamed(node, new_type)


def _renamed(node: NodeDef, new_type: str) -> NodeDef:
    changed = NodeDef()
    changed.CopyFrom(node)
    changed.op = new_type
    if node.op in _PASSING:
        changed.attr["T"].type = DT_RESOURCE
    if node.op == "MutableDenseHashTable" and len(data_inputs(node)) == 1:
        # no key was set aside for what is deleted: TensorFlow refuses to run such a node, as is then done here
        changed.input.insert(1, node.input[0])
    if "_output_shapes" in changed.attr:
        del changed.attr["_output_shapes"]  # those of references: two strings
    return changed


def _expanded(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
    """The elements at places 0, 1, ..., as many as the array or the value has."""

    def new(name: str, op: str, inputs: Sequence[str], **attrs: tuple[str, object]) -> NodeDef:
        made = NodeDef(
            name=take_name(f"{node.name}/{name}", taken), op=op, device=node.device, input=[*inputs, *controls]
        )
        for key, (kind, value) in attrs.items():
            made.attr[key].CopyFrom(attr_to_proto(kind, value))
        return made

    controls = control_inputs(node)
    data = data_inputs(node)
    number = ("type", int32)
    ends = [
        new(name, "Const", [], dtype=number, value=("tensor", np.asarray(value, np.int32)))
        for name, value in (("zero", 0), ("one", 1))
    ]
    zero, one = (end.name for end in ends)
    yield from ends
    if node.op == "TensorArrayPack":
        size = new("size", "TensorArraySizeV3", data)
    else:
        shape = new("shape", "Shape", data[1:2], T=("type", as_dtype(node.attr["T"].type)), out_type=number)
        yield shape
        size = new("size", "GatherV2", [shape.name, zero, zero], Tparams=number, Tindices=number, Taxis=number)
    places = new("places", "Range", [zero, size.name, one], Tidx=number)
    yield from (size, places)
    op = "TensorArrayGatherV3" if node.op == "TensorArrayPack" else "TensorArrayScatterV3"
    last = NodeDef(name=node.name, op=op, device=node.device, input=[data[0], places.name, *data[1:], *controls])
    for key, value in node.attr.items():
        if key != "_output_shapes":
            last.attr[key].CopyFrom(value)
    yield last
