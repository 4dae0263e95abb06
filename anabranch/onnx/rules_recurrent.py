"""Import rules of RNN, GRU and LSTM, as loops over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anabranch as tf
from anabranch.onnx.rules import OnnxNode, rule, size_of

Activation = Callable[[tf.Tensor], tf.Tensor]
_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": tf.sigmoid,
    "tanh": tf.tanh,
    "relu": tf.nn.relu,
    "softsign": tf.nn.softsign,
    "softplus": tf.nn.softplus,
    "elu": tf.nn.elu,
    "affine": lambda x: x,
    "hardsigmoid": lambda x: tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0),
}
#: From the inputs of a time step (already multiplied) and the states to the new states; the first is the output.
Cell = Callable[[tf.Tensor, Sequence[tf.Tensor]], list[tf.Tensor]]


def _activations(node: OnnxNode, direction: int, default: Sequence[str]) -> list[Activation]:
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in node.attr("activations") or []]  # type: ignore[attr-defined]
    chosen = names[direction * len(default) : (direction + 1) * len(default)] or list(default)
    unknown = [name for name in chosen if name.lower() not in _ACTIVATIONS]
    if unknown:
        raise tf.errors.UnimplementedError(None, None, f"{node.label}: no activation {unknown} is known")
    return [_ACTIVATIONS[name.lower()] for name in chosen]


def _run(node: OnnxNode, states: int, gates: int, cell_of: Callable[[int], tuple[Cell, bool]]) -> tuple[tf.Tensor, ...]:
    x = node.tensor()
    by_batch = bool(node.integer("layout"))
    x = tf.transpose(x, [1, 0, 2]) if by_batch else x
    direction = node.text("direction", "forward")
    hidden = size_of(node.tensor(2), -1)
    outputs, lasts = [], []
    for number in range(2 if direction == "bidirectional" else 1):
        backwards = direction == "reverse" or number == 1
        cell, joined = cell_of(number)
        w, bias = node.tensor(1)[number], node.optional(3)
        first = []
        for i in range(states):
            given = node.optional(5 + i)
            if given is not None and by_batch:
                given = tf.transpose(given, [1, 0, 2])
            zeros = tf.zeros(tf.stack([tf.shape(x)[1], hidden]), x.dtype)
            first.append(given[number] if given is not None else zeros)
        lengths = node.optional(4)
        sequence = x
        if backwards:
            sequence = tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, 0, 1)
        entering = tf.tensordot(sequence, w, [[2], [1]])
        if bias is not None:
            half = bias[number][: gates * hidden]
            entering = entering + half + (bias[number][gates * hidden :] if joined else 0)
        steps, last = _over_time(cell, entering, first, lengths)
        if backwards:
            steps = tf.reverse(steps, [0]) if lengths is None else tf.reverse_sequence(steps, lengths, 0, 1)
        outputs.append(steps)
        lasts.append(last)
    y = tf.stack(outputs, 1)
    final = [tf.stack([last[i] for last in lasts]) for i in range(states)]
    if by_batch:
        y = tf.transpose(y, [2, 0, 1, 3])
        final = [tf.transpose(state, [1, 0, 2]) for state in final]
    return (y, *final)


def _over_time(
    cell: Cell, entering: tf.Tensor, first: list[tf.Tensor], lengths: tf.Tensor | None
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    count = tf.shape(entering)[0]
    outputs = tf.TensorArray(entering.dtype, count, element_shape=first[0].shape)

    def step(time: tf.Tensor, states: list[tf.Tensor], written: tf.TensorArray) -> object:
        new = cell(entering[time], states)
        seen = new[0]
        if lengths is not None:
            going = tf.expand_dims(time < lengths, 1)
            seen = tf.where_v2(going, seen, tf.zeros_like(seen))
            new = [tf.where_v2(going, a, b) for a, b in zip(new, states, strict=True)]
        return time + 1, new, written.write(time, seen)

    shapes = (tf.TensorShape([]), [tf.TensorShape([None, s.shape.as_list()[-1]]) for s in first], tf.TensorShape(None))
    _, last, written = tf.while_loop(lambda time, *_: time < count, step, (tf.constant(0), first, outputs), shapes)
    return written.stack(), last


def _clip(node: OnnxNode, x: tf.Tensor) -> tf.Tensor:
    limit = node.real("clip")
    return tf.clip_by_value(x, -limit, limit) if limit else x


@rule("RNN", 1, 7, 14, 22)
def _rnn(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    def cell_of(number: int) -> tuple[Cell, bool]:
        (f,) = _activations(node, number, ["Tanh"])
        r = tf.transpose(node.tensor(2)[number])
        return lambda x, states: [f(_clip(node, x + tf.matmul(states[0], r)))], True

    return _run(node, 1, 1, cell_of)


@rule("GRU", 1, 3, 7, 14, 22)
def _gru(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    def cell_of(number: int) -> tuple[Cell, bool]:
        f, g = _activations(node, number, ["Sigmoid", "Tanh"])
        r = tf.transpose(node.tensor(2)[number])
        hidden = size_of(node.tensor(2), -1)
        bias = node.optional(3)
        given = tf.zeros([3 * hidden], r.dtype) if bias is None else bias[number][3 * hidden :]

        def cell(x: tf.Tensor, states: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            h = states[0]
            z_x, r_x, h_x = tf.split(x, 3, 1)
            z_h, r_h = tf.split(tf.matmul(h, r[:, : 2 * hidden]) + given[: 2 * hidden], 2, 1)
            z, reset = f(_clip(node, z_x + z_h)), f(_clip(node, r_x + r_h))
            last, offset = r[:, 2 * hidden :], given[2 * hidden :]
            if node.integer("linear_before_reset"):
                candidate = g(_clip(node, h_x + reset * (tf.matmul(h, last) + offset)))
            else:
                candidate = g(_clip(node, h_x + tf.matmul(reset * h, last) + offset))
            return [(1 - z) * candidate + z * h]

        return cell, False

    return _run(node, 1, 3, cell_of)


@rule("LSTM", 1, 7, 14, 22)
def _lstm(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    def cell_of(number: int) -> tuple[Cell, bool]:
        f, g, h_of = _activations(node, number, ["Sigmoid", "Tanh", "Tanh"])
        r = tf.transpose(node.tensor(2)[number])
        peep = tf.split(node.tensor(7)[number], 3) if node.has(7) else None

        def cell(x: tf.Tensor, states: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            h, c = states
            i, o, forget, candidate = tf.split(x + tf.matmul(h, r), 4, 1)
            if peep is not None:
                i, forget = i + peep[0] * c, forget + peep[2] * c
            i, forget = f(_clip(node, i)), f(_clip(node, forget))
            forget = 1 - i if node.integer("input_forget") else forget
            new = forget * c + i * g(_clip(node, candidate))
            o = o + peep[1] * new if peep is not None else o
            return [f(_clip(node, o)) * h_of(new), new]

        return cell, True

    return _run(node, 2, 4, cell_of)
