"""Arrays, wherever they are: those of the host are NumPy's, those of devices are known by what they have in common."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

HostArray: TypeAlias = np.ndarray[Any, Any]


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


def boxed(value: object) -> HostArray:
    """An array of rank 0 that holds any object."""
    # `np.array` would look into sequences
    box = np.empty((), np.object_)
    box[()] = value
    return box
