"""A kernel is called in one way, whoever calls it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.kernel_context import KernelContext
from anabranch.core.resources import ResourceHandle
from anabranch.graph.kernel_binding import VALUE_ERRORS, BoundKernel, flatten_outputs, host_array, refusal
from anabranch.ops import raw


def bound(tensor: Any, **given: Any) -> BoundKernel:
    op = tensor.op
    return BoundKernel(op, op.op_def.compiled_rule, **given)


def test_a_kernel_gets_what_it_asks_for() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    total = raw.Sum(x, [1], keep_dims=True)
    kernel = bound(total, xp=np, ctx=KernelContext(total.op), rng="not asked for")
    values = [np.ones((2, 3), np.float32), np.array([1], np.int32)]
    assert kernel(values).tolist() == [[3.0], [3.0]]
    assert isinstance(kernel(values, xp=jnp), jnp.ndarray)
    assert isinstance(kernel(values, rng="nor taken"), np.ndarray)


def test_inputs_are_grouped_by_argument() -> None:
    parts = [tf.placeholder(tf.float32, [1]) for _ in range(3)]
    joined = raw.ConcatV2(parts, 0)
    kernel = bound(joined, xp=np, ctx=KernelContext(joined.op))
    arrays = [np.full(1, i, np.float32) for i in range(3)]
    assert kernel([*arrays, np.int32(0)]).tolist() == [0.0, 1.0, 2.0]
    assert kernel.grouped(["a", "b", "c", "axis"]) == [["a", "b", "c"], "axis"]
    assert kernel.on_arguments(arrays, np.int32(0)).tolist() == [0.0, 1.0, 2.0]


def test_results_are_flat() -> None:
    assert flatten_outputs(None) == []
    assert flatten_outputs(1) == [1]
    assert flatten_outputs(([1, (2,)], 3)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, np.int64, np.array(1, np.int64)),
        (np.float64(1.5), np.float32, np.array(1.5, np.float32)),
        (np.zeros(2, np.float64), np.float32, np.zeros(2, np.float32)),
        (b"text", np.object_, np.array(b"text", np.object_)),
    ],
)
def test_results_become_arrays_of_their_dtype(value: Any, dtype: Any, expected: Any) -> None:
    found = host_array(value, dtype)
    assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())


def test_what_is_there_is_not_copied() -> None:
    array, handle = np.zeros(2, np.float32), ResourceHandle("", "v", "variable")
    assert host_array(array, np.float32) is array
    assert host_array(handle, np.object_) is handle


def test_a_refusal_names_the_operation_and_what_it_got() -> None:
    x = tf.placeholder(tf.float32, name="x")
    y = raw.Reshape(x, [2, 2], name="y")
    kernel = bound(y, xp=np, ctx=KernelContext(y.op))
    values = [np.zeros(3, np.float32), np.array([2, 2], np.int32)]
    with pytest.raises((*VALUE_ERRORS, tf.errors.InvalidArgumentError)) as failure:
        kernel(values)
    error = refusal(y.op, values, failure.value)
    assert error.op is y.op
    assert "Reshape cannot take these inputs: x:0 (3,) float32" in error.message
