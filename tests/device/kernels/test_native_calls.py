"""Calls from compiled programs into a library: what the handler reads of XLA's call frame, and how it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from anabranch.kernels import native_calls
from anabranch.kernels.native_calls import Prepared, failed_operation


class Difference:
    """The difference of two arrays, by way of the scratch memory; stands in for a library."""

    scratch_bytes = 4 * 6

    def __init__(self, message: str) -> None:
        self._message = message

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        assert scratch_bytes == self.scratch_bytes
        if self._message:
            raise RuntimeError(self._message)
        one, other, result, inner = (
            np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (6,))
            for address in (*addresses, scratch)
        )
        inner[:] = one
        result[:] = inner - other


@pytest.fixture
def _difference() -> Iterator[None]:
    native_calls.register_maker("difference", lambda message: Prepared(Difference(message), (6, 6, 6)))
    yield
    native_calls.forget()


def difference(one: jax.Array, other: jax.Array, text: str = "difference ") -> jax.Array:
    return native_calls.call("layer/difference", text, [one, other], one.shape, np.float32)


@pytest.mark.usefixtures("_difference")
def test_arrays_lie_row_by_row() -> None:
    """Also where a program transposes them."""
    one, other = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    other[1, 0] = 5
    np.testing.assert_array_equal(jax.jit(lambda x, y: difference(x, y.T).T + 1)(one, other), (one - other.T).T + 1)


@pytest.mark.usefixtures("_difference")
def test_a_failure_names_the_operation_and_ends_nothing() -> None:
    one = np.ones((2, 3), np.float32)
    with pytest.raises(Exception, match="layer/difference.*out of paper") as failure:
        jax.block_until_ready(jax.jit(lambda x: difference(x, x, "difference out of paper"))(one))
    assert failed_operation(str(failure.value)) == "layer/difference"
    assert failed_operation("INTERNAL: something else") == ""
    assert not jax.jit(lambda x: difference(x, x))(one).any()


@pytest.mark.usefixtures("_difference")
def test_other_arrays_than_were_prepared_for_are_refused() -> None:
    with pytest.raises(Exception, match="4 elements where 6"):
        jax.block_until_ready(jax.jit(lambda x: difference(x, x))(np.ones((2, 2), np.float32)))
