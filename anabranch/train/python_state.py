"""States of Python's in checkpoints of objects: what a class says of itself, and arrays of NumPy  (§4.3)."""

from __future__ import annotations

import abc
import functools
import io
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.trackables import Trackable
from anabranch.core.values import PassedOn
from anabranch.train.object_saveables import PythonStringStateSaveable


class PythonState(Trackable, abc.ABC):
    """An object whose state is a string in checkpoints, which the object makes and takes itself.

    It is restored when `tf.train.Checkpoint.restore` is called, or is found later; no operation is run for it.

    Example:
        >>> class Counter(tf.train.experimental.PythonState):
        ...     count = 0
        ...     def serialize(self):
        ...         return str(self.count)
        ...     def deserialize(self, string_value):
        ...         self.count = int(string_value)
        >>> counter = Counter()
        >>> checkpoint = tf.train.Checkpoint(counter=counter)
        >>> counter.count = 7
        >>> path = checkpoint.write("runs/counted", session=sess)
        >>> counter.count = 0
        >>> status = checkpoint.restore(path)
        >>> counter.count
        7
    """

    _is_restored_at_once = True

    @abc.abstractmethod
    def serialize(self) -> str | bytes:
        """The state as a string."""

    @abc.abstractmethod
    def deserialize(self, string_value: bytes) -> object:
        """Takes over a state."""

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """The state."""
        made = functools.partial(
            PythonStringStateSaveable, state_callback=self.serialize, restore_callback=self.deserialize
        )
        return {"py_state": made}


class _ArrayState(PythonState):
    """An array in a checkpoint, in NumPy's own format."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def serialize(self) -> bytes:
        written = io.BytesIO()
        np.save(written, self.array, allow_pickle=False)
        return written.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        self.array = np.load(io.BytesIO(string_value), allow_pickle=False)


class NumpyState(Trackable):
    """An object whose attributes are arrays of NumPy, which checkpoints hold.

    A restore makes those attributes that the checkpoint has, at once.

    Raises:
        NotImplementedError: an attribute is set to something else than an array.

    Example:
        >>> arrays = tf.contrib.checkpoint.NumpyState()
        >>> arrays.x = np.zeros([2])
        >>> path = tf.train.Checkpoint(arrays=arrays).write("runs/arrays", session=sess)
        >>> other = tf.contrib.checkpoint.NumpyState()
        >>> status = tf.train.Checkpoint(arrays=other).restore(path)
        >>> other.x
        array([0., 0.])
    """

    def __setattr__(self, name: str, value: PassedOn) -> None:
        if not isinstance(value, np.ndarray | np.generic):
            raise NotImplementedError(
                f"Assigned {value!r} to the {name!r} property of {self}, which is not a NumPy array. Mixing NumPy "
                "arrays and other trackable objects is not supported: hold those in another object"
            )
        known = self._self_dependencies.get(name)
        if known is None:
            self._track_trackable(_ArrayState(value), name)
        else:
            known.array = value

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_self_") and name in self._self_dependencies:
            return self._self_dependencies[name].array
        raise AttributeError(f"{type(self).__name__} object has no attribute {name!r}")

    def _lookup_dependency(self, name: str) -> Any:
        """The state of an attribute, which is made where a restore asks for it."""
        if name not in self._self_dependencies:
            self._self_dependencies[name] = _ArrayState(np.array([]))
        return self._self_dependencies[name]

    def _track_trackable(self, trackable: PassedOn, name: str, overwrite: bool = False) -> Any:
        self._self_dependencies[name] = trackable
        return trackable
