"""Fetched values: what a step gives its caller, who may keep it and write to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.arrays import HostArray
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
    left = list(values)
    del values
    left.reverse()
    fetched = []
    while left:
        value = left.pop()
        is_own = isinstance(value, np.ndarray) and value.nbytes >= _GIVEN_AWAY and _is_held_once(value)
        fetched.append(value if is_own else fetched_value(value))
    return fetched


def _is_held_once(array: HostArray) -> bool:
    """Whether nobody but the caller, in one variable, holds an array, or sees its memory by another one.

    Whoever does so holds a reference to it, or to the array whose memory it shows: views do, and JAX's arrays do.
    """
    if not array.flags.writeable or not array.flags.c_contiguous or sys.getrefcount(array) > _HELD_BY_CALLER:
        return False
    base = array.base
    if base is None:
        return array.flags.owndata
    # a part of an array would keep all of its memory
    is_whole = type(base) is np.ndarray and base.flags.owndata and base.nbytes < 2 * array.nbytes
    return is_whole and sys.getrefcount(base) <= _HELD_BY_ARRAY


def _references() -> tuple[int, int]:
    """What `sys.getrefcount` tells where `_is_held_once` asks, if nobody else holds the array, or its memory."""

    def counted(array: HostArray) -> tuple[int, int]:
        of_array = sys.getrefcount(array)
        base = array.base
        return of_array, sys.getrefcount(base)

    array = np.empty(2, np.uint8)[1:]
    return counted(array)


#: references to an array that only the caller of `_is_held_once` holds, and to memory that only that array shows
_HELD_BY_CALLER, _HELD_BY_ARRAY = _references()


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
