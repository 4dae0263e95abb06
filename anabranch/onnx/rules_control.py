"""Import rules of If, Loop and Scan, onto `tf.cond` and `tf.while_loop`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import anabranch as tf
from anabranch.onnx.rules import NeedsConstantError, OnnxNode, Result, Value, rank_of, rule, size_of


@rule("If", 1, 11, 13, 16, 19, 21, 23)
def _if(node: OnnxNode) -> Result:
    condition = tf.reshape(node.tensor(), [])
    known = tf.get_static_value(condition)
    if known is not None:
        return tuple(node.subgraph("then_branch" if known else "else_branch")([]))

    def branch(name: str) -> list[tf.Tensor]:
        return [tf.identity(_tensor(node, value)) for value in node.subgraph(name)([])]

    result = tf.cond(condition, lambda: branch("then_branch"), lambda: branch("else_branch"), strict=True)
    return tuple(result)


def _tensor(node: OnnxNode, value: Value) -> tf.Tensor:
    if not isinstance(value, tf.Tensor):
        raise NeedsConstantError(
            f"{node.label}: a sequence, an optional or a value of a narrow type cannot pass out of a branch or a body"
        )
    return value


#: Iterations of a loop that is written out.
_MOST_UNROLLED = 10_000


def _unrolled_loop(node: OnnxNode) -> Result:
    """A loop that carries sequences or optionals, written out: how often it runs is known when the graph is built."""
    body, state = node.subgraph(), node.values[2:]
    limit = int(node.static(0).reshape(())) if node.has(0) else _MOST_UNROLLED + 1
    going: Value = node.tensor(1) if node.has(1) else tf.constant(True)
    scans: list[list[tf.Tensor]] = [[] for _ in range(node.outputs - len(state))]
    for number in range(limit):
        known = tf.get_static_value(_tensor(node, going))
        if known is None:
            raise NeedsConstantError(f"{node.label}: it carries a sequence, so its condition must be known at once")
        if not np.all(known):
            break
        if number == _MOST_UNROLLED:
            raise ValueError(f"{node.label}: it carries a sequence, and runs more than {_MOST_UNROLLED} times")
        going, *results = body([tf.constant(number, tf.int64), tf.constant(True), *state])
        state = results[: len(state)]
        for scan, value in zip(scans, results[len(state) :], strict=True):
            scan.append(_tensor(node, value))
    if not all(scans):
        raise NeedsConstantError(f"{node.label}: it carries a sequence and runs no time, so its scans have no shape")
    return (*state, *[tf.stack(scan) for scan in scans])


@rule("Loop", 1, 11, 13, 16, 19, 21, 23)
def _loop(node: OnnxNode) -> Result:
    if not all(isinstance(value, tf.Tensor) for value in node.values[2:]):
        return _unrolled_loop(node)
    body, carried = node.subgraph(), [_tensor(node, value) for value in node.values[2:]]
    limit = tf.reshape(node.tensor(0), []) if node.has(0) else tf.constant((1 << 63) - 1, tf.int64)
    start = tf.reshape(node.tensor(1), []) if node.has(1) else tf.constant(True)
    declared = node.declared_outputs()
    shapes = [_invariant(x, d) for x, d in zip(carried, declared[1:], strict=False)]
    scanned = len(declared) - 1 - len(carried)
    types = _scan_types(node, carried, scanned)
    arrays = [
        tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=declared[1 + len(carried) + i])
        for i, dtype in enumerate(types)
    ]

    def step(number: tf.Tensor, _: tf.Tensor, state: Sequence[tf.Tensor], scans: Sequence[tf.TensorArray]) -> object:
        condition, *results = [_tensor(node, v) for v in body([number, tf.identity(_), *state])]
        written = [
            scan.write(tf.cast(number, tf.int32), value)
            for scan, value in zip(scans, results[len(carried) :], strict=True)
        ]
        kept = [tf.ensure_shape(r, shape) for r, shape in zip(results[: len(carried)], shapes, strict=True)]
        return number + 1, tf.reshape(condition, []), kept, written

    variables = (tf.constant(0, tf.int64), start, carried, arrays)
    invariants = (tf.TensorShape([]), tf.TensorShape([]), shapes, [tf.TensorShape(None)] * len(arrays))
    _, _, last, written = tf.while_loop(
        lambda number, condition, *_: tf.logical_and(number < limit, condition), step, variables, invariants
    )
    return (*last, *[array.stack() for array in written])


def _invariant(x: tf.Tensor, declared: list[int | None] | None) -> tf.TensorShape:
    """The shape that a value keeps through a loop: the declared one where it agrees with the first."""
    if x.shape.ndims is None or declared is None:
        return (
            tf.TensorShape(None)
            if declared is None and x.shape.ndims is None
            else tf.TensorShape([None] * (x.shape.ndims or 0))
        )
    if len(declared) != x.shape.ndims:
        return tf.TensorShape(None)
    return tf.TensorShape([a if a == b else None for a, b in zip(x.shape.as_list(), declared, strict=True)])


def _scan_types(node: OnnxNode, carried: Sequence[tf.Tensor], scanned: int) -> list[tf.DType]:
    """The dtypes of what the body adds in every iteration, found by building the body once elsewhere."""
    if not scanned:
        return []

    def probe() -> tf.Tensor:
        results = node.subgraph()([tf.constant(0, tf.int64), tf.constant(True), *carried])
        found.extend(_tensor(node, value).dtype for value in results[1 + len(carried) :])
        return tf.constant(0)

    found: list[tf.DType] = []
    tf.cond(tf.placeholder_with_default(True, []), probe, lambda: tf.constant(0))
    return found


@rule("Scan", 8, 9, 11, 16, 19, 21, 23)
def _scan(node: OnnxNode) -> Result:
    if node.since < 9:
        return _batch_scan(node)
    inputs = node.integer("num_scan_inputs")
    states = [node.tensor(i) for i in range(len(node.values) - inputs)]
    sequences = [node.tensor(len(states) + i) for i in range(inputs)]
    outputs = len(node.declared_outputs()) - len(states)
    axes = node.ints("scan_input_axes", default=[0] * inputs) or []
    directions = node.ints("scan_input_directions", default=[0] * inputs) or []
    moved = [_front(x, axis) for x, axis in zip(sequences, axes, strict=True)]
    moved = [tf.reverse(x, [0]) if back else x for x, back in zip(moved, directions, strict=True)]
    last, stacked = _scanned(node, states, moved, tf.shape(moved[0])[0])
    out_axes = node.ints("scan_output_axes", default=[0] * outputs) or []
    back = node.ints("scan_output_directions", default=[0] * outputs) or []
    stacked = [tf.reverse(x, [0]) if b else x for x, b in zip(stacked, back, strict=True)]
    return (*last, *[_from_front(x, axis) for x, axis in zip(stacked, out_axes, strict=True)])


def _batch_scan(node: OnnxNode) -> Result:
    """The scan of operator set 8: over the second dimension, for each element of a batch, which may have a length."""
    inputs = node.integer("num_scan_inputs")
    states = [node.tensor(i) for i in range(1, len(node.values) - inputs)]
    sequences = [node.tensor(len(states) + 1 + i) for i in range(inputs)]
    directions = node.ints("directions", default=[0] * inputs) or []
    steps = tf.shape(sequences[0])[1]
    lengths = tf.cast(node.tensor(0), tf.int32) if node.has(0) else None
    rows: list[list[tf.Tensor]] = []
    for number in range(size_of(sequences[0], 0)):
        count = steps if lengths is None else lengths[number]
        moved = [x[number, :count] for x in sequences]
        moved = [tf.reverse(x, [0]) if back else x for x, back in zip(moved, directions, strict=True)]
        last, stacked = _scanned(node, [x[number] for x in states], moved, count)
        missing = steps - count
        padded = [tf.pad(x, [[0, missing], *[[0, 0]] * (rank_of(x) - 1)]) for x in stacked]
        rows.append([*last, *padded])
    return tuple(tf.stack(column) for column in zip(*rows, strict=True))


def _scanned(
    node: OnnxNode, states: Sequence[tf.Tensor], moved: Sequence[tf.Tensor], count: tf.Tensor
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The last states, and what the body gives for each element along the first dimension of its inputs."""
    body = node.subgraph()
    declared = node.declared_outputs()[len(states) :]
    types: list[tf.DType] = []

    def probe() -> tf.Tensor:
        results = body([*states, *[x[0] for x in moved]])
        types.extend(_tensor(node, value).dtype for value in results[len(states) :])
        return tf.constant(0)

    tf.cond(tf.placeholder_with_default(True, []), probe, lambda: tf.constant(0))
    arrays = [
        tf.TensorArray(dtype, count, infer_shape=False, element_shape=shape)
        for dtype, shape in zip(types, declared, strict=True)
    ]

    def step(number: tf.Tensor, state: Sequence[tf.Tensor], scans: Sequence[tf.TensorArray]) -> object:
        results = [_tensor(node, v) for v in body([*state, *[x[number] for x in moved]])]
        written = [scan.write(number, value) for scan, value in zip(scans, results[len(states) :], strict=True)]
        return number + 1, [tf.identity(r) for r in results[: len(states)]], written

    _, last, written = tf.while_loop(
        lambda number, *_: number < count, step, (tf.constant(0), [tf.identity(s) for s in states], arrays)
    )
    return list(last), [array.stack() for array in written]


def _front(x: tf.Tensor, axis: int) -> tf.Tensor:
    rank = rank_of(x)
    axis %= rank
    return x if axis == 0 else tf.transpose(x, [axis, *[i for i in range(rank) if i != axis]])


def _from_front(x: tf.Tensor, axis: int) -> tf.Tensor:
    rank = x.shape.ndims
    if rank is None or axis % rank == 0:
        return x
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return tf.transpose(x, order)


@rule("SequenceMap", 17)
def _sequence_map(node: OnnxNode) -> Result:
    """The body for each element; the lengths of sequences are known when the graph is built."""
    body, first = node.subgraph(), node.sequence()
    rest = node.values[1:]
    uneven = [len(value) for value in rest if isinstance(value, list) and len(value) != len(first)]
    if uneven:
        raise ValueError(f"{node.label}: its sequences must be of one length, and have {[len(first), *uneven]}")
    rows = [body([x, *[v[i] if isinstance(v, list) else v for v in rest]]) for i, x in enumerate(first)]
    columns: list[list[tf.Tensor]] = [[] for _ in range(node.outputs)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            if not isinstance(value, tf.Tensor):
                raise ValueError(f"{node.label}: its body must give tensors")
            column.append(value)
    return tuple(columns)
