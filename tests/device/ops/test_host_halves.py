"""Activations of numbers of 16 bits in NumPy, by their bits, give what the numbers themselves give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anabranch.ops.nn import host_halves

#: every number once
BITS = np.arange(1 << 16, dtype=np.uint16)
HALVES = [np.float16, ml_dtypes.bfloat16]


def _finite(dtype: Any) -> Any:
    """All finite numbers, in blocks of which the last one is not full."""
    numbers = BITS.view(dtype)
    found = numbers[np.isfinite(numbers.astype(np.float32))]
    assert len(found) % host_halves._BLOCK
    return found


def _with(numbers: Any, special: float, dtype: Any) -> Any:
    changed = numbers.copy()
    changed[77] = np.array(special, dtype)
    return changed


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("special", [1.0, np.inf, -np.inf, np.nan, -np.nan])
def test_positive_parts(dtype: Any, special: float) -> None:
    x = _with(_finite(dtype), special, dtype)
    found = host_halves.positive_part(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), np.maximum(x.astype(np.float32), 0))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("special", [1.0, np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("where", ["gradients", "x"])
def test_gradients_where_numbers_are_positive(dtype: Any, special: float, where: str) -> None:
    x = _finite(dtype).reshape(2, -1)
    gradients = np.random.default_rng(0).permutation(x.ravel()).reshape(x.shape)
    changed = _with((gradients if where == "gradients" else x).ravel(), special, dtype).reshape(x.shape)
    gradients, x = (changed, x) if where == "gradients" else (gradients, changed)
    assert host_halves.is_worthwhile(gradients, x)
    wide = gradients.astype(np.float32)
    # as around all kernels on the host
    with np.errstate(invalid="ignore"):
        found = host_halves.where_positive(gradients, x)
        expected = np.where(x.astype(np.float32) > 0, wide, wide * 0)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected)
    is_number = ~np.isnan(expected)
    # minus zero is not zero
    np.testing.assert_array_equal(np.signbit(found.astype(np.float32))[is_number], np.signbit(expected)[is_number])


def test_what_is_left_to_numpy() -> None:
    large = np.zeros((256, 256), ml_dtypes.bfloat16)
    assert host_halves.is_worthwhile(large, large)
    for other in (large[:2], large.T, large.astype(np.float32), large.view(np.int16), large.reshape(512, 128)):
        assert not host_halves.is_worthwhile(large, other)
