"""tf.user_ops: the example of an operation that TensorFlow's users were shown."""

from __future__ import annotations

from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def my_fact() -> Tensor:
    """A fact about factorials, as a string.

    Example:
        >>> sess.run(tf.user_ops.my_fact())
        b'0! == 1'
    """
    fact: Tensor = raw.Fact()
    return fact
