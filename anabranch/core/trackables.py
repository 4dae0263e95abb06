"""Objects that checkpoints hold: which others each of them holds, by name, and which values of its own  (§4.3).

A checkpoint of objects saves a graph of them: variables at its ends, and between these what holds them, by named edges.
The graph is never kept: `held_by` reads it off the objects when it is saved, restored or looked at, so that lists and
dictionaries stay what they are, and what was attached after a restore is found by the next look.
"""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from anabranch.core.values import PassedOn

Method = TypeVar("Method", bound=Callable[..., Any])

#: what checkpoints hold: a `Trackable`, or a list, tuple or dictionary with one somewhere in it
Tracked: TypeAlias = Any
#: the name under which the value of a variable is stored
VARIABLE_VALUE_KEY: Final = "VARIABLE_VALUE"
#: the tensor of a checkpoint that describes its objects
OBJECT_GRAPH_PROTO_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"


#: called when an object that is restored at once becomes an attribute
_at_attachments: weakref.WeakSet[Any] = weakref.WeakSet()


class TrackableReference(NamedTuple):
    """An object that another one holds, under a name of its own there."""

    name: str
    ref: Any


class NoDependency:
    """Marks the value of an attribute that checkpoints shall not hold; the attribute is the value itself.

    Example:
        >>> holder = tf.Module()
        >>> holder.aside = tf.contrib.checkpoint.NoDependency(tf.Variable(1.0, name="aside"))
        >>> holder.aside.name
        'aside:0'
    """

    def __init__(self, value: PassedOn) -> None:
        self.value: Any = value


class NotTrackable:
    """Marks objects that checkpoints of objects cannot hold: saving one is an error."""


class Trackable:
    """An object that a checkpoint of objects may hold.

    A subclass says which objects it holds (`_checkpoint_dependencies`) and which values of its own are stored
    (`_gather_saveables_for_checkpoint`). The names are TensorFlow's, since libraries override them.
    """

    #: whether it takes over what a checkpoint has for it as soon as it is attached, and no session is needed for that
    _is_restored_at_once = False

    def _maybe_initialize_trackable(self) -> None:
        """Nothing is to be prepared."""

    @property
    def _self_dependencies(self) -> dict[str, Any]:
        """What `_track_trackable` was told, by name."""
        told: dict[str, Any] = self.__dict__.setdefault("_self_declared", {})
        return told

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        """The objects that this one holds."""
        return [TrackableReference(name, held) for name, held in self._self_dependencies.items()]

    @property
    def _unconditional_checkpoint_dependencies(self) -> list[TrackableReference]:
        """The same: there are none that depend on a graph, but those of optimizers."""
        return self._checkpoint_dependencies

    def _lookup_dependency(self, name: str) -> Any:
        """The object held under a name; None if there is none."""
        return next((held for known, held in self._checkpoint_dependencies if known == name), None)

    def _track_trackable(self, trackable: PassedOn, name: str, overwrite: bool = False) -> Any:
        """Says that this object holds another one.

        Args:
            trackable: the other one.
            name: under which it is held.
            overwrite: whether another object may have been held under the name.

        Returns:
            `trackable`.

        Raises:
            TypeError: it is nothing that checkpoints hold.
            ValueError: the name is taken.
        """
        if not isinstance(trackable, Trackable):
            raise TypeError(
                f"Trackable._track_trackable() passed type {type(trackable)}, not a Trackable: derive its class from "
                "tf.Module, or hold the variables in it"
            )
        current = self._lookup_dependency(name)
        if current is not None and current is not trackable and not overwrite:
            raise ValueError(
                f"Called Trackable._track_trackable() with name='{name}', but a Trackable with this name is already "
                "declared as a dependency. Names must be unique (or overwrite=True)."
            )
        self._self_dependencies[name] = trackable
        return trackable

    def _handle_deferred_dependencies(self, name: str, trackable: PassedOn) -> None:
        """Nothing waits for an object: what is restored later is found when it is."""

    def _add_variable_with_custom_getter(
        self,
        name: str,
        shape: PassedOn = None,
        dtype: PassedOn = "float32",
        initializer: PassedOn = None,
        getter: Callable[..., Any] | None = None,
        overwrite: bool = False,
        **kwargs_for_getter: PassedOn,
    ) -> Any:
        """A new variable of `getter`, which this object holds under `name`.

        Raises:
            ValueError: the name is taken, unless `overwrite`.
        """
        if getter is None:
            raise ValueError(f"no getter makes the variable {name!r}: give one")
        made = getter(name=name, shape=shape, dtype=dtype, initializer=initializer, **kwargs_for_getter)
        return self._track_trackable(made, name, overwrite) if isinstance(made, Trackable) or not overwrite else made

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """The values that are stored with this object, by name.

        Each is something that a saver saves (a variable, a table), or a function that makes a `SaveableObject` of the
        `name` that the value has in the checkpoint.
        """
        return {}


class AutoTrackable(Trackable):
    """An object that holds what its attributes are: trackable ones, and lists, tuples and dictionaries of them."""

    def __setattr__(self, name: str, value: PassedOn) -> None:
        hidden = self.__dict__.get("_self_hidden")
        if type(value) is NoDependency:
            value = value.value
            _hidden(self).add(name)
        elif self.__dict__.get("_self_setattr_tracking") is False:
            _hidden(self).add(name)
        else:
            if hidden:
                hidden.discard(name)
            if isinstance(value, Trackable) and value._is_restored_at_once:
                super().__setattr__(name, value)
                for look in list(_at_attachments):
                    look()
                return
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._self_dependencies.pop(name, None)
        super().__delattr__(name)

    def _track_trackable(self, trackable: PassedOn, name: str, overwrite: bool = False) -> Any:
        super()._track_trackable(trackable, name, overwrite)
        # the first of two names of one object is what its values are named after: the order is that of the program
        self.__dict__.setdefault("_self_places", {}).setdefault(name, len(self.__dict__))
        return trackable

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        """What was declared and the attributes, as they came."""
        declared, hidden = self._self_dependencies, self.__dict__.get("_self_hidden", ())
        placed = [
            (place, name, value)
            for place, (name, value) in enumerate(self.__dict__.items())
            if name not in hidden and name not in declared and not name.startswith("_self_") and is_tracked(value)
        ]
        places = self.__dict__.get("_self_places", {})
        placed += [(places.get(name, 0) - 0.5, name, value) for name, value in declared.items()]
        return [TrackableReference(name, value) for _, name, value in sorted(placed, key=lambda held: held[0])]

    def _no_dependency(self, value: PassedOn) -> Any:
        """The value marked as one that checkpoints do not hold."""
        return NoDependency(value)


def _hidden(obj: AutoTrackable) -> set[str]:
    """The attributes that are not looked into."""
    names: set[str] = obj.__dict__.setdefault("_self_hidden", set())
    return names


def hide_attributes(obj: AutoTrackable, names: Iterable[str]) -> None:
    """Says that attributes are no part of what checkpoints hold, whatever they are."""
    _hidden(obj).update(names)


@contextmanager
def no_automatic_dependency_tracking_scope(obj: object) -> Iterator[None]:
    """A block in which attributes of `obj` are set that checkpoints shall not hold."""
    before = obj.__dict__.get("_self_setattr_tracking", True)
    obj.__dict__["_self_setattr_tracking"] = False
    try:
        yield
    finally:
        obj.__dict__["_self_setattr_tracking"] = before


def no_automatic_dependency_tracking(method: Method) -> Method:
    """Decorates a method: the attributes that it sets are none that checkpoints hold."""

    @functools.wraps(method)
    def untracked(self: object, *args: PassedOn, **kwargs: PassedOn) -> Any:
        with no_automatic_dependency_tracking_scope(self):
            return method(self, *args, **kwargs)

    return untracked  # type: ignore[return-value]


def look_at_attachments(look: Callable[[], object]) -> None:
    """Lets an object with `__call__`, as long as it lives, look when objects are attached that are restored at once."""
    _at_attachments.add(look)


# ---------------------------------------------------------------------- reading the graph
def _is_container(value: object) -> bool:
    """Whether a value is a list, tuple or dictionary as programs write them, and not a class made of one."""
    return type(value) in (list, tuple, dict, OrderedDict) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _elements(container: Tracked) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def is_tracked(value: object) -> bool:
    """Whether a value is something that checkpoints hold, or has something of the kind somewhere in it."""
    if isinstance(value, Trackable):
        return True
    waiting, seen = [value], set[int]()
    while waiting:
        container = waiting.pop()
        if not _is_container(container) or id(container) in seen:
            continue
        seen.add(id(container))
        for _, element in _elements(container):
            if isinstance(element, Trackable):
                return True
            if _is_container(element):
                waiting.append(element)
    return False


def held_by(obj: Tracked) -> list[TrackableReference]:
    """The objects that an object of the graph holds, by name.

    Raises:
        ValueError: a dictionary has one under a key that is no string.
        NotImplementedError: the object cannot be saved at all.
    """
    if isinstance(obj, NotTrackable):
        raise NotImplementedError(
            f"The object {obj} does not support object-based saving. Remove the attribute that holds it, or mark it "
            "as tf.contrib.checkpoint.NoDependency, and save everything else."
        )
    if isinstance(obj, Trackable):
        return list(obj._checkpoint_dependencies)
    held = []
    for key, element in _elements(obj):
        if is_tracked(element):
            if isinstance(obj, dict) and not isinstance(key, str):
                raise ValueError(
                    f"Unable to save the object {obj} (a dictionary): it has a non-string key, {key!r}, which maps to "
                    "a trackable object. Use strings as keys, or wrap the dictionary in "
                    "tf.contrib.checkpoint.NoDependency, so that it is ignored."
                )
            held.append(TrackableReference(str(key), element))
    return held


def values_of(obj: Tracked) -> dict[str, Any]:
    """The values that are stored with an object of the graph."""
    return obj._gather_saveables_for_checkpoint() if isinstance(obj, Trackable) else {}


def cached_per_instance(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of an object, whose result is computed once for each, and kept as long as the object is."""
    kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def cached(item: PassedOn) -> Any:
        if item not in kept:
            kept[item] = function(item)
        return kept[item]

    cached.cache = kept  # type: ignore[attr-defined]
    return cached
