"""Memory for large arrays of the host, where kernels run one after the other: how it is got, and when it may be reused.

Memory that is touched for the first time takes longer than most arithmetic: the system clears each page, and on a
virtual machine the host may have to find it first. So what nothing reads any more is written over, where a kernel can
(`is_sole`); and results lie where JAX takes them as they are (`aligned_empty`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from anabranch.core.arrays import ElementType, HostArray

#: what arrays are looked for by
Key = TypeVar("Key")

#: where JAX takes an array's memory as it is (bytes), and how large an array is that this is worth while for
ALIGNMENT: Final = 64
ALIGNED_FROM: Final = 1 << 16


def aligned_empty(shape: Sequence[int], dtype: ElementType) -> HostArray:
    """An array without values, row by row, whose memory JAX takes without a copy if it is large."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < ALIGNED_FROM or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def array_at(address: int, shape: Sequence[int], dtype: ElementType) -> HostArray:
    """The array that lies row by row at an address of this process; it may be written, and keeps nothing alive.

    An array that JAX gives cannot be written, and while it lives nobody else could take its buffer.
    """
    dtype = np.dtype(dtype)
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memoryview(memory).cast("B"))


def is_aligned(array: HostArray) -> bool:
    """Whether JAX takes an array as it is."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0


@contextlib.contextmanager
def small_pages() -> Iterator[None]:
    """Large arrays of NumPy's get pages of the usual size, in all threads.

    NumPy asks the system for pages of 2 MiB. Most arrays of kernels that run one after the other are touched once or
    twice. On virtual machines whose host takes back what is free, such a page took eight times as long at the first
    touch as 512 small ones, and never gave that back.
    """
    with _pages.lock:
        if not _pages.users:
            _pages.before = _ask_for_huge_pages(False)
        _pages.users += 1
    try:
        yield
    finally:
        with _pages.lock:
            _pages.users -= 1
            if not _pages.users:
                _ask_for_huge_pages(_pages.before)


class _Pages:
    """Who wants small pages, and what NumPy's setting was before."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, True


_pages: Final = _Pages()


def _ask_for_huge_pages(wanted: bool) -> bool:
    """Sets what NumPy does, and says what it did; it has this for its own start, and another version may not."""
    setter = getattr(getattr(np, "_core", None), "multiarray", None)
    setter = getattr(setter, "_set_madvise_hugepage", None)
    return wanted if setter is None else bool(setter(wanted))


# ---------------------------------------------------------------------- who else reads an array
def is_sole(values: Mapping[Key, Any], key: Key) -> bool:
    """Whether an array lies in memory that can be written over, and nobody comes by it but through `values`.

    References tell: views, other names, and other threads' count as well. What a kernel of another library reads
    without a reference does not; none does longer than the kernel runs.
    """
    return _standing(values, key) in _ALONE


def _standing(values: Mapping[Key, Any], key: Key) -> tuple[bool, int, int]:
    """Whether memory of NumPy's can be written over, and how many refer to the array and to what owns its memory."""
    value = values[key]
    if type(value) is not np.ndarray:
        return False, 0, 0
    owner = value.base
    owned = value if owner is None else owner
    ours = type(owned) is np.ndarray and owned.flags.owndata and value.flags.writeable
    del owned
    return ours, sys.getrefcount(value), 0 if owner is None else sys.getrefcount(owner)


#: how arrays stand that own their memory, or share it with the array that does, and that nobody else refers to
_ALONE: Final = tuple(
    _standing({0: make()}, 0) for make in (lambda: np.empty(1), lambda: np.empty(8, np.uint8)[:8].view(np.float32))
)
