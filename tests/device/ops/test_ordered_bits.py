"""Numbers of 16 bits as integers in the same order: all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax import numpy as jnp

from anabranch.ops.nn.ordered_bits import from_order, in_order, key

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
