"""Cells of recurrent networks as one operation each: an LSTM with peepholes and clipping, a GRU, all steps of an LSTM.

The four gates of an LSTM stand side by side in the columns of one matrix: input, new value, forget, output (version 1),
or input, forget, new value, output (version 2). Gradients are TensorFlow's: they flow from the state and the output,
not from the gates, and as if nothing was clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_FLOATS = "T: {half, float}"
_STATE = "cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T"
_GATES = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
_PEEPHOLE = "use_peephole: bool = False"
_NAMES = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")


class Weights(NamedTuple):
    """What all steps of an LSTM have in common."""

    w: Array
    wci: Array
    wcf: Array
    wco: Array
    b: Array


class Gates(NamedTuple):
    """What one step of an LSTM gives."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


def _split(gates: Array, forget_first: bool) -> Any:
    """Input gate, new value, forget gate, output gate."""
    i, a, b, o = jnp.split(gates, 4, axis=1)
    return (i, b, a, o) if forget_first else (i, a, b, o)


def _forward(
    x: Array, cs_prev: Array, h_prev: Array, weights: Weights, attrs: dict[str, Any], forget_first: bool
) -> Gates:
    peephole, clip = attrs["use_peephole"], attrs["cell_clip"]
    sums = jnp.concatenate([x, h_prev], axis=1) @ weights.w + weights.b
    i, ci, f, o = _split(sums, forget_first)
    f = f + np.array(attrs.get("forget_bias", 0.0), f.dtype)
    if peephole:
        i, f = i + cs_prev * weights.wci, f + cs_prev * weights.wcf
    i, ci, f = jax.nn.sigmoid(i), jnp.tanh(ci), jax.nn.sigmoid(f)
    cs = i * ci + f * cs_prev
    if clip > 0:
        cs = jnp.clip(cs, np.array(-clip, cs.dtype), np.array(clip, cs.dtype))
    o = jax.nn.sigmoid(o + cs * weights.wco if peephole else o)
    co = jnp.tanh(cs)
    return Gates(i, cs, f, o, ci, co, o * co)


class Gradients(NamedTuple):
    """Of one step: with respect to the state before, to the sums of the gates, and to the peepholes."""

    cs_prev: Array
    sums: Array
    wci: Array
    wcf: Array
    wco: Array


def _backward(
    cs_prev: Array,
    weights: Weights,
    gates: Gates,
    cs_grad: Array,
    h_grad: Array,
    peephole: bool,
    forget_first: bool,
) -> Gradients:
    i, cs, f, o, ci, co, _ = gates
    d_o = o * (1 - o) * h_grad * co
    d_cs = (1 - co * co) * h_grad * o + cs_grad
    if peephole:
        d_cs = d_cs + d_o * weights.wco
    d_ci = (1 - ci * ci) * d_cs * i
    d_f = f * (1 - f) * d_cs * cs_prev
    d_i = i * (1 - i) * d_cs * ci
    order = (d_i, d_f, d_ci, d_o) if forget_first else (d_i, d_ci, d_f, d_o)
    before = d_cs * f
    peepholes = [jnp.zeros_like(weights.wci)] * 3
    if peephole:
        before = before + d_i * weights.wci + d_f * weights.wcf
        peepholes = [(d * s).sum(0) for d, s in ((d_i, cs_prev), (d_f, cs_prev), (d_o, cs))]
    return Gradients(before, jnp.concatenate(order, axis=1), *peepholes)


# ---------------------------------------------------------------------- one step
LSTMBlockCell = define_op(
    "LSTMBlockCell",
    f"x: T, {_STATE} -> {_GATES}",
    f"forget_bias: float = 1.0, cell_clip: float = 3.0, {_PEEPHOLE}, {_FLOATS}",
    ranks={"x": 2, "cs_prev": 2},
)


@LSTMBlockCell.shape
def _(x: TensorShape, cs_prev: TensorShape, *_: TensorShape) -> list[TensorShape]:
    x, cs_prev = x.with_rank(2), cs_prev.with_rank(2)
    return [TensorShape([x[0], cs_prev[1]])] * 7


@LSTMBlockCell.kernel
def _(*inputs: Array, ctx: OperationContext) -> Any:
    x, cs_prev, h_prev = inputs[:3]
    weights = Weights(*inputs[3:])
    _check_cell(x.shape, cs_prev.shape, h_prev.shape, weights, ctx)
    return tuple(_forward(x, cs_prev, h_prev, weights, ctx.op.attrs, forget_first=False))


def _check_cell(
    x: Sequence[int], cs_prev: Sequence[int], h_prev: Sequence[int], weights: Weights, ctx: OperationContext
) -> None:
    """The shapes of one step."""
    batch, size = cs_prev
    wanted = Weights((x[1] + size, 4 * size), (size,), (size,), (size,), (4 * size,))
    given = Weights(*(v.shape for v in weights))
    ctx.check(
        tuple(h_prev) == tuple(cs_prev) and x[0] == batch and given == wanted,
        f"an input of shape {tuple(x)} and a state of shape {tuple(cs_prev)} need an output before of that shape and "
        f"w, wci, wcf, wco and b of the shapes {[*wanted]}, got {tuple(h_prev)} and {[*given]}",
    )


@LSTMBlockCell.gradient
def _(op: Operation, *grads: Tensor) -> Any:
    x, _, h_prev, w = op.inputs[:4]
    before, sums, *peepholes = LSTMBlockCellGrad(
        *op.inputs, *op.outputs[:6], grads[1], grads[6], use_peephole=op.attrs["use_peephole"]
    )
    both = raw.MatMul(sums, w, transpose_b=True)
    x_grad, h_grad = _columns(both, x, h_prev)
    w_grad = raw.MatMul(raw.ConcatV2([x, h_prev], 1), sums, transpose_a=True)
    return [x_grad, before, h_grad, w_grad, *peepholes, raw.Sum(sums, [0])]


def _columns(side_by_side: Tensor, first: Tensor, second: Tensor) -> Any:
    """The columns of two matrices that stood side by side."""
    widths = raw.ConcatV2([raw.Slice(raw.Shape(t), [1], [1]) for t in (first, second)], 0)
    return raw.SplitV(side_by_side, widths, 1, num_split=2)


LSTMBlockCellGrad = define_op(
    "LSTMBlockCellGrad",
    f"x: T, {_STATE}, i: T, cs: T, f: T, o: T, ci: T, co: T, cs_grad: T, h_grad: T -> "
    "cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T",
    f"use_peephole: bool, {_FLOATS}",
    ranks={"x": 2, "cs_prev": 2},
)
LSTMBlockCellGrad.not_differentiable()


@LSTMBlockCellGrad.shape
def _(x: TensorShape, cs_prev: TensorShape, *_: TensorShape) -> list[TensorShape]:
    x, cs_prev = x.with_rank(2), cs_prev.with_rank(2)
    size = cs_prev[1]
    return [TensorShape([x[0], size]), TensorShape([x[0], size * 4]), *[TensorShape([size])] * 3]


@LSTMBlockCellGrad.kernel
def _(*inputs: Array, use_peephole: bool, ctx: OperationContext) -> Any:
    x, cs_prev, h_prev = inputs[:3]
    weights = Weights(*inputs[3:8])
    _check_cell(x.shape, cs_prev.shape, h_prev.shape, weights, ctx)
    i, cs, f, o, ci, co, cs_grad, h_grad = inputs[8:]
    gates = Gates(i, cs, f, o, ci, co, h_prev)
    return tuple(_backward(cs_prev, weights, gates, cs_grad, h_grad, use_peephole, forget_first=False))


# ---------------------------------------------------------------------- all steps
def _block(version: int) -> tuple[OpFunction, OpFunction]:
    """All steps of an LSTM, and their gradient."""
    suffix, forget_first = "V2" * (version == 2), version == 2
    bias = "" if forget_first else "forget_bias: float = 1.0, "
    clip = 0.0 if forget_first else 3.0
    forward = define_op(
        f"BlockLSTM{suffix}",
        f"seq_len_max: int64, x: T, {_STATE} -> {_GATES}",
        f"{bias}cell_clip: float = {clip}, {_PEEPHOLE}, {_FLOATS}",
        ranks={"x": 3, "b": 1},
    )
    backward = define_op(
        f"BlockLSTMGrad{suffix}",
        f"seq_len_max: int64, x: T, {_STATE}, {_GATES}, cs_grad: T, h_grad: T -> "
        + ", ".join(f"{name}_grad: T" for name in _NAMES),
        f"use_peephole: bool, {_FLOATS}",
        ranks={"x": 3, "cs_prev": 2, "h_prev": 2, "w": 2, "wci": 1, "wcf": 1, "wco": 1, "b": 1},
    )
    backward.not_differentiable()

    @forward.shape
    def _(seq_len_max: TensorShape, x: TensorShape, *rest: TensorShape) -> list[TensorShape]:
        x, b = x.with_rank(3), rest[-1].with_rank(1)
        size = b[0].value
        if size is not None and size % 4:
            raise ValueError(f"the bias has a number for each column of four gates, got {size}")
        return [TensorShape([x[0], x[1], None if size is None else size // 4])] * 7

    @forward.kernel
    def _(seq_len_max: Array, *inputs: Array, ctx: OperationContext) -> Any:
        weights = Weights(*inputs[3:])
        _check_steps(seq_len_max, inputs, weights, ctx)
        return _all_steps(seq_len_max, inputs[0], inputs[1], inputs[2], weights, ctx.op.attrs, forget_first)

    @forward.gradient
    def _(op: Operation, *grads: Tensor) -> Any:
        given = (*op.inputs, *op.outputs, grads[1], grads[6])
        return [None, *backward(*given, use_peephole=op.attrs["use_peephole"])]

    @backward.shape
    def _(seq_len_max: TensorShape, *shapes: TensorShape) -> list[TensorShape]:
        return list(shapes[:8])

    @backward.kernel
    def _(seq_len_max: Array, *inputs: Array, use_peephole: bool, ctx: OperationContext) -> Any:
        weights = Weights(*inputs[3:8])
        _check_steps(seq_len_max, inputs, weights, ctx)
        gates, grads = Gates(*inputs[8:15]), (inputs[15], inputs[16])
        return _all_gradients(seq_len_max, inputs[:3], weights, gates, grads, use_peephole, forget_first)

    return forward, backward


def _check_steps(length: Array, inputs: Sequence[Array], weights: Weights, ctx: OperationContext) -> None:
    x, cs_prev, h_prev = (v.shape for v in inputs[:3])
    _check_cell(x[1:], cs_prev, h_prev, weights, ctx)
    ctx.check(length <= x[0], f"seq_len_max must be at most the number of steps, {x[0]}, got {{0}}", length)


def _all_steps(
    length: Array, x: Array, cs: Array, h: Array, weights: Weights, attrs: dict[str, Any], forget_first: bool
) -> Any:
    """What the steps give, zeros from step `length` on."""

    def step(state: tuple[Array, Array], given: tuple[Array, Array]) -> Any:
        number, now = given
        gates = _forward(now, *state, weights, attrs, forget_first)
        return (gates.cs, gates.h), tuple(jnp.where(number < length, value, 0) for value in gates)

    return lax.scan(step, (cs, h), (jnp.arange(x.shape[0]), x))[1]


def _all_gradients(
    length: Array,
    start: Sequence[Array],
    weights: Weights,
    gates: Gates,
    grads: tuple[Array, Array],
    peephole: bool,
    forget_first: bool,
) -> Any:
    """With respect to the inputs, from the last step to the first. Steps from `length` on have no part in it."""
    x, cs, h = start
    before = [jnp.concatenate([first[None], all_of[:-1]]) for first, all_of in ((cs, gates.cs), (h, gates.h))]

    def step(state: tuple[Array, ...], given: tuple[Array, ...]) -> Any:
        (cs_grad, h_grad), number, (now, cs_prev, h_prev), at, (cs_more, h_more) = (state[:2], *given)
        found = _backward(cs_prev, weights, Gates(*at), cs_grad + cs_more, h_grad + h_more, peephole, forget_first)
        alive = number < length
        both = found.sums @ weights.w.T
        x_grad, h_prev_grad = both[:, : now.shape[1]], both[:, now.shape[1] :]
        parts = (
            jnp.concatenate([now, h_prev], axis=1).T @ found.sums,
            found.wci,
            found.wcf,
            found.wco,
            found.sums.sum(0),
        )
        total = tuple(t + jnp.where(alive, p, 0) for t, p in zip(state[2], parts, strict=True))
        return (
            jnp.where(alive, found.cs_prev, 0),
            jnp.where(alive, h_prev_grad, 0),
            total,
        ), jnp.where(alive, x_grad, 0)

    zeros = tuple(jnp.zeros_like(v) for v in weights)
    given = (jnp.arange(x.shape[0]), (x, *before), tuple(gates), grads)
    (cs_grad, h_grad, total), x_grad = lax.scan(
        step, (jnp.zeros_like(cs), jnp.zeros_like(h), zeros), given, reverse=True
    )
    return x_grad, cs_grad, h_grad, *total


BlockLSTM, BlockLSTMGrad = _block(1)
BlockLSTMV2, BlockLSTMGradV2 = _block(2)


# ---------------------------------------------------------------------- GRU
_GRU = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"
GRUBlockCell = define_op("GRUBlockCell", f"{_GRU} -> r: T, u: T, c: T, h: T", "T: {float}", ranks={"x": 2, "h_prev": 2})


@GRUBlockCell.shape
def _(x: TensorShape, h_prev: TensorShape, *_: TensorShape) -> list[TensorShape]:
    return [TensorShape([x.with_rank(2)[0], h_prev.with_rank(2)[1]])] * 4


def _check_gru(x: Array, h_prev: Array, given: Sequence[Array], ctx: OperationContext) -> None:
    size, rows = h_prev.shape[1], x.shape[1] + h_prev.shape[1]
    wanted = [(rows, 2 * size), (rows, size), (2 * size,), (size,)]
    shapes = [v.shape for v in given]
    ctx.check(
        x.shape[0] == h_prev.shape[0] and shapes == wanted,
        f"an input of shape {x.shape} and a state of shape {h_prev.shape} need w_ru, w_c, b_ru and b_c of the shapes "
        f"{wanted}, got {shapes}",
    )


@GRUBlockCell.kernel
def _(x: Array, h_prev: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array, *, ctx: OperationContext) -> Any:
    _check_gru(x, h_prev, (w_ru, w_c, b_ru, b_c), ctx)
    r, u = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h_prev], axis=1) @ w_ru + b_ru), 2, axis=1)
    c = jnp.tanh(jnp.concatenate([x, h_prev * r], axis=1) @ w_c + b_c)
    return r, u, c, u * (h_prev - c) + c


@GRUBlockCell.gradient
def _(op: Operation, *grads: Tensor) -> Any:
    x, h_prev = op.inputs[:2]
    r, u, c, _ = op.outputs
    d_x, d_h, d_c, d_ru = GRUBlockCellGrad(*op.inputs, r, u, c, grads[3])
    w_ru = raw.MatMul(raw.ConcatV2([x, h_prev], 1), d_ru, transpose_a=True)
    w_c = raw.MatMul(raw.ConcatV2([x, raw.Mul(h_prev, r)], 1), d_c, transpose_a=True)
    return d_x, d_h, w_ru, w_c, raw.Sum(d_ru, [0]), raw.Sum(d_c, [0])


GRUBlockCellGrad = define_op(
    "GRUBlockCellGrad",
    f"{_GRU}, r: T, u: T, c: T, d_h: T -> d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
    "T: {float}",
    ranks={"x": 2, "h_prev": 2, "w_ru": 2},
)
GRUBlockCellGrad.not_differentiable()


@GRUBlockCellGrad.shape
def _(x: TensorShape, h_prev: TensorShape, w_ru: TensorShape, *_: TensorShape) -> list[TensorShape]:
    x, state = x.with_rank(2), TensorShape([x.with_rank(2)[0], h_prev.with_rank(2)[1]])
    return [x, state, state, TensorShape([x[0], w_ru.with_rank(2)[1]])]


@GRUBlockCellGrad.kernel
def _(
    x: Array,
    h_prev: Array,
    w_ru: Array,
    w_c: Array,
    b_ru: Array,
    b_c: Array,
    r: Array,
    u: Array,
    c: Array,
    d_h: Array,
    *,
    ctx: OperationContext,
) -> Any:
    _check_gru(x, h_prev, (w_ru, w_c, b_ru, b_c), ctx)
    width = x.shape[1]
    d_c = d_h * (1 - u) * (1 - c * c)
    d_u = d_h * (h_prev - c) * u * (1 - u)
    second = d_c @ w_c.T
    d_hr = second[:, width:]
    d_ru = jnp.concatenate([d_hr * h_prev * r * (1 - r), d_u], axis=1)
    first = d_ru @ w_ru.T
    return first[:, :width] + second[:, :width], first[:, width:] + d_hr * r + d_h * u, d_c, d_ru
