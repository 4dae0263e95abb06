"""Random graphs of primitive loops and conditionals, as older programs hold them, compute what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from tests.primitive_programs import interpret, random_program, random_values, written


@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 40))
def test_an_imported_graph_computes_what_numpy_does(seed: int) -> None:
    program, values = random_program(seed), random_values(seed)
    made = written(program)
    names = [t.name for t in made.values]
    with Graph().as_default():
        tf.import_graph_def(made.graph.as_graph_def(), name="")
        feeds = {t.name: v for t, v in zip(made.feeds, values, strict=True)}
        with tf.Session() as session:
            got = session.run(names, feeds)
    for name, value, expected in zip(names, got, interpret(program, values), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_leaves_a_loop_may_enter_it_again() -> None:
    """No order of the loop as a whole exists then: each of its operations is an island of its own (`xla.levels`)."""
    with Graph().as_default() as graph:
        x = raw.Placeholder(dtype="float32", shape=[])
        number, total = (raw.Merge([t, t]).output for t in (enter(np.int32(0)), enter(x)))
        more = raw.LoopCond(raw.Less(number, enter(np.int32(3), is_constant=True)))
        counted, summed = raw.Switch(number, more), raw.Switch(total, more)
        last = raw.Exit(counted.output_false)
        height = enter(raw.Tanh(raw.Mul(raw.Cast(last, DstT="float32"), 0.5)), is_constant=True)
        number.op._update_input(
            1, raw.NextIteration(raw.AddV2(counted.output_true, enter(np.int32(1), is_constant=True)))
        )
        total.op._update_input(1, raw.NextIteration(raw.AddV2(raw.Exp(summed.output_true), height)))
        result = raw.Tanh(raw.Neg(raw.Exit(summed.output_false)))
    expected = np.float32(-2)
    for _ in range(3):
        expected = np.exp(expected) + np.tanh(np.float32(1.5))
    with tf.Session(graph=graph) as session:
        assert session.run(result, {x: -2.0}) == pytest.approx(-np.tanh(expected))


def enter(value: Any, **attrs: Any) -> Any:
    """Lets a value into the loop."""
    return raw.Enter(value, frame_name="loop", **attrs)
