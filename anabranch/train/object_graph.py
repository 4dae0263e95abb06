"""The graph of objects below a root: paths, node ids, slots; and the message that a checkpoint has of it  (§4.3).

Objects are found breadth first, so that each has the shortest path from the root, which its values are named after. The
slots of optimizers stand at the end: each belongs to an optimizer and a variable that are both in the graph.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from anabranch.core.trackables import TrackableReference, Tracked, held_by, values_of
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph
from anabranch.train.object_saveables import PythonStateSaveable, full_name_of, saveables_of_value
from anabranch.train.saveables import SaveableObject

_ATTRIBUTES: Final = ".ATTRIBUTES"
_SLOTS: Final = ".OPTIMIZER_SLOT"


def escaped(name: str) -> str:
    """A name as a part of a path: no slash is in it, and a single dot begins what is no name of an object."""
    return name.replace(".", "..").replace("/", ".S")


def attribute_key(path: str, name: str) -> str:
    """Under which a value of the object at a path is stored."""
    return f"{path}/{_ATTRIBUTES}/{escaped(name)}"


class StoredValue(NamedTuple):
    """A value of an object in the graph.

    Attributes:
        owner: the object.
        name: of the value among the object's.
        value: as `Trackable._gather_saveables_for_checkpoint` gives it.
        key: in the checkpoint.
    """

    owner: Any
    name: str
    value: Any
    key: str


class Slot(NamedTuple):
    """A variable that an optimizer keeps beside another one; the objects by their numbers."""

    optimizer: int
    name: str
    variable: int
    slot: int


def has_slots(obj: object) -> bool:
    """Whether an object keeps slots beside variables, as optimizers do."""
    return callable(getattr(obj, "get_slot_names", None)) and callable(getattr(obj, "get_slot", None))


def slot_of(optimizer: Tracked, variable: Tracked, name: str) -> Any:
    """The slot that an optimizer keeps beside a variable; None if there is none.

    The slots of the parts of a partitioned variable are one partitioned variable.
    """
    if not isinstance(variable, PartitionedVariable):
        try:
            return optimizer.get_slot(variable, name)
        except (AttributeError, KeyError):  # of variables that it does not know
            return None
    parts = [slot_of(optimizer, part, name) for part in variable]
    if not parts or not all(isinstance(part, Variable) and part._get_save_slice_info() is not None for part in parts):
        return None
    whole = parts[0].__dict__.get("_self_whole")  # one object for one slot, whenever it is asked for
    if whole is None:
        full_name = parts[0]._get_save_slice_info().full_name
        whole = PartitionedVariable(full_name, variable.shape, parts[0].dtype, parts, variable._partitions)
        parts[0].__dict__["_self_whole"] = whole
    return whole


class ObjectGraphView:
    """The objects below a root, read off anew whenever they are asked for.

    Args:
        root: the first object.
    """

    def __init__(self, root: Tracked) -> None:
        self.root = root

    def list_dependencies(self, obj: Tracked) -> list[TrackableReference]:
        """The objects that one holds."""
        return held_by(obj)

    def list_objects(self) -> list[Any]:
        """All objects, slots last."""
        return ObjectGraph(self).objects

    def serialize_object_graph(self) -> tuple[list[SaveableObject], TrackableObjectGraph, dict[Any, Any]]:
        """What a checkpoint of the objects would have.

        Returns:
            What is saved, the message that describes the objects, and what would be fed.
        """
        objects = ObjectGraph(self)
        saveables = [s for _, value in objects.values() for s in saveables_of_value(value.value, value.key)]
        states = [s.feed_dict_additions() for s in saveables if isinstance(s, PythonStateSaveable)]
        return saveables, objects.message(), {key: value for fed in states for key, value in fed.items()}

    def objects_and_paths(self) -> list[tuple[Any, str]]:
        """All objects, each with its path."""
        graph = ObjectGraph(self)
        return list(zip(graph.objects, graph.paths, strict=True))


class ObjectGraph:
    """The objects below a root at one moment.

    Args:
        view: lists what an object holds.

    Attributes:
        objects: breadth first from the root; then the slots.
        paths: of each, the names on the shortest way to it, escaped and joined.
        slots: which of the objects are slots.
    """

    def __init__(self, view: ObjectGraphView) -> None:
        self.objects: list[Any] = [view.root]
        self.paths: list[str] = [""]
        self.children: list[list[tuple[str, int]]] = []
        self.slots: list[Slot] = []
        self._numbers: dict[int, int] = {id(view.root): 0}
        waiting = collections.deque([0])
        while waiting:
            at = waiting.popleft()
            edges = []
            for name, held in view.list_dependencies(self.objects[at]):
                number = self._numbers.get(id(held))
                if number is None:
                    path = f"{self.paths[at]}/{escaped(name)}" if at else escaped(name)
                    number = self._add(held, path)
                    waiting.append(number)
                edges.append((name, number))
            self.children.append(edges)
        self._add_slots()

    def _add(self, obj: Tracked, path: str) -> int:
        number = len(self.objects)
        self._numbers[id(obj)] = number
        self.objects.append(obj)
        self.paths.append(path)
        return number

    def _add_slots(self) -> None:
        count = len(self.objects)
        variables = [i for i in range(count) if isinstance(self.objects[i], Variable | PartitionedVariable)]
        for optimizer in range(count):
            keeper = self.objects[optimizer]
            for name in keeper.get_slot_names() if has_slots(keeper) else ():
                for variable in variables:
                    slot = slot_of(keeper, self.objects[variable], name)
                    # an optimizer around another one has the same slots
                    if slot is None or id(slot) in self._numbers:
                        continue
                    path = f"{self.paths[variable]}/{_SLOTS}/{self.paths[optimizer]}/{escaped(name)}"
                    self.slots.append(Slot(optimizer, name, variable, self._add(slot, path)))
                    self.children.append([])

    def values(self) -> Iterator[tuple[int, StoredValue]]:
        """The values of all objects, each with the object's number."""
        for number, obj in enumerate(self.objects):
            for name, value in values_of(obj).items():
                yield number, StoredValue(obj, name, value, attribute_key(self.paths[number], name))

    def message(self) -> TrackableObjectGraph:
        """The objects and their values as a checkpoint describes them."""
        message = TrackableObjectGraph()
        for edges in self.children:
            node = message.nodes.add()
            for name, number in edges:
                node.children.add(node_id=number, local_name=name)
        for slot in self.slots:
            message.nodes[slot.optimizer].slot_variables.add(
                original_variable_node_id=slot.variable, slot_name=slot.name, slot_variable_node_id=slot.slot
            )
        for number, value in self.values():
            message.nodes[number].attributes.add(
                name=value.name, full_name=full_name_of(value.value), checkpoint_key=value.key
            )
        return message
