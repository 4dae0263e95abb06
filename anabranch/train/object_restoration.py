"""One restore of a checkpoint of objects: which object of the program each stored one is, and what that gives  (§4.3).

Nothing is attached to objects, and nothing waits at them. A restoration looks at the program's objects when it is made,
and again whenever its values are asked for; so what was made or attached in between is found. The two graphs are walked
together from their roots: an object that holds another under a name is matched with the stored one under that name.
Slots are matched where optimizer and variable are.

Of several restorations of one object the latest counts, but what an earlier one had found before that stays its own. So
restorations that are later look first, and each object notes the latest that found it.
"""

from __future__ import annotations

import collections
import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final

from anabranch.core import dtypes
from anabranch.core.trackables import Trackable, Tracked, look_at_attachments, values_of
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.platform import logging
from anabranch.train.object_graph import ObjectGraphView, StoredValue, has_slots, slot_of
from anabranch.train.stored_objects import StoredObjects

_MAX_SHOWN: Final = 10
_numbers = itertools.count(1)
#: the restorations that somebody has a status of
_alive: weakref.WeakSet[ObjectRestoration] = weakref.WeakSet()


def next_number() -> int:
    """A number for a restoration, larger than those of all before."""
    return next(_numbers)


def latest_restoration(obj: object) -> int:
    """The number of the latest restoration that found an object; 0 for none."""
    number: int = obj.__dict__.get("_self_restored_by", 0) if isinstance(obj, Trackable) else 0
    return number


def note_restoration(obj: object, number: int) -> None:
    """Notes which restoration found an object last."""
    if isinstance(obj, Trackable):
        obj.__dict__["_self_restored_by"] = number


class _Unmatched:
    """What of a checkpoint found no object: told in the log when the restoration is over, unless that was expected."""

    def __init__(self, stored: StoredObjects) -> None:
        self.stored = stored
        self.is_expected = False
        self.objects: set[int] = set()
        #: names of values by the number of the object
        self.values: dict[int, list[str]] = {}

    def tell(self) -> None:
        if self.is_expected or not (self.objects or self.values):
            return
        lines = [f"Unresolved object in checkpoint: {self.stored.name_of(n)}" for n in sorted(self.objects)]
        lines += [f"Unused attribute in object {self.stored.name_of(n)}: {v}" for n, v in sorted(self.values.items())]
        for line in lines[:_MAX_SHOWN]:
            logging.warning("%s", line)
        logging.warning(
            "The checkpoint %s was restored, but not all of its %d values were used (%d unmatched). Call "
            "expect_partial() of the load status object to silence this, or assert_consumed() to make it an error.",
            self.stored.prefix,
            sum(len(node.attributes) for node in self.stored.nodes),
            len(lines),
        )


class ObjectRestoration:
    """A restore of a checkpoint into the objects below a root.

    Args:
        stored: the objects of the checkpoint.
        value_dtypes: the dtypes of its tensors, by name.
        view: the objects of the program.
        restore_state: takes a value over at once if it is a state of Python's, and says whether it is.

    Attributes:
        number: larger than those of all restorations before.
        objects: the object of the program, by the number of the stored one.
        values: what is to be restored.
    """

    def __init__(
        self,
        stored: StoredObjects,
        value_dtypes: dict[str, dtypes.DType],
        view: ObjectGraphView,
        restore_state: Callable[[StoredValue], bool],
    ) -> None:
        self.stored, self.view, self.number = stored, view, next_number()
        self._dtypes, self._restore_state = value_dtypes, restore_state
        self.objects: dict[int, Any] = {}
        self.values: list[StoredValue] = []
        self.unmatched = _Unmatched(stored)
        #: objects that this restoration found before a later one did, and the values of them that are Python's
        self._mine: dict[int, Any] = {}
        self._states: dict[tuple[int, str], bool] = {}
        self._inconsistent: set[int] = set()
        #: with `keep_bindings`, which object each stored one was from the first
        self._kept: dict[int, Any] | None = None
        _alive.add(self)
        look_at_attachments(self)
        weakref.finalize(self, self.unmatched.tell).atexit = False

    def __call__(self) -> None:
        """Looks: an object was attached that can be restored at once."""
        self.look()

    def look(self) -> None:
        """Matches the objects that there are now."""
        for restoration in sorted(_alive, key=lambda one: one.number, reverse=True):
            if restoration.number >= self.number:
                restoration._look()

    def keep_bindings(self) -> None:
        """From now on an object that takes another one's place, as the optimizer of a model may, is not matched."""
        if self._kept is None:
            self._kept = {}

    def _look(self) -> None:
        self.objects = {}
        self._match_held()
        self._match_slots()
        self.values, self.unmatched.values = [], {}
        for number, obj in self.objects.items():
            self._take_values(number, obj)
        self.unmatched.objects = {
            number for number, node in enumerate(self.stored.nodes) if node.attributes and number not in self.objects
        }

    def _match_held(self) -> None:
        self._bind(0, self.view.root)
        waiting = collections.deque([0])
        while waiting:
            number = waiting.popleft()
            obj = self.objects[number]
            held: dict[str, Any] | None = None
            for child in self.stored.nodes[number].children:
                if held is None:
                    held = dict(self.view.list_dependencies(obj))
                found = held.get(child.local_name)
                if found is None:
                    found = self._looked_up(obj, child.local_name)
                if found is not None and self._bind(child.node_id, found):
                    waiting.append(child.node_id)

    def _looked_up(self, obj: Tracked, name: str) -> Any:
        if isinstance(obj, Trackable) and (found := obj._lookup_dependency(name)) is not None:
            return found
        if self.stored.from_names:  # all that an optimizer keeps stood below it, by its own name
            optimizer: Any = getattr(obj, "named_optimizer", obj)
            kept = optimizer.variables() if has_slots(optimizer) else ()
            return next((v for v in kept if name in (v.op.name, v.op.name.rpartition("/")[2])), None)
        return None

    def _match_slots(self) -> None:
        for number, node in enumerate(self.stored.nodes):
            optimizer = self.objects.get(number)
            if self.stored.from_names:
                optimizer = getattr(optimizer, "named_optimizer", optimizer)
            if not node.slot_variables or optimizer is None or not has_slots(optimizer):
                continue
            for reference in node.slot_variables:
                variable = self.objects.get(reference.original_variable_node_id)
                slot = None if variable is None else slot_of(optimizer, variable, reference.slot_name)
                if slot is not None:
                    self._bind(reference.slot_variable_node_id, slot)

    def _bind(self, number: int, obj: Tracked) -> bool:
        """Says that an object is a stored one; whether that was not known."""
        if self._kept is not None and self._kept.setdefault(number, obj) is not obj:
            return False
        known = self.objects.get(number)
        if known is None:
            self.objects[number] = obj
            return True
        if known is not obj and number not in self._inconsistent:
            self._inconsistent.add(number)
            logging.warning(
                "Inconsistent references when loading the checkpoint into this object graph. Either the Trackable "
                "object references in the Python program have changed in an incompatible way, or the checkpoint was "
                "generated in an incompatible program.\n\nTwo checkpoint references to %s resolved to different "
                "objects (%s and %s).",
                self.stored.name_of(number),
                known,
                obj,
            )
        return False

    def _take_values(self, number: int, obj: Tracked) -> None:
        """Lists the values that an object gets, unless a later restoration gives it others."""
        if latest_restoration(obj) > self.number and id(obj) not in self._mine:
            return
        if latest_restoration(obj) < self.number:
            note_restoration(obj, self.number)
        self._mine[id(obj)] = obj
        mine = values_of(obj)
        for attribute in self.stored.nodes[number].attributes:
            value = mine.get(attribute.name)
            if value is None or not self._can_take(value, attribute.checkpoint_key):
                self.unmatched.values.setdefault(number, []).append(attribute.name)
                continue
            stored = StoredValue(obj, attribute.name, value, attribute.checkpoint_key)
            of_python = self._states.get((id(obj), attribute.name))
            if of_python is None:
                of_python = self._states[id(obj), attribute.name] = self._restore_state(stored)
            if not of_python:
                self.values.append(stored)

    def _can_take(self, value: Tracked, key: str) -> bool:
        """Whether a value is of the kind that is stored: TensorFlow's positions of iterators are other ones."""
        return not isinstance(value, Iterator) or self._dtypes.get(f"{key}_STATE") == dtypes.string
