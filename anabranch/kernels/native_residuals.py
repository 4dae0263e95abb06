"""Batch normalization with a sum and ReLU behind it, where the extra `native` is installed: residual networks' blocks.

In one pass over the data, and the gradients in another (`pool_normalization.c`), where there is a C compiler.
Otherwise, and in a first step, which waits for none, oneDNN normalizes alone, and the rest is done as everywhere. The
gradient takes either form: where the result is positive the result itself says, if it was not written down.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Final

import numpy as np
from jax import numpy as jnp

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, onednn, pool_stages
from anabranch.kernels.native_halves import sum_of_two
from anabranch.kernels.native_normalization import Normalization, estimate, mask_bytes, usable
from anabranch.ops.nn import host_halves
from anabranch.ops.nn.activations import where_positive
from anabranch.ops.nn.normalization import running_averages

_TYPES: Final = {"T": [dtypes.float32, dtypes.bfloat16], "U": [dtypes.float32]}
#: which input the data are, forward and backward
_DATA_AT: Final = (0, 1)


def _described(x: Array, ctx: OperationContext, backward: bool) -> Normalization:
    one = Normalization.of(ctx.op.attrs, x.shape, x.dtype, backward, relu=False)
    assert one is not None  # `_takes` has said so
    return one


def _takes(backward: bool, case: KernelCase) -> bool:
    library = onednn.library()
    data = case.inputs[_DATA_AT[backward]]
    if library is None or not library.computes(data.dtype):
        return False
    one = Normalization.of(case.attrs, data.shape, data.dtype, backward, relu=False)
    if one is None or not usable(one):
        return False
    beside, vectors = (case.inputs[0], case.inputs[2:5]) if backward else (case.inputs[5], case.inputs[1:3])
    if tuple(beside.shape) != tuple(data.shape) or any(tuple(v.shape) != (one.lengths[1],) for v in vectors):
        return False
    return not backward or tuple(case.inputs[6].shape) in {(0,), (mask_bytes(data.shape),)}


def _forward(
    x: Array, scale: Array, offset: Array, mean: Array, variance: Array, side: Array, *, ctx: OperationContext
) -> Any:
    one = _described(x, ctx, backward=False)
    vector, data = (tuple(scale.shape), scale.dtype), (tuple(x.shape), x.dtype)
    at_once = isinstance(x, np.ndarray)
    parts = None if at_once else pool_stages.in_parts(replace(one, relu=True, added=True).text)
    positive: Any = np.zeros(0, np.uint8)
    if parts is not None:
        results = [data, vector, vector, ((mask_bytes(x.shape),), np.uint8)]
        given: tuple[Array, ...] = (x, scale, offset, side)
        y, own_mean, own_variance, positive = pool_stages.call(ctx.op.name, parts, given, results)
    else:
        results, given = [data, vector, vector], (x, scale, offset)
        y, own_mean, own_variance = native_calls.call_several(ctx.op.name, one.text, given, results)
        if at_once:
            y = sum_of_two(ctx.op.name, y, side, y)
            halves = host_halves.is_worthwhile(y)
            y = host_halves.positive_part(y, y) if halves else np.maximum(y, y.dtype.type(0), out=y)
        else:
            y = jnp.maximum(y + side, y.dtype.type(0))
    count = one.elements // one.lengths[1]
    running = running_averages(own_mean, own_variance, (mean, variance), count, ctx.op.attrs)
    return [y, *running, own_mean, own_variance, np.zeros((), scale.dtype), positive]


def _backward(
    grad: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    y: Array,
    positive: Array,
    *,
    ctx: OperationContext,
) -> Any:
    one = _described(x, ctx, backward=True)
    vector, data = (tuple(scale.shape), scale.dtype), (tuple(x.shape), x.dtype)
    spare = [np.zeros(0, scale.dtype)] * 2
    at_once = isinstance(x, np.ndarray)
    # what has normalized may be a compiled program, of another task even; this one may run at once, or have no compiler
    written_down = not at_once and positive.shape != (0,)
    parts = pool_stages.in_parts(replace(one, relu=True, added=True).text) if written_down else None
    if parts is not None:
        given: tuple[Array, ...] = (x, grad, mean, variance, scale, positive)
        *gradients, steep = pool_stages.call(ctx.op.name, parts, given, [data, vector, vector, data])
        return [*gradients, *spare, steep]
    steep = where_positive(np if at_once else jnp, grad, y, ctx, (0, 5))
    given = (x, steep, mean, variance, scale)
    gradients = native_calls.call_several(ctx.op.name, one.text, given, [data, vector, vector])
    return [*gradients, *spare, steep]


for _backwards, _op_type, _kernel in (
    (False, "_FusedBatchNormAddRelu", _forward),
    (True, "_FusedBatchNormAddReluGrad", _backward),
):
    register_kernel(
        _op_type,
        "onednn",
        device_type="CPU",
        types=_TYPES,
        applies=functools.partial(_takes, _backwards),
        cost=functools.partial(estimate, _backwards),
        rough=native_calls.is_rough,
        calls_back=True,
        takes_numpy=True,
    )(_kernel)
