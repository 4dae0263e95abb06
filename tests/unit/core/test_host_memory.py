"""Memory of large arrays: where it lies, and when nobody else reads it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from anabranch.core.host_memory import ALIGNED_FROM, ALIGNMENT, aligned_empty, is_aligned, is_sole, small_pages


@pytest.mark.parametrize("shape", [(ALIGNED_FROM,), (7, 3, ALIGNED_FROM), (3,), (), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128])
def test_large_arrays_are_aligned(shape: tuple[int, ...], dtype: Any) -> None:
    array = aligned_empty(shape, dtype)
    array[...] = 3
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.nbytes < ALIGNED_FROM or (array.ctypes.data % ALIGNMENT == 0 and is_aligned(array))


def _made(kind: str) -> Any:
    return {
        "own": lambda: np.ones((300, 300), np.float32),
        "aligned": lambda: aligned_empty((300, 300), np.float32),
    }[kind]()


@pytest.mark.parametrize("kind", ["own", "aligned"])
def test_what_one_mapping_has_alone_is_sole(kind: str) -> None:
    values = {"x": _made(kind)}
    assert is_sole(values, "x")
    other = values["x"]
    assert not is_sole(values, "x")
    del other
    assert is_sole(values, "x")
    values["y"] = values["x"]
    assert not is_sole(values, "x")
    del values["y"]
    assert is_sole(values, "x")


@pytest.mark.parametrize("kind", ["own", "aligned"])
def test_a_view_keeps_an_array_from_being_sole(kind: str) -> None:
    values = {"x": _made(kind)}
    values["part"] = values["x"][3:]
    assert not is_sole(values, "x")
    assert not is_sole(values, "part")
    del values["x"]
    # nobody else is left who reads the memory, or it is not known: both are right
    assert is_sole(values, "part") in {True, False}
    again = values["part"].T
    assert not is_sole(values, "part")
    del again


@pytest.mark.parametrize("kind", ["own", "aligned"])
def test_another_thread_keeps_an_array_from_being_sole(kind: str) -> None:
    values, seen, done = {"x": _made(kind)}, threading.Event(), threading.Event()

    def hold() -> None:
        held = values["x"]
        seen.set()
        assert done.wait(30)
        del held

    thread = threading.Thread(target=hold)
    thread.start()
    assert seen.wait(30)
    assert not is_sole(values, "x")
    done.set()
    thread.join(30)
    assert is_sole(values, "x")


def test_memory_of_others_is_never_sole() -> None:
    buffer = bytearray(64)
    fixed = np.ones(8)
    fixed.flags.writeable = False
    values = {"buffer": np.frombuffer(buffer, np.uint8), "fixed": fixed, "scalar": np.float32(1), "text": "x"}
    del fixed
    assert not any(is_sole(values, name) for name in values)


def test_small_pages_end_with_their_last_user() -> None:
    core = pytest.importorskip("numpy._core.multiarray")
    before = core._set_madvise_hugepage(True)
    try:
        with small_pages():
            with small_pages():
                pass
            assert core._set_madvise_hugepage(False) is False
        assert core._set_madvise_hugepage(True) is True
        core._set_madvise_hugepage(False)
        with small_pages():
            pass
        assert core._set_madvise_hugepage(False) is False
    finally:
        core._set_madvise_hugepage(before)
