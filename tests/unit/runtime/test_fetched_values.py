"""Fetched values of accelerators: an array that the caller may write to, in the memory that the copy came into."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from anabranch.runtime.fetched_values import _OwnHostArray


class FarArray:
    """Stands for one of JAX on an accelerator: what it gives to the host is read-only, and kept."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def addressable_data(self, index: int) -> Any:
        assert index == 0
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.memory


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128, np.bool_, bfloat16])
@pytest.mark.parametrize("shape", [(3, 4), (), (2, 0), (5,)])
def test_an_own_array_shares_what_was_copied(dtype: Any, shape: tuple[int, ...]) -> None:
    memory = np.ones(shape, dtype)
    memory.flags.writeable = False
    found = _OwnHostArray.of(FarArray(memory))  # type: ignore[arg-type]
    assert found.shape == shape
    assert found.dtype == dtype
    assert found.flags.writeable
    if memory.size:
        assert np.shares_memory(found, memory)
    found[...] = 0
    del memory
    gc.collect()
    np.testing.assert_array_equal(found.astype(np.complex128), np.zeros(shape))


def test_an_array_in_another_order_is_copied() -> None:
    memory = np.arange(6.0).reshape(2, 3).T
    found = _OwnHostArray.of(FarArray(memory))  # type: ignore[arg-type]
    assert not np.shares_memory(found, memory)
    np.testing.assert_array_equal(found, memory)
