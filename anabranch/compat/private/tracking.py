"""`tensorflow.python.training.tracking`: what libraries and tests take of it that no public name is.

Lists and dictionaries are not wrapped when they become attributes, so the wrappers' names are those of Python's
classes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import anabranch as tf
from anabranch.core.trackables import NoDependency, Trackable
from anabranch.core.values import PassedOn
from anabranch.graph.operation import StepRunner
from anabranch.train.load_status import CheckpointLoadStatus, LoadStatus, NameBasedSaverStatus
from anabranch.train.object_checkpoints import TrackableSaver
from anabranch.train.object_graph import ObjectGraphView

ListWrapper = list
_DictWrapper = dict


def sticky_attribute_assignment(trackable: PassedOn, name: str, value: PassedOn) -> Any:
    """The value that an attribute is given; an object holds it from now on, unless it is marked to be no dependency."""
    if isinstance(value, NoDependency):
        return value.value
    if isinstance(value, Trackable):
        trackable._track_trackable(value, name, overwrite=True)
    return value


def add_variable(
    trackable: PassedOn,
    name: str,
    shape: PassedOn = None,
    dtype: PassedOn = "float32",
    initializer: PassedOn = None,
    trainable: bool = True,
) -> Any:
    """A new variable that an object holds under its name.

    Raises:
        ValueError: the object holds another under that name, or an initial value comes with a shape.
    """
    return trackable._add_variable_with_custom_getter(
        name=name, shape=shape, dtype=dtype, initializer=initializer, getter=_new_variable, trainable=trainable
    )


def _new_variable(
    name: str, shape: PassedOn, dtype: PassedOn, initializer: PassedOn, **kwargs: PassedOn
) -> tf.Variable:
    if initializer is None:
        floating = tf.as_dtype(dtype).is_floating
        initializer = tf.glorot_uniform_initializer() if floating else tf.zeros_initializer()
    elif not callable(initializer) and shape is not None:
        raise ValueError("If initializer is a constant, do not specify shape.")
    if isinstance(initializer, type):
        initializer = initializer(dtype=dtype)
    first: Any = (lambda: initializer(shape, dtype=dtype)) if callable(initializer) else initializer
    return tf.Variable(first, name=name, dtype=dtype, use_resource=True, **kwargs)


def saver_with_op_caching(obj: PassedOn) -> TrackableSaver:
    """What saves the objects below one."""
    return TrackableSaver(ObjectGraphView(obj))


def streaming_restore(status: LoadStatus, session: StepRunner | None = None) -> None:
    """Restores what is there by now. What is made later is restored by another call, which leaves the rest as it is.

    Raises:
        NotImplementedError: the checkpoint is one of `tf.train.Saver`.
    """
    if isinstance(status, NameBasedSaverStatus):
        raise NotImplementedError(
            "Streaming restore not supported from name-based checkpoints when graph building: use tf.train.Checkpoint"
        )
    if isinstance(status, CheckpointLoadStatus):
        status.restore_new(session)


# ---------------------------------------------------------------------- resources
class ResourceTracker:
    """Lists the resources that are made in the blocks that it is opened for."""

    def __init__(self) -> None:
        self.resources: list[TrackableResource] = []

    def add_resource(self, resource: TrackableResource) -> None:
        """Lists one more."""
        self.resources.append(resource)


_trackers: list[ResourceTracker] = []


@contextlib.contextmanager
def resource_tracker_scope(resource_tracker: ResourceTracker) -> Iterator[None]:
    """A block in which resources are made that a tracker lists."""
    _trackers.append(resource_tracker)
    try:
        yield
    finally:
        _trackers.remove(resource_tracker)


class TrackableResource(Trackable):
    """What holds the handle of a resource, which `_create_resource` of a subclass makes when it is first asked for.

    Args:
        device: where it is made.
    """

    def __init__(self, device: str = "") -> None:
        self._resource_handle: Any = None
        self._resource_device = device
        for tracker in _trackers:
            tracker.add_resource(self)

    def _create_resource(self) -> Any:
        raise NotImplementedError("TrackableResource._create_resource not implemented.")

    def _initialize(self) -> None:
        """Makes the resource ready, where that is needed."""

    @property
    def resource_handle(self) -> Any:
        """The handle."""
        if self._resource_handle is None:
            with tf.device(self._resource_device):
                self._resource_handle = self._create_resource()
        return self._resource_handle


CapturableResource = TrackableResource
