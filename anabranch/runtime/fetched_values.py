"""Fetched values: what a step gives its caller, who may keep it and write to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.host_memory import is_sole
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import ResourceExhaustedError

#: a fetched value of an accelerator of at least so many bytes is not copied on the host
_COPIED_ONCE: Final = 1 << 20
#: an array of at least so many bytes is given away as it is where nobody else holds it; smaller ones are soon copied
_GIVEN_AWAY: Final = 1 << 16


def fetched_values(values: Sequence[TensorValue]) -> list[Any]:
    """Values as `Session.run` gives them (`fetched_value`).

    A large array that a host operation made, and that nobody holds but the list, is not copied.
    """
    left: dict[int, Any] = dict(enumerate(values))
    del values
    fetched = []
    for position in range(len(left)):
        is_own = _is_whole(left[position]) and is_sole(left, position)
        value = left.pop(position)
        fetched.append(value if is_own else fetched_value(value))
    return fetched


def _is_whole(value: TensorValue) -> bool:
    """Whether a value is a large array of the host that keeps little more memory than its own."""
    if not isinstance(value, np.ndarray) or value.nbytes < _GIVEN_AWAY or not value.flags.c_contiguous:
        return False
    return value.base is None or getattr(value.base, "nbytes", 0) < 2 * value.nbytes


def fetched_value(value: TensorValue) -> Any:
    """A value as `Session.run` gives it: an array of the host or a number that nobody else holds; handles as they are.

    Raises:
        ResourceExhaustedError: the host is out of memory.
    """
    if isinstance(value, ResourceHandle):
        return value
    if isinstance(value, jax.Array) and value.nbytes >= _COPIED_ONCE and _is_far(value):
        return _OwnHostArray.of(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return array[()]
    # `asarray` shows the device's buffer, which is not the caller's: a later step may write there
    try:
        return array.copy()
    except MemoryError as error:
        raise ResourceExhaustedError(
            None, None, f"the host is out of memory for a fetched value: {error}; fetch less of it"
        ) from error


def _is_far(value: jax.Array) -> bool:
    return all(device.platform != "cpu" for device in value.devices())


class _OwnHostArray:
    """Shows what came from an accelerator as an array that may be written to: nobody else has its memory.

    JAX gives such an array read-only, since it keeps it for whoever asks again. One of an array of its own is not kept.
    """

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, memory: HostArray) -> None:
        self._memory = memory
        # as bytes: see `pinned_read`
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.ctypes.data, False),
            "shape": (memory.nbytes,),
            "typestr": "|u1",
        }

    @classmethod
    def of(cls, value: jax.Array) -> HostArray:
        """A fetched value: one copy, from the device."""
        memory = np.asarray(value.addressable_data(0))
        if not memory.flags.c_contiguous:
            return memory.copy()
        return np.asarray(cls(memory)).view(memory.dtype).reshape(memory.shape)
