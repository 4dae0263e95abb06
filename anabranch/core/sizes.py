"""How large tensors may be: numbers that 64 bits hold, and the memory that there is."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import DTypeLike

from anabranch.errors import InvalidArgumentError, OperationLike, ResourceExhaustedError

#: XLA and NumPy count elements and bytes in signed 64-bit numbers; past them XLA ends the process
_MAX_COUNT: Final = (1 << 63) - 1
#: allocations below this are not worth asking the system about
_SMALL: Final = 1 << 28
#: a fused program may pass through a tensor that it never stores, larger than the memory, but not without end
_UNSTORED_FACTOR: Final = 4
_MEMORY_INFO: Final = Path("/proc/meminfo")
_PAGES: Final = Path("/proc/self/statm")
_CGROUP: Final = Path("/sys/fs/cgroup")


def check_countable(
    shape: Sequence[int], item_size: int, op: OperationLike | None = None, what: str = "a tensor"
) -> int:
    """The bytes of a tensor of that shape.

    Raises:
        InvalidArgumentError: a dimension is negative, or 64 bits cannot count the bytes.
    """
    if any(n < 0 for n in shape):
        raise InvalidArgumentError(None, op, f"{what} has the negative dimension {min(shape)} in its shape {[*shape]}")
    # what a dimension of 0 empties must be countable as well: strides are products of the other dimensions
    count = math.prod(max(int(n), 1) for n in shape) * max(item_size, 1)
    if count > _MAX_COUNT:
        raise InvalidArgumentError(
            None,
            op,
            f"{what} of shape {[*shape]}: the product of the dimensions overflows 64 bits; look at the sizes asked for",
        )
    return 0 if 0 in shape else count


def check_storable(
    shape: Sequence[int], dtype: DTypeLike, op: OperationLike | None = None, what: str = "a tensor"
) -> None:
    """Says whether the machine could hold a tensor, before anything is allocated for it.

    Args:
        shape: the sizes of its dimensions.
        dtype: anything that NumPy takes for a dtype.
        op: the operation that the error names; None: `OpError.attribute_to` will.

    Raises:
        InvalidArgumentError: a dimension is negative, or 64 bits cannot count the bytes.
        ResourceExhaustedError: the tensor alone is larger than the memory that is available.
    """
    size = check_countable(shape, np.dtype(dtype).itemsize, op, what)
    if size > _SMALL and size > available_memory():
        raise out_of_memory(shape, np.dtype(dtype).name, size, op)


def check_passable(
    shape: Sequence[int], dtype: DTypeLike, op: OperationLike | None = None, what: str = "a tensor"
) -> int:
    """The bytes of a tensor that a compiled program may pass through without storing it.

    Raises:
        InvalidArgumentError: a dimension is negative, or 64 bits cannot count the bytes.
        ResourceExhaustedError: no machine like this one would come to its end.
    """
    size = check_countable(shape, getattr(dtype, "itemsize", 1), op, what)
    if size > _SMALL and size > _UNSTORED_FACTOR * total_memory():
        raise out_of_memory(shape, str(dtype), size, op)
    return size


def out_of_memory(
    shape: Sequence[int], dtype: str, size: int, op: OperationLike | None = None
) -> ResourceExhaustedError:
    """The error of a tensor that is larger than the memory."""
    return ResourceExhaustedError(
        None,
        op,
        f"OOM when allocating tensor with shape{[*shape]} and type {dtype}: that is {size:,} bytes, "
        f"and {available_memory():,} are available; look at the sizes asked for",
    )


def total_memory() -> int:
    """The memory of the machine, in bytes."""
    return _memory_info("MemTotal")


def available_memory() -> int:
    """How many bytes this process could allocate now without being killed or refused for it."""
    return max(0, min(_memory_info("MemAvailable"), _left_of_group(), _left_of_limit()))


def resident_memory() -> int:
    """How many bytes of memory this process has; 0 where the system does not tell."""
    return _pages(1) * resource.getpagesize()


def _memory_info(name: str) -> int:
    try:
        lines = _MEMORY_INFO.read_text().splitlines()
    except OSError:
        return _MAX_COUNT
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), _MAX_COUNT)


def _left_of_group() -> int:
    """What the control group of the process leaves of its limit, as containers are limited."""
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        kinds = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        # pages of files count as used, but are given back when they are wanted
        return limit - used + int(kinds.get("inactive_file", 0))
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return _MAX_COUNT


def _left_of_limit() -> int:
    """What `ulimit -v` leaves of the address space."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return _MAX_COUNT
    return limit - _pages(0) * resource.getpagesize()


def _pages(column: int) -> int:
    """What the system tells of this process's memory: 0: pages of its address space; 1: those that are there."""
    try:
        return int(_PAGES.read_text().split()[column])
    except OSError:
        return 0
