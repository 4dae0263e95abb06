"""Shape rules beside the shapes of values: hiding what is known of an operation's inputs must never make the rule refuse
what runs, nor promise another shape.

For the rows of the op table the reference is the static shape with everything known, which the table's own test
compares with the values.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

import anabranch as tf
from anabranch.core import dtypes
from anabranch.core.op_def import ArgDef
from anabranch.testing.op_cases import OpCase, input_arrays, op_function
from tests.device.ops.test_table import ROWS

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


@pytest.mark.parametrize("name", sorted({case.op for case in ROWS if case.error is None}))
def test_hiding_shapes_makes_no_rule_refuse_or_contradict(name: str) -> None:
    draw = random.Random(f"{SEED} {name}")
    for case in (case for case in ROWS if case.op == name and case.error is None):
        with tf.Graph().as_default():
            reference = [tensor.shape for tensor in outputs_of(everything_known(case), case)]
            for _ in range(HIDINGS):
                found = with_parts_hidden(case, draw)
                given = [tensor.shape for tensor in found.tensors]
                for tensor, shape in zip(outputs_of(found, case), reference, strict=True):
                    assert tensor.shape.is_compatible_with(shape), f"{case} of {given}: {tensor.shape}, but {shape}"
