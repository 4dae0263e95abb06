"""`contrib.quantize.python.graph_matcher`: patterns of operations, found in graphs."""

from __future__ import annotations

import pytest

import anabranch as tf
from anabranch.contrib.graph_patterns import GraphMatcher, MatchResult, OneofPattern, OpTypePattern


def test_a_pattern_is_found_from_its_last_operation_backwards() -> None:
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    product = tf.matmul(x, x)
    first = tf.nn.relu(tf.add(tf.constant(1.0), product), name="first")
    tf.nn.relu(x, name="second")
    multiplied = OpTypePattern("MatMul", name="product")
    added = OpTypePattern("Add|AddV2", inputs=[multiplied, "*"], ordered_inputs=False)
    matches = list(GraphMatcher(OpTypePattern("Relu|Relu6", inputs=[added])).match_graph(x.graph))
    assert len(matches) == 1
    assert matches[0].get_op("product") is product.op
    assert matches[0].get_tensor(multiplied) is product
    assert matches[0].get_op(added) is first.op.inputs[0].op
    assert matches[0].get_op("other") is None
    assert matches[0].get_tensor(OpTypePattern("*")) is None


def test_inputs_in_order_and_one_of_several() -> None:
    x = tf.placeholder(tf.float32, [2])
    one, other = tf.subtract(tf.exp(x), x), tf.subtract(x, tf.exp(x))
    ordered = GraphMatcher(OpTypePattern("Sub", inputs=["Exp", "*"]))
    assert [ordered.match_op(tensor.op) is not None for tensor in (one, other)] == [True, False]
    assert GraphMatcher(OpTypePattern("Sub", inputs=["*"])).match_op(one.op) is None
    either = OneofPattern([OpTypePattern("Log", name="log"), OpTypePattern("Exp", name="exp")])
    match = GraphMatcher(OpTypePattern("Sub", inputs=[either, "*"])).match_op(one.op)
    assert match is not None
    assert match.get_op("exp") is one.op.inputs[0].op
    assert GraphMatcher(either).match_op(x.op) is None


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="8 inputs at most"):
        OpTypePattern("Pack", inputs=["*"] * 9)
    result = MatchResult()
    op = tf.no_op()
    result.add(OpTypePattern("NoOp", name="n"), op, None)
    with pytest.raises(ValueError, match="already bound"):
        result.add(OpTypePattern("NoOp", name="n"), op, None)
    with pytest.raises(ValueError, match="a Pattern or a string"):
        result.get_op(3)  # type: ignore[arg-type]
