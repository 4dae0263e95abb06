"""Gradients of Einsum are operations that TensorFlow has."""

from __future__ import annotations

import pytest

import anabranch as tf


@pytest.mark.parametrize("equation", ["iij,jk->ik", "iij,jkl->ik", "...iij,jk->...ik"])
def test_gradients_take_two_tensors_at_a_time(equation: str) -> None:
    """Labels that repeat or are summed out take a further factor each."""
    sizes = {"i": 2, "j": 3, "k": 4, "l": 5, ".": 1}
    terms = equation.replace("...", ".").split("->")[0].split(",")
    operands = [tf.placeholder(tf.float32, [sizes[c] for c in term]) for term in terms]
    assert None not in tf.gradients(tf.einsum(equation, *operands), operands)
    assert max(len(op.inputs) for op in tf.get_default_graph().get_operations() if op.type == "Einsum") == 2
