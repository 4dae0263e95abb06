"""Arrays, wherever they are: those of the host are NumPy's, those of devices are known by what they have in common."""

from __future__ import annotations

import math
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

HostArray: TypeAlias = np.ndarray[Any, Any]

#: where XLA takes an array's memory as it is (bytes), and how large an array is that this is worth while for
_ALIGNMENT: Final = 64
_ALIGNED_FROM: Final = 1 << 16


class AnyArray(Protocol):
    """An array of the host or of a device."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __array__(self) -> HostArray: ...


#: an array of whichever library a kernel is called with: NumPy's, or JAX's, whose values may be known only to a device
Array: TypeAlias = Any
#: that library: `numpy` or `jax.numpy`
ArrayLibrary: TypeAlias = Any
#: what a kernel draws random numbers from: a random key of JAX's, or a generator of NumPy's
RandomSource: TypeAlias = Any
#: the type of an array's elements, as these libraries take it
ElementType: TypeAlias = "np.dtype[Any] | type[Any]"


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any] | type[Any]) -> HostArray:
    """An array like `np.empty`'s, in memory that an XLA program takes as it is, without a copy, where it is large."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _ALIGNED_FROM or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
