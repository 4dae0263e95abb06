"""Memory of another process of this host and user, as the system copies it (Linux: process_vm_readv).

Nothing is mapped, so that what the other process lets go of meanwhile is an error of the copy, and no signal. The
system allows it to processes that may trace each other: those of one user, if no security module says otherwise. Yama
does on many machines, where only a process's parents may trace it (ptrace_scope 1), unless it allows others to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

#: pieces of one call (IOV_MAX)
_AT_ONCE: Final = 1024
#: numbers of Linux (include/uapi/linux/prctl.h): PR_SET_PTRACER, PR_SET_PTRACER_ANY
_SET_TRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


#: an address and a size, and the bytes of both (`struct iovec`)
_Piece: Final = ctypes.c_uint64 * 2
_PIECE: Final = 16


class ProcessReader:
    """Reads the memory of another process. See `runtime.published_rows.ReadMemory`. Thread-safe."""

    def __init__(self, process: int, read: Callable[..., int]) -> None:
        self._process, self._call = process, read

    def __call__(self, pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
        """Copies pieces (uint64 [n, 2]: address, bytes) one after the other to `rows`."""
        # `ctypes` of an array takes several times as long
        source, to = pieces.__array_interface__["data"][0], rows.__array_interface__["data"][0]
        for begin in range(0, len(pieces), _AT_ONCE):
            count = min(len(pieces) - begin, _AT_ONCE)
            wanted = int(pieces[begin : begin + count, 1].sum()) if len(pieces) > _AT_ONCE else rows.nbytes
            if self._call(self._process, _Piece(to, wanted), 1, source + begin * _PIECE, count, 0) != wanted:
                return False
            to += wanted
        return True


def process_reader(process: int, number_at: int, number: int) -> ProcessReader | None:
    """What reads the memory of a process that has shown a number, and says where it stands in its memory.

    Returns:
        None where the system does not allow it, or that process is another one.
    """
    if sys.platform != "linux" or process == os.getpid():
        return None
    try:
        call = ctypes.CDLL(None).process_vm_readv
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, _Piece, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    reader, found = ProcessReader(process, call), np.zeros(1, np.uint64)
    return reader if reader(np.array([[number_at, 8]], np.uint64), found) and int(found[0]) == number else None


def let_others_read() -> None:
    """Lets processes of the same user read the memory of this one, where Yama would let its parents only.

    They may do so in any case where there is no Yama, and may read this user's files, keys among them, everywhere.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if sys.platform == "linux" and int(_YAMA.read_text()) == 1:
            ctypes.CDLL(None).prctl(_SET_TRACER, _ANY, 0, 0, 0)
