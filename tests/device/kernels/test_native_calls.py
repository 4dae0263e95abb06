"""Calls from compiled programs into a library: what the handler reads of XLA's call frame, and how it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from anabranch.kernels import native_calls, native_convolutions, onednn_stages
from anabranch.kernels.native_calls import Prepared, failed_operation
from anabranch.ops.nn.conv import Geometry


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


def test_on_one_thread_a_computation_gives_the_same(native: None) -> None:
    """And the thread that asked for it uses all cores again afterwards."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 9, 9, 16), (3, 3, 16, 32)))
    attrs = {"strides": [1, 1, 1, 1], "padding": b"SAME", "dilations": [1, 1, 1, 1], "data_format": b"NHWC"}
    geometry = Geometry({**attrs, "explicit_paddings": []}, x.shape, list(w.shape), False)
    text = native_convolutions.Convolution.of(geometry, 0, False).text
    wide = native_calls.call("layer", text, (x, w), (2, 9, 9, 32), np.float32)
    narrow = onednn_stages.on_one_thread(lambda: native_convolutions._make(text.partition(" ")[2]).computation)
    found = np.empty_like(wide)
    scratch = np.empty(narrow.scratch_bytes, np.uint8)
    narrow.run([array.ctypes.data for array in (x, w, found)], scratch.ctypes.data, scratch.size)
    np.testing.assert_allclose(found, wide, rtol=1e-5, atol=1e-5)
