"""`tensorflow.python.training.tracking`: what marks objects whose attributes checkpoints hold, or shall not hold.

`tf.train.Checkpoint` saves the variables of any object, so the classes add nothing, and no attribute is wrapped when it
is set. What is marked to be no dependency is its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.core.values import PassedOn


class Trackable:
    """An object whose variables a checkpoint may hold."""


class AutoTrackable(Trackable):
    """The same; in TensorFlow setting an attribute makes it a dependency."""


class NoDependency:
    """Calling this gives the value as it is."""

    def __new__(cls, value: PassedOn) -> Any:
        return value


@contextmanager
def no_automatic_dependency_tracking_scope(obj: object) -> Iterator[None]:
    """A block in which attributes of `obj` are set and are no dependencies."""
    yield


def no_automatic_dependency_tracking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method in which attributes are set and are no dependencies: the method."""
    return method
