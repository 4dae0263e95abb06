"""Looking at checkpoints of objects, and at the objects that one would hold  (§4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from anabranch.core.trackables import OBJECT_GRAPH_PROTO_KEY, VARIABLE_VALUE_KEY
from anabranch.core.values import PassedOn
from anabranch.graph.operation import Operation, Tensor
from anabranch.io import checkpoint_store
from anabranch.io.tensor_reader import TensorReader
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph
from anabranch.train.object_graph import ObjectGraphView
from anabranch.train.stored_objects import read_stored_objects

_OBJECT: Final = 'N_{} [shape=point label="" width=.25]'


def object_metadata(save_path: str) -> TrackableObjectGraph:
    """The objects of a checkpoint.

    Args:
        save_path: the checkpoint's prefix.

    Returns:
        A `TrackableObjectGraph` message: for each object, what it holds, its values, and slots.

    Raises:
        ValueError: it is a checkpoint of `tf.train.Saver`, without objects.
        NotFoundError: there is none.
        DataLossError: it is damaged.
    """
    with checkpoint_store.open_checkpoint(save_path) as reader:
        return _objects(reader)


def _objects(reader: TensorReader) -> TrackableObjectGraph:
    stored = read_stored_objects(reader)
    if stored is None:
        raise ValueError(
            f'The specified checkpoint "{reader.prefix}" does not appear to be object-based (it is missing the key '
            f'"{OBJECT_GRAPH_PROTO_KEY}"). Likely it was created with a name-based saver and does not contain an '
            "object dependency graph."
        )
    return TrackableObjectGraph(nodes=stored.nodes)


def list_objects(root_trackable: PassedOn) -> list[Any]:
    """The objects that a checkpoint of one would hold, itself and slots of optimizers included."""
    return ObjectGraphView(root_trackable).list_objects()


def gather_initializers(root_trackable: PassedOn) -> list[Operation | Tensor]:
    """The initializers of these objects, of those that have any."""
    initializers = (getattr(obj, "initializer", None) for obj in list_objects(root_trackable))
    return [one for one in initializers if isinstance(one, Operation | Tensor)]


def dot_graph_from_checkpoint(save_path: str) -> str:
    """The objects of a checkpoint as a drawing in the language of Graphviz.

    Variables are blue, slots orange, optimizers red.

    Raises:
        ValueError, OpError: as `object_metadata`.
    """
    with checkpoint_store.open_checkpoint(save_path) as reader:
        message = _objects(reader)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    slots = {slot.slot_variable_node_id for node in message.nodes for slot in node.slot_variables}
    lines = ["digraph {"]
    for number, node in enumerate(message.nodes):
        values = list(node.attributes)
        if len(values) == 1 and values[0].name == VARIABLE_VALUE_KEY and values[0].checkpoint_key in shapes:
            color, kind = ("orange", "Slot variable") if number in slots else ("blue", "Variable")
            key = values[0].checkpoint_key
            tooltip = f"{kind} {_quoted(values[0].full_name)} shape={shapes[key]} {dtypes[key].name}"
            lines.append(f'N_{number} [shape=point label="" color={color} width=.25 tooltip="{tooltip}"]')
        elif node.slot_variables:
            lines.append(f'N_{number} [shape=point label="" width=.25 color=red,tooltip="Optimizer"]')
        else:
            lines.append(_OBJECT.format(number))
        lines += _edges(number, node)
    return "\n".join([*lines, "}", ""])


def _edges(number: int, node: TrackableObjectGraph.TrackableObject) -> Iterator[str]:
    for child in node.children:
        yield f'N_{number} -> N_{child.node_id} [label="{_quoted(child.local_name)}"]'
    for slot in node.slot_variables:
        yield f'N_{number} -> N_{slot.slot_variable_node_id} [label="{_quoted(slot.slot_name)}" style=dotted]'
        yield f"N_{slot.original_variable_node_id} -> N_{slot.slot_variable_node_id} [style=dotted]"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
