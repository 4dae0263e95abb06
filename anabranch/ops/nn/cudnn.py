"""cuDNN's recurrent networks as one operation, computed as ordinary ones: on any device, with one vector of weights.

TensorFlow has kernels of these types for NVIDIA's graphics processors only, which call cuDNN. The weights lie in the
vector as they do there (`ops.nn.rnn_layout`). What a network reserves for its gradients are the masks of its dropout;
all else is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, RandomSource
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn.rnn_layout import RnnLayout, Shape

_T: Final = "T: {bfloat16, half, float, double}"
_KINDS: Final = (
    "rnn_mode: {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'} = 'lstm', "
    "input_mode: {'linear_input', 'skip_input', 'auto_select'} = 'linear_input', "
    "direction: {'unidirectional', 'bidirectional'} = 'unidirectional', dropout: float = 0.0, "
    "seed: int = 0, seed2: int = 0"
)
_SIZES: Final = "num_layers: int32, num_units: int32, input_size: int32"
_SIZE_NAMES: Final = ("num_layers", "num_units", "input_size")


# ---------------------------------------------------------------------- weights
def _layout(ctx: OperationContext, sizes: Sequence[Any]) -> RnnLayout:
    attrs: dict[str, Any] = dict(ctx.op.attrs)
    layers, units, inputs = (int(size) for size in sizes)
    try:
        return RnnLayout.of(
            attrs["rnn_mode"],
            attrs["input_mode"],
            attrs["direction"],
            (layers, units, inputs),
            int(attrs.get("num_proj", 0)),
        )
    except ValueError as error:
        ctx.check(False, str(error))
        raise


CudnnRNNParamsSize = define_op(
    "CudnnRNNParamsSize",
    f"{_SIZES} -> params_size: S",
    f"{_T}, S: {{int32, int64}}, {_KINDS}, num_proj: int = 0",
    static=_SIZE_NAMES,
    ranks=dict.fromkeys(_SIZE_NAMES, 0),
)
CudnnRNNParamsSize.shape(lambda *_: TensorShape([1]))
CudnnRNNParamsSize.not_differentiable()


@CudnnRNNParamsSize.kernel
def _(
    num_layers: Array, num_units: Array, input_size: Array, *, S: DType, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    return xp.asarray([_layout(ctx, (num_layers, num_units, input_size)).size], S.as_numpy_dtype)


def _split(params: Array, layout: RnnLayout) -> tuple[list[Any], list[Any]]:
    """The matrices and the biases of a vector."""
    parts, at = [], 0
    for shape in (*layout.matrices(), *layout.biases()):
        size = int(np.prod(shape))
        parts.append(params[at : at + size].reshape(shape))
        at += size
    count = len(layout.matrices())
    return parts[:count], parts[count:]


def _check_size(params: Array, layout: RnnLayout, ctx: OperationContext) -> None:
    fits = params.ndim == 1 and params.shape[0] == layout.size
    ctx.check(fits, f"params must be a vector of {layout.size} numbers for {layout}, got the shape {params.shape}")


def _to_canonical(
    num_layers: Array, num_units: Array, input_size: Array, params: Array, *, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    layout = _layout(ctx, (num_layers, num_units, input_size))
    _check_size(params, layout, ctx)
    _check_counts(layout, len(layout.matrices()), len(layout.biases()), ctx)
    return _split(xp.asarray(params), layout)


def _check_counts(layout: RnnLayout, matrices: int, biases: int, ctx: OperationContext) -> None:
    attrs: dict[str, Any] = dict(ctx.op.attrs)
    wanted = (
        attrs.get("num_params", attrs.get("num_params_weights")),
        attrs.get("num_params", attrs.get("num_params_biases")),
    )
    fits = wanted == (len(layout.matrices()), len(layout.biases())) == (matrices, biases)
    ctx.check(fits, f"a network of {layout} has {len(layout.matrices())} matrices and {len(layout.biases())} biases, "
              f"not {wanted}")  # fmt: skip


def _to_params(
    num_layers: Array,
    num_units: Array,
    input_size: Array,
    weights: list[Array],
    biases: list[Array],
    *,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    layout = _layout(ctx, (num_layers, num_units, input_size))
    _check_counts(layout, len(weights), len(biases), ctx)
    for given, shape in zip((*weights, *biases), (*layout.matrices(), *layout.biases()), strict=False):
        fits = given.size == int(np.prod(shape))
        ctx.check(fits, f"weights of shape {shape} are expected in this place, got {given.shape}")
    return xp.concatenate([xp.reshape(part, (-1,)) for part in (*weights, *biases)])


def _shapes_of_one_number(*_: TensorShape, num_params: int) -> list[Any]:
    return [[TensorShape([None, None])] * num_params, [TensorShape([None])] * num_params]


def _shapes_of_two_numbers(*_: TensorShape, num_params_weights: int, num_params_biases: int) -> list[Any]:
    return [[TensorShape([None, None])] * num_params_weights, [TensorShape([None])] * num_params_biases]


def _conversions(version: str, counts: str, matrices: str, biases: str, more: str) -> None:
    attrs = f"{_T}, {counts}, {_KINDS}{more}"
    flags: Any = {"static": _SIZE_NAMES, "ranks": dict.fromkeys(_SIZE_NAMES, 0)}
    apart = define_op(
        f"CudnnRNNParamsToCanonical{version}",
        f"{_SIZES}, params: T -> weights: {matrices} * T, biases: {biases} * T",
        attrs,
        **flags,
    )
    together = define_op(
        f"CudnnRNNCanonicalToParams{version}",
        f"{_SIZES}, weights: {matrices} * T, biases: {biases} * T -> params: T",
        attrs,
        **flags,
    )

    apart.shape(_shapes_of_one_number if matrices == biases else _shapes_of_two_numbers)
    together.shape(lambda *_: TensorShape([None]))
    apart.kernel(_to_canonical)
    together.kernel(_to_params)

    @apart.gradient
    def _(op: Operation, *grads: Tensor | None) -> Any:
        parts = [raw.ZerosLike(t) if g is None else g for t, g in zip(op.outputs, grads, strict=True)]
        count = op.attrs[matrices]
        sizes = op.inputs[:3]
        return None, None, None, together(*sizes, parts[:count], parts[count:], **_kinds(op, "num_proj"))

    @together.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        numbers = {name: op.attrs[name] for name in {matrices, biases}}
        found = apart(*op.inputs[:3], grad, **numbers, **_kinds(op, "num_proj"))
        shaped = [raw.Reshape(g, raw.Shape(t)) for g, t in zip([*found[0], *found[1]], op.inputs[3:], strict=True)]
        return [None, None, None, *shaped]


def _kinds(op: Operation, *more: str) -> dict[str, Any]:
    names = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2", *more)
    return {name: op.attrs[name] for name in names if name in op.attrs}


_conversions("", "num_params: int >= 1", "num_params", "num_params", "")
_conversions(
    "V2",
    "num_params_weights: int >= 1, num_params_biases: int >= 1",
    "num_params_weights",
    "num_params_biases",
    ", num_proj: int = 0",
)


# ---------------------------------------------------------------------- networks
class _NetworkState(NamedTuple):
    """The states of all layers and directions, [cells, batch, size]; `c` of an LSTM alone."""

    h: Any
    c: Any


class _Cell(NamedTuple):
    """One layer in one direction."""

    mode: str
    inputs: list[Any]
    states: list[Any]
    biases: list[Any]
    projection: Any

    def step(self, x: Array, h: Array, c: Array) -> tuple[Any, Any]:
        """The states after one input; `x` is what came of its matrices."""
        count = len(self.states)
        own = [h @ r.T + b for r, b in zip(self.states, self.biases[count:], strict=True)]
        if self.mode == "lstm":
            i, f, new, o = (a + b for a, b in zip(x, own, strict=True))
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(new)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h if self.projection is None else h @ self.projection.T), c
        if self.mode == "gru":
            reset, update = jax.nn.sigmoid(x[0] + own[0]), jax.nn.sigmoid(x[1] + own[1])
            return (1 - update) * jnp.tanh(x[2] + reset * own[2]) + update * h, c
        summed = x[0] + own[0]
        return (jax.nn.relu(summed) if self.mode == "rnn_relu" else jnp.tanh(summed)), c

    def from_inputs(self, x: Array) -> list[Any]:
        """Of a whole sequence, for each gate; an input that skips its matrix goes to all gates as it is."""
        biases = self.biases[: len(self.states)]
        return [(x @ w.T if w.shape[1] else x) + b for w, b in zip(self.inputs, biases, strict=True)]


def _run(cell: _Cell, x: Array, h: Array, c: Array, alive: Array, backwards: bool) -> tuple[Any, Any, Any]:
    """The outputs of a sequence [time, batch, size], zero where it has ended, and the last states.

    Backwards a sequence begins at its own end: what stands behind it changes nothing.
    """

    def step(carried: tuple[Any, Any], given: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        parts, live = given
        new_h, new_c = cell.step(parts, *carried)
        kept = jnp.where(live, new_h, carried[0]), jnp.where(live, new_c, carried[1])
        return kept, jnp.where(live, new_h, jnp.zeros_like(new_h))

    (h, c), outputs = jax.lax.scan(step, (h, c), (cell.from_inputs(x), alive), reverse=backwards)
    return outputs, h, c


def _network(
    layout: RnnLayout, x: Array, state: _NetworkState, params: Array, alive: Array, masks: Array
) -> tuple[Any, Any, Any]:
    """Outputs [time, batch, size] and last states. `masks`: of what goes from a layer to the next, or None."""
    matrices, biases = _split(params, layout)
    per_cell, gates = len(matrices) // layout.cells, layout.gates
    last: list[tuple[Any, Any]] = []
    for layer in range(layout.layers):
        if layer and masks is not None:
            x = x * masks[layer - 1]
        outputs = []
        for direction in range(layout.directions):
            number = layer * layout.directions + direction
            own = matrices[number * per_cell : (number + 1) * per_cell]
            cell = _Cell(
                layout.mode,
                own[:gates],
                own[gates : 2 * gates],
                biases[number * 2 * gates : (number + 1) * 2 * gates],
                own[2 * gates] if layout.projection else None,
            )
            h, c = state.h[number], state.c[number] if layout.mode == "lstm" else state.h[number]
            found, h, c = _run(cell, x, h, c, alive, bool(direction))
            outputs.append(found)
            last.append((h, c))
        x = jnp.concatenate(outputs, axis=-1)
    h = jnp.stack([h for h, _ in last])
    return x, h, jnp.stack([c for _, c in last]) if layout.mode == "lstm" else jnp.zeros((), x.dtype)


class _NetworkCall(NamedTuple):
    """What a forward and a backward operation have in common, time first."""

    layout: RnnLayout
    time_major: bool
    x: Any
    state: _NetworkState
    params: Any
    alive: Any

    def run(self, x: Array, h: Array, c: Array, params: Array, masks: Array) -> tuple[Any, Any, Any]:
        """Outputs and last states, as the operation has them."""
        if not self.time_major:
            x, h, c = _swapped(x, h, c)
        found = _network(self.layout, x, _NetworkState(h, c), params, self.alive, masks)
        return found if self.time_major else _swapped(*found)

    def mask_shape(self) -> Shape:
        time, batch = self.alive.shape[:2]
        return self.layout.layers - 1, time, batch, self.layout.given * self.layout.directions


def _swapped(x: Array, h: Array, c: Array) -> tuple[Any, Any, Any]:
    return jnp.swapaxes(x, 0, 1), jnp.swapaxes(h, 0, 1), jnp.swapaxes(c, 0, 1) if c.ndim == 3 else c


def _call(ctx: OperationContext, x: Array, h: Array, c: Array, params: Array, lengths: Array) -> _NetworkCall:
    attrs: dict[str, Any] = dict(ctx.op.attrs)
    time_major = bool(attrs.get("time_major", True))
    ctx.check(
        x.ndim == 3 and h.ndim == 3, f"input and input_h must have rank 3, got the shapes {x.shape} and {h.shape}"
    )
    (time, batch) = x.shape[:2] if time_major else x.shape[1::-1]
    cells = h.shape[0 if time_major else 1]
    directions = 2 if attrs["direction"] == b"bidirectional" else 1
    is_lstm, projection = attrs["rnn_mode"] == b"lstm", int(attrs.get("num_proj", 0))
    if is_lstm:
        ctx.check(c.ndim == 3, f"input_c must have rank 3, got the shape {c.shape}")
    units = c.shape[2] if is_lstm and projection else h.shape[2]
    fits = cells % directions == 0 and h.shape[1 if time_major else 0] == batch
    ctx.check(fits, f"input_h of shape {h.shape} does not fit an input of shape {x.shape} in {directions} directions")
    layout = _layout(ctx, (cells // directions, units, x.shape[2]))
    _check_size(params, layout, ctx)
    alive = jnp.ones((time, batch, 1), bool)
    if lengths is not None:
        fits = lengths.shape == (batch,)
        ctx.check(fits, f"sequence_lengths must have a number for each of {batch} sequences, got {lengths.shape}")
        inside = jnp.all((lengths >= 0) & (lengths <= time))
        ctx.check(inside, f"sequence_lengths must lie between 0 and {time}")
        alive = (jnp.arange(time)[:, None] < lengths[None, :])[..., None]
    return _NetworkCall(layout, time_major, x, _NetworkState(h, c), params, alive)


def _forward(
    ctx: OperationContext, rng: RandomSource, x: Array, h: Array, c: Array, params: Array, lengths: Array
) -> Any:
    call = _call(ctx, jnp.asarray(x), jnp.asarray(h), jnp.asarray(c), jnp.asarray(params), lengths)
    attrs: dict[str, Any] = dict(ctx.op.attrs)
    masks, rate = None, float(attrs["dropout"])
    if attrs["is_training"] and rate > 0 and call.layout.layers > 1:
        kept = jax.random.bernoulli(rng, 1 - rate, call.mask_shape())
        masks = jnp.where(kept, 1 / (1 - rate) if rate < 1 else 0.0, 0.0).astype(call.x.dtype)
    output, last_h, last_c = call.run(call.x, call.state.h, call.state.c, call.params, masks)
    reserved = jnp.zeros(0, call.x.dtype) if masks is None else masks.reshape(-1)
    return output, last_h, last_c, reserved


def _backward(
    ctx: OperationContext, x: Array, h: Array, c: Array, params: Array, lengths: Array, grads: Array, reserved: Array
) -> Any:
    call = _call(ctx, jnp.asarray(x), jnp.asarray(h), jnp.asarray(c), jnp.asarray(params), lengths)
    shape = call.mask_shape()
    fits = reserved.size in (0, int(np.prod(shape)))
    ctx.check(fits, f"reserve_space has {reserved.size} numbers, and comes from another network")
    masks = reserved.reshape(shape) if reserved.size else None
    found, pull = jax.vjp(
        lambda x, h, c, params: call.run(x, h, c, params, masks), call.x, call.state.h, call.state.c, call.params
    )
    flowing = tuple(jnp.asarray(g).reshape(f.shape).astype(f.dtype) for g, f in zip(grads, found, strict=True))
    return pull(flowing)


def _forward_shapes(version: str) -> Callable[..., list[TensorShape]]:
    def with_state(
        x: TensorShape,
        h: TensorShape,
        c: TensorShape,
        params: TensorShape,
        mode: bytes,
        direction: bytes,
        projection: int,
    ) -> list[TensorShape]:
        x, h = shape_rules.with_rank(x, 3, "input"), shape_rules.with_rank(h, 3, "input_h")
        shape_rules.with_rank(params, 1, "params")
        given = h[2].value
        size = None if given is None else given * (2 if direction == b"bidirectional" else 1)
        last_c = (c if projection else h) if mode == b"lstm" else shape_rules.SCALAR
        found = [x[:2].concatenate([size]), h, last_c, TensorShape([None])]
        return [*found, TensorShape([None])] if version else found

    def plain(
        x: TensorShape, h: TensorShape, c: TensorShape, params: TensorShape, *, rnn_mode: bytes, direction: bytes
    ) -> list[TensorShape]:
        return with_state(x, h, c, params, rnn_mode, direction, 0)

    def with_lengths(
        x: TensorShape,
        h: TensorShape,
        c: TensorShape,
        params: TensorShape,
        sequence_lengths: TensorShape,
        *,
        rnn_mode: bytes,
        direction: bytes,
        num_proj: int,
    ) -> list[TensorShape]:
        return with_state(x, h, c, params, rnn_mode, direction, num_proj)

    return with_lengths if version == "V3" else plain


def _backward_shapes(
    x: TensorShape, h: TensorShape, c: TensorShape, params: TensorShape, *_: TensorShape
) -> list[TensorShape]:
    return [x, h, c, params]


_INPUTS: Final = "input: T, input_h: T, input_c: T, params: T"
_OUTPUTS: Final = "output: T, output_h: T, output_c: T, reserve_space: T"
_GRADIENTS: Final = "input_backprop: T, input_h_backprop: T, input_c_backprop: T, params_backprop: T"
_LENGTHS: Final = ", sequence_lengths: int32"
_HOST: Final = ", host_reserved: int8"


def _pair(version: str) -> tuple[OpFunction, OpFunction]:
    lengths = _LENGTHS if version == "V3" else ""
    host = _HOST if version else ""
    projection, order = (", num_proj: int = 0", ", time_major: bool = True") if version == "V3" else ("", "")
    forward = define_op(
        f"CudnnRNN{version}",
        f"{_INPUTS}{lengths} -> {_OUTPUTS}{host}",
        f"{_T}, {_KINDS}{projection}, is_training: bool = True{order}",
        stateful=True,
        unnoticed=True,
    )
    backward = define_op(
        f"CudnnRNNBackprop{version}",
        f"{_INPUTS}{lengths}, output: T, output_h: T, output_c: T, output_backprop: T, output_h_backprop: T, "
        f"output_c_backprop: T, reserve_space: T{host} -> {_GRADIENTS}",
        f"{_T}, {_KINDS}{projection}{order}",
        stateful=True,
        unnoticed=True,
    )
    forward.shape(_forward_shapes(version))
    backward.shape(_backward_shapes)
    backward.not_differentiable()

    @forward.gradient
    def _(op: Operation, *grads: Tensor | None) -> Any:
        if not op.attrs["is_training"]:
            raise ValueError(
                f"{op.type} {op.name!r} must be set in training mode for the backward pass: is_training=True"
            )
        flowing = [raw.ZerosLike(t) if g is None else g for t, g in zip(op.outputs[:3], grads[:3], strict=True)]
        found = backward(*op.inputs, *op.outputs[:3], *flowing, *op.outputs[3:], **_kinds(op, "num_proj", "time_major"))
        return [*found, *([None] if version == "V3" else [])]

    return forward, backward


CudnnRNN, CudnnRNNBackprop = _pair("")
CudnnRNNV2, CudnnRNNBackpropV2 = _pair("V2")
CudnnRNNV3, CudnnRNNBackpropV3 = _pair("V3")
_NOTHING: Final = np.zeros(0, np.int8)


@CudnnRNN.kernel
def _(input: Array, input_h: Array, input_c: Array, params: Array, *, rng: RandomSource, ctx: OperationContext) -> Any:
    return _forward(ctx, rng, input, input_h, input_c, params, None)


@CudnnRNNV2.kernel
def _(input: Array, input_h: Array, input_c: Array, params: Array, *, rng: RandomSource, ctx: OperationContext) -> Any:
    return *_forward(ctx, rng, input, input_h, input_c, params, None), _NOTHING


@CudnnRNNV3.kernel
def _(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    sequence_lengths: Array,
    *,
    rng: RandomSource,
    ctx: OperationContext,
) -> Any:
    return *_forward(ctx, rng, input, input_h, input_c, params, sequence_lengths), _NOTHING


@CudnnRNNBackprop.kernel
def _(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    *,
    ctx: OperationContext,
) -> Any:
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _backward(ctx, input, input_h, input_c, params, None, grads, reserve_space)


@CudnnRNNBackpropV2.kernel
def _(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    host_reserved: Array,
    *,
    ctx: OperationContext,
) -> Any:
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _backward(ctx, input, input_h, input_c, params, None, grads, reserve_space)


@CudnnRNNBackpropV3.kernel
def _(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    sequence_lengths: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    host_reserved: Array,
    *,
    ctx: OperationContext,
) -> Any:
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _backward(ctx, input, input_h, input_c, params, sequence_lengths, grads, reserve_space)
