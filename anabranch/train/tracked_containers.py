"""`tf.contrib.checkpoint.List`, `Mapping` and `UniqueNameTracker`: containers that checkpoints hold  (§4.3).

Lists and dictionaries of Python's are held as well; these refuse what would make a checkpoint that another run of the
program could not be restored from, and have the layers' variables, losses and updates.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Iterable, Iterator
from typing import Any, Self

from anabranch.core.trackables import NoDependency, Trackable, TrackableReference, Tracked, held_by, is_tracked
from anabranch.core.values import PassedOn
from anabranch.frontend.variables.variables import Variable


class TrackedContainer(Trackable):
    """What containers have in common. They are told apart by identity."""

    #: whether it is there only for what it holds
    _is_container = True

    def __init__(self) -> None:
        self.trainable = True

    def contents(self) -> list[Any]:
        """What is in it."""
        raise NotImplementedError

    def _checked(self, value: PassedOn) -> Any:
        """A value that is to be put in.

        Raises:
            ValueError: checkpoints cannot hold it.
        """
        if isinstance(value, NoDependency):
            return value.value
        if not is_tracked(value) and not isinstance(value, list | dict):
            raise ValueError(
                "Only trackable objects (such as Layers or Optimizers) may be stored in a List object. Got "
                f"{value!r}, which does not inherit from Trackable."
            )
        return value

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    # ------------------------------------------------------------------ layers
    @property
    def layers(self) -> list[Any]:
        """The layers in it, and in containers in it; each once."""
        return list({id(layer): layer for layer in _layers_of(self.contents())}.values())

    @property
    def trainable_weights(self) -> list[Any]:
        """The variables that are trained: those of the layers, then those that are in it themselves."""
        if not self.trainable:
            return []
        own = [value for value in self.contents() if isinstance(value, Variable) and value.trainable]
        return [*(w for layer in self._weighted() for w in layer.trainable_weights), *own]

    @property
    def non_trainable_weights(self) -> list[Any]:
        """The other variables."""
        trained = {id(w) for w in self.trainable_weights}
        inside = [w for layer in self._weighted() for w in (*layer.trainable_weights, *layer.non_trainable_weights)]
        own = [value for value in self.contents() if isinstance(value, Variable)]
        return [w for w in (*inside, *own) if id(w) not in trained]

    def _weighted(self) -> list[Any]:
        held = [value for value in self.contents() if not isinstance(value, Variable)]
        return [value for value in _layers_of(held) if hasattr(value, "trainable_weights")]

    @property
    def weights(self) -> list[Any]:
        return [*self.trainable_weights, *self.non_trainable_weights]

    @property
    def trainable_variables(self) -> list[Any]:
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self.non_trainable_weights

    @property
    def variables(self) -> list[Any]:
        return self.weights

    @property
    def updates(self) -> list[Any]:
        """What training must run beside the step, of all layers."""
        return [update for layer in self.layers for update in getattr(layer, "updates", [])]

    @property
    def losses(self) -> list[Any]:
        """The losses of all layers."""
        return [loss for layer in self.layers for loss in getattr(layer, "losses", [])]


def _layers_of(values: Iterable[Any]) -> Iterator[Any]:
    """The layers among values, and in the containers among them."""
    for value in values:
        if isinstance(value, TrackedContainer):
            yield from _layers_of(value.contents())
        elif isinstance(value, list | tuple):
            yield from _layers_of(value)
        elif isinstance(value, dict):
            yield from _layers_of(value.values())
        elif hasattr(value, "call") and hasattr(value, "trainable_weights"):
            yield value


class List(TrackedContainer, collections.abc.Sequence[Any]):
    """A list that checkpoints hold, and that only grows.

    Args:
        args, kwargs: as of `list`.

    Raises:
        ValueError: an element is nothing that checkpoints hold.

    Example:
        >>> variables = tf.contrib.checkpoint.List([tf.Variable(1.0)])
        >>> variables.append(tf.Variable(2.0))
        >>> len(variables)
        2
    """

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__()
        given: list[Any] = list(*args, **kwargs)
        self._storage = [self._checked(value) for value in given]

    def contents(self) -> list[Any]:
        return self._storage

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        return held_by(self._storage)

    def append(self, value: PassedOn) -> None:
        """Adds an element."""
        self._storage.append(self._checked(value))

    def extend(self, values: Iterable[PassedOn]) -> None:
        """Adds several."""
        for value in values:
            self.append(value)

    def copy(self) -> Self:
        """A list of the same elements."""
        return type(self)(self._storage)

    __copy__ = copy

    def __iadd__(self, values: Iterable[PassedOn]) -> Self:
        self.extend(values)
        return self

    def __add__(self, other: Iterable[PassedOn]) -> Self:
        return type(self)([*self._storage, *other])

    def __radd__(self, other: Iterable[PassedOn]) -> Self:
        return type(self)([*other, *self._storage])

    def __imul__(self, times: int) -> Self:
        if times <= 0:
            raise ValueError(f"List only supports append, multiplying in place by {times} removes elements.")
        self.extend(self._storage * (times - 1))
        return self

    def __mul__(self, times: int) -> Self:
        return type(self)(self._storage * times)

    __rmul__ = __mul__

    def __getitem__(self, key: PassedOn) -> Tracked:
        return self._storage[key]

    def __len__(self) -> int:
        return len(self._storage)

    def __repr__(self) -> str:
        return f"List({self._storage!r})"


class Mapping(TrackedContainer, collections.abc.Mapping[str, Any]):
    """A dictionary from strings that checkpoints hold, and that only grows.

    Args:
        args, kwargs: as of `dict`.

    Raises:
        ValueError: a value is nothing that checkpoints hold, or another one than the key has.
        TypeError: a key is no string.

    Example:
        >>> variables = tf.contrib.checkpoint.Mapping(a=tf.Variable(1.0))
        >>> variables["b"] = tf.Variable(2.0)
        >>> sorted(variables)
        ['a', 'b']
    """

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__()
        self._storage: dict[str, Any] = {}
        self.update(*args, **kwargs)

    def contents(self) -> list[Any]:
        return [self._storage[key] for key in sorted(self._storage)]

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        return held_by(self._storage)

    def __setitem__(self, key: str, value: PassedOn) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Mapping accepts only string keys, but got a key {key!r}.")
        value = self._checked(value)
        known = self._storage.setdefault(key, value)
        if known is not value:
            raise ValueError(
                f"Mappings are an append-only data structure. Tried to overwrite the key '{key}' with value {value}, "
                f"but it already contains {known}"
            )

    def update(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        """Adds keys, as the method of a dictionary."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __getitem__(self, key: str) -> Tracked:
        return self._storage[key]

    def __len__(self) -> int:
        return len(self._storage)

    def __iter__(self) -> Iterator[str]:
        return iter(self._storage)

    def __repr__(self) -> str:
        return f"Mapping({self._storage!r})"

    __eq__ = TrackedContainer.__eq__
    __hash__ = TrackedContainer.__hash__


class UniqueNameTracker(TrackedContainer):
    """Holds objects under names that it makes unique: "x", "x_1", ...

    Example:
        >>> tracker = tf.contrib.checkpoint.UniqueNameTracker()
        >>> v = tracker.track(tf.Variable(1.0), "x")
        >>> w = tracker.track(tf.Variable(2.0), "x")
        >>> [name for name, _ in tracker._checkpoint_dependencies]
        ['x', 'x_1']
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def contents(self) -> list[Any]:
        return list(self._self_dependencies.values())

    def track(self, trackable: PassedOn, base_name: str) -> Tracked:
        """Holds an object under `base_name`, or that with a number; returns the object.

        Raises:
            ValueError: it is nothing that checkpoints hold.
        """
        if not isinstance(trackable, Trackable):
            raise ValueError(f"Expected a trackable value, got {trackable} which does not inherit from Trackable.")
        count = self._counts.get(base_name, 0)
        while self._lookup_dependency(_numbered(base_name, count)) is not None:
            count += 1
        self._counts[base_name] = count + 1
        return self._track_trackable(trackable, _numbered(base_name, count))


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name
