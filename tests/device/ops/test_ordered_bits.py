"""Numbers of 16 bits as integers in the same order: all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax import numpy as jnp

from anabranch.ops.nn.ordered_bits import from_order, in_order, key, where_positive

#: every number, NaN of both signs and numbers below the least normal one included
BITS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("xp", [np, jnp], ids=["NumPy", "JAX"])
def test_the_order_is_that_of_the_numbers(dtype: Any, xp: Any) -> None:
    numbers = BITS.view(dtype)
    keys = np.asarray(in_order(numbers, xp))
    again = np.asarray(from_order(keys, dtype, xp))
    is_number = ~np.isnan(numbers.astype(np.float32))
    np.testing.assert_array_equal(again[is_number].view(np.uint16), BITS[is_number])
    assert np.isnan(again[~is_number].astype(np.float32)).all()
    by_key = numbers[is_number].astype(np.float32)[np.argsort(keys[is_number], kind="stable")]
    assert (np.diff(by_key[1:-1]) >= 0).all()
    assert (by_key[0], by_key[-1]) == (-np.inf, np.inf)
    # equal integers for equal numbers only: but for the two zeros, each has its own
    assert len(np.unique(keys[is_number])) == is_number.sum()
    assert keys[~is_number].min() > keys[is_number].max()
    assert (key(-np.inf, dtype), key(np.inf, dtype)) == (keys[is_number].min(), keys[is_number].max())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_what_is_chosen_by_sign_is_what_numbers_choose(dtype: Any) -> None:
    """Of every value where numbers are positive and where not, and of few values at every number."""
    numbers = BITS.view(dtype)
    few = np.array([1.5, -0.0, np.inf, np.nan, -np.inf, -3], dtype)
    for values, x in ((numbers, np.repeat(few[:, None], BITS.size, 1)), (few[:, None], numbers)):
        values, x = (np.ascontiguousarray(one) for one in np.broadcast_arrays(values, x))
        got = np.asarray(where_positive(jnp.asarray(values), jnp.asarray(x)))
        with np.errstate(invalid="ignore"):
            wide, wide_x = values.astype(np.float32), x.astype(np.float32)
            wanted = np.where(wide_x > 0, wide, wide * np.float32(0))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float32), wanted)
        zero = wanted == 0
        np.testing.assert_array_equal(np.signbit(got.astype(np.float32))[zero], np.signbit(wanted)[zero])
