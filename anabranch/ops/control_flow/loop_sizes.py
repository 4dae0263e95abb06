"""How often a loop runs, found out before it runs  (§3.4; docs/decisions/0014-loops.md, 0112-lists-that-grow.md)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core.arrays import ArrayLibrary
from anabranch.core.attrs import FuncAttr
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext, StepTracingContext
from anabranch.ops.control_flow import loop_counts
from anabranch.ops.control_flow.conditionals import truth_of
from anabranch.ops.control_flow.loops import CompiledLoop, bodies, rounded

#: How often a loop runs, cut down to what its condition depends on; its inputs are known while a step is traced.
LoopBound = define_op("_LoopBound", "input: T -> bound: int32", "T: list(type) >= 0, cond: func, body: func")
#: The same where only the device knows the inputs; rounded up to a power of two, so that few programs differ.
DeviceLoopBound = define_op(
    "_DeviceLoopBound",
    "input: T -> bound: int32",
    "T: list(type) >= 0, cond: func, body: func",
    stateful=True,
    few_values=True,
    repeats_bodies=True,
    unnoticed=True,
)
#: The same number as it is: of loops whose number of iterations decides the sizes of results.
DeviceLoopCount = define_op(
    "_DeviceLoopCount",
    "input: T -> bound: int32",
    "T: list(type) >= 0, cond: func, body: func",
    stateful=True,
    few_values=True,
    repeats_bodies=True,
    unnoticed=True,
)


for _op in (LoopBound, DeviceLoopBound, DeviceLoopCount):
    _op.not_differentiable()
    _op.shape(lambda input: TensorShape([]))


@LoopBound.kernel
def _(input: list[Any], *, ctx: StepTracingContext, cond: FuncAttr, body: FuncAttr, xp: ArrayLibrary) -> Any:
    if xp is not np:
        raise ctx.needs_host("how often a loop inside the loop runs differs between iterations")
    functions = bodies(ctx.op, cond, body)
    steps = loop_counts.steps_towards_limits(*functions)
    if steps is not None and None not in steps:
        return np.int32(loop_counts.first_false(partial(ctx.call, functions[0]), functions[0], input, steps)[0])
    values, number = list(input), 0
    while bool(truth_of(np.asarray(ctx.call(functions[0], values)[0]))):
        values = ctx.call(functions[1], values)
        number += 1
    return np.int32(number)


@DeviceLoopBound.kernel
def _(input: list[Any], *, ctx: StepTracingContext, cond: FuncAttr, body: FuncAttr) -> Any:
    below = jnp.maximum(_compiled_count(input, ctx, cond, body) - 1, 0).astype(np.uint32)
    return (jnp.uint32(1) << (np.uint32(32) - lax.clz(below))).astype(np.int32)


@DeviceLoopCount.kernel
def _(input: list[Any], *, ctx: StepTracingContext, cond: FuncAttr, body: FuncAttr) -> Any:
    return _compiled_count(input, ctx, cond, body)


def _compiled_count(input: list[Any], ctx: StepTracingContext, cond: FuncAttr, body: FuncAttr) -> Any:
    loop = CompiledLoop(ctx, *bodies(ctx.op, cond, body), input, [False] * len(input))
    return jnp.asarray(loop.run(0, [], True)[1])


@DeviceLoopBound.host_kernel
def _(input: list[Any], *, ctx: StepHostContext, cond: FuncAttr, body: FuncAttr) -> Any:
    return np.int32(rounded(max(_host_count(input, ctx, cond, body), 1)))


@DeviceLoopCount.host_kernel
def _(input: list[Any], *, ctx: StepHostContext, cond: FuncAttr, body: FuncAttr) -> Any:
    return np.int32(_host_count(input, ctx, cond, body))


def _host_count(input: list[Any], ctx: StepHostContext, cond: FuncAttr, body: FuncAttr) -> int:
    functions = bodies(ctx.op, cond, body)
    values, number = list(input), 0
    while bool(truth_of(np.asarray(ctx.call(functions[0], values)[0]))):
        values = ctx.call(functions[1], values)
        number += 1
    return number
