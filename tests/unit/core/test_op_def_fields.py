"""An operation's type has the fields that programs know from TensorFlow's message."""

from __future__ import annotations

import anabranch as tf


def test_fields_of_the_message() -> None:
    with tf.Graph().as_default():
        added = (tf.constant(1) + 2).op.op_def
        drawn = tf.random_uniform([2]).op
        while not drawn.op_def.is_stateful:
            drawn = drawn.inputs[0].op
    assert (added.is_stateful, added.is_commutative) == (False, True)
