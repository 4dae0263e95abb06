"""Shape rules beside the shapes of values: hiding what is known of an operation's inputs must never make the rule
refuse what runs, nor promise another shape.

For the rows of the op table the reference is the static shape with everything known, which the table's own test
compares with the values.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core import dtypes
from anabranch.core.op_def import ArgDef
from anabranch.testing.op_cases import OpCase, input_arrays, op_function
from tests.device.ops.table import table_rows
from tests.each_case import each_case

SEED = 11
HIDINGS = 4


class Inputs:
    """The arguments of a row, each with as much of its shape and value known as `shape_of` and `is_constant` say."""

    def __init__(self, case: OpCase, shape_of: Any, is_constant: Any) -> None:
        self.op = op_function(case.op)
        self.shape_of = shape_of
        self.is_constant = is_constant
        values = input_arrays(self.op, case.inputs)
        self.tensors: list[Any] = []
        self.arguments = [self.argument(arg, value) for arg, value in zip(self.op.inputs, values, strict=True)]

    def argument(self, arg: ArgDef, value: Any) -> Any:
        if isinstance(value, list):
            return [self.tensor(arg, item) for item in value]
        if arg.dtype is dtypes.variant:
            return tf.raw_ops.TensorListFromTensor(tensor=tf.constant(value), element_shape=-1)
        return self.tensor(arg, value)

    def tensor(self, arg: ArgDef, value: Any) -> Any:
        if self.is_constant(arg):
            return tf.constant(value)
        made = tf.placeholder(value.dtype, self.shape_of(value.shape))
        self.tensors.append(made)
        return made


def outputs_of(inputs: Inputs, case: OpCase) -> list[Any]:
    graph = tf.get_default_graph()
    inputs.op(*inputs.arguments, **case.attrs)
    return next(o for o in reversed(graph.get_operations()) if o.op_def is inputs.op).outputs


def everything_known(case: OpCase) -> Inputs:
    named = op_function(case.op).static | set(case.constants)
    return Inputs(case, lambda shape: shape, lambda arg: arg.name in named)


def with_parts_hidden(case: OpCase, draw: random.Random) -> Inputs:
    named = op_function(case.op).static | set(case.constants)

    def shape_of(shape: tuple[int, ...]) -> Any:
        return None if draw.random() < 0.15 else [None if draw.random() < 0.5 else n for n in shape]

    return Inputs(case, shape_of, lambda arg: arg.name in named and draw.random() < 0.4)


def rows_by_operation() -> dict[str, list[OpCase]]:
    found: dict[str, list[OpCase]] = {}
    for row in table_rows():
        if row.error is None:
            found.setdefault(row.op, []).append(row)
    return found


@each_case("rows", rows_by_operation().values(), lambda rows: rows[0].op)
def test_hiding_shapes_makes_no_rule_refuse_or_contradict(rows: list[OpCase]) -> None:
    draw = random.Random(f"{SEED} {rows[0].op}")
    for case in rows:
        with tf.Graph().as_default():
            reference = [tensor.shape for tensor in outputs_of(everything_known(case), case)]
            for _ in range(HIDINGS):
                found = with_parts_hidden(case, draw)
                given = [tensor.shape for tensor in found.tensors]
                for tensor, shape in zip(outputs_of(found, case), reference, strict=True):
                    assert tensor.shape.is_compatible_with(shape), f"{case} of {given}: {tensor.shape}, but {shape}"


# ---------------------------------------------------------------------- broadcasting, with sizes 0 and 1
LENGTHS = (0, 1, 1, 2, 3)
PROGRAMS = 30


class Fed:
    """Placeholders of one program, with all or some of their shapes known."""

    def __init__(self, draw: random.Random, hide: bool) -> None:
        self.draw = draw
        self.hide = hide
        self.values: dict[Any, Any] = {}

    def __call__(self, value: Any) -> Any:
        partial = None if self.draw.random() < 0.2 else [None if self.draw.random() < 0.6 else n for n in value.shape]
        made = tf.placeholder(value.dtype, partial if self.hide else value.shape)
        self.values[made] = value
        return made

    def known_or_fed(self, values: list[int]) -> Any:
        """An axis, a shape or multiples: a constant where nothing is hidden, and half the time where it is."""
        chosen, array = self.draw.random() < 0.5, np.array(values, np.int32)
        return self(array) if self.hide and chosen else tf.constant(array)


def broadcastable(draw: random.Random, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast with each other."""
    full = [draw.choice(LENGTHS) for _ in range(draw.randint(0, 3))]
    return [tuple(draw.choice((n, n, 1)) for n in full[draw.randint(0, len(full)) :]) for _ in range(count)]


def binary(draw: random.Random, fed: Fed, xs: list[Any]) -> Any:
    op = draw.choice((tf.add, tf.multiply, tf.maximum, tf.squared_difference, tf.atan2, tf.where_v2, tf.div_no_nan))
    return op(xs[0] > 0.5, xs[1], xs[2]) if op is tf.where_v2 else op(xs[0], xs[1])


def broadcast_to(draw: random.Random, fed: Fed, xs: list[Any]) -> Any:
    return tf.broadcast_to(xs[0], fed.known_or_fed(list(np.broadcast_shapes(*(fed.values[x].shape for x in xs)))))


def matmul(draw: random.Random, fed: Fed, xs: list[Any]) -> Any:
    rows, inner, columns = (draw.choice(LENGTHS) for _ in range(3))
    a, b = (fed.values[x].shape for x in xs[:2])
    values = np.ones((*a, rows, inner), np.float32), np.ones((*b, inner, columns), np.float32)
    return tf.raw_ops.BatchMatMulV2(x=fed(values[0]), y=fed(values[1])) * tf.reduce_sum(xs[0])


def reduction(draw: random.Random, fed: Fed, xs: list[Any]) -> Any:
    op = draw.choice((tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_prod, tf.reduce_logsumexp))
    rank = fed.values[xs[0]].ndim
    axes = draw.sample(range(-rank, 0), draw.randint(0, rank))
    return op(xs[0], fed.known_or_fed(axes), keepdims=draw.random() < 0.5)


def tile(draw: random.Random, fed: Fed, xs: list[Any]) -> Any:
    return tf.tile(xs[0], fed.known_or_fed([draw.choice((0, 1, 2)) for _ in fed.values[xs[0]].shape]))


KINDS = (binary, broadcast_to, matmul, reduction, tile)


def programs(hide: bool) -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """The results and gradients of the same random programs; the tensors whose shapes they have; the feeds."""
    fed = Fed(random.Random(SEED + 1), hide)
    draw = random.Random(SEED)
    values = np.random.default_rng(SEED)
    results, gradients = [], []
    for i in range(PROGRAMS):
        xs = [fed(values.uniform(0.1, 1, shape).astype(np.float32)) for shape in broadcastable(draw, 3)]
        results.append(KINDS[i % len(KINDS)](draw, fed, xs))
        gradients.append(tf.gradients(results[-1], xs[:2]))
    return results, gradients, fed.values


def test_hiding_shapes_changes_no_broadcast_and_no_gradient() -> None:
    found = []
    for hide in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            results, gradients, feeds = programs(hide)
            present = [[g for g in pair if g is not None] for pair in gradients]
            values = session.run([results, present], feeds)
            found.append((values, [len(pair) for pair in present]))
            for tensor, value in zip(tf.nest.flatten([results, present]), tf.nest.flatten(values), strict=True):
                assert tensor.shape.is_compatible_with(value.shape), tensor
    (known, known_counts), (partly, partly_counts) = found
    assert known_counts == partly_counts
    for wanted, got in zip(tf.nest.flatten(known), tf.nest.flatten(partly), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
