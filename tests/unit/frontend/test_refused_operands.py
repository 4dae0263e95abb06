"""What kind of error it is where operands do not go together: that of TensorFlow, which programs catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as tf

_REFUSED: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "product": (lambda real, other: real * other, TypeError, "does not match type float32"),
    "tensordot": (lambda real, other: tf.tensordot(real, other, 1), TypeError, "does not match type float32"),
    "cross-entropy": (
        lambda real, other: tf.nn.sigmoid_cross_entropy_with_logits(labels=other, logits=real),
        TypeError,
        "does not match type float32",
    ),
    "softmax of a scalar": (lambda real, other: tf.nn.softmax(real[0, 0]), ValueError, "rank at least 1"),
    "softmax along no axis": (
        lambda real, other: tf.nn.log_softmax(real, axis=2),
        tf.errors.InvalidArgumentError,
        r"range \[-2, 2\)",
    ),
}


@pytest.mark.parametrize("other", [tf.string, tf.int32])
@pytest.mark.parametrize("call", _REFUSED)
def test_operands_that_do_not_go_together(call: str, other: tf.DType) -> None:
    make, error, words = _REFUSED[call]
    with tf.Graph().as_default():
        real, wrong = tf.placeholder(tf.float32, [2, 2]), tf.placeholder(other, [2, 2])
        with pytest.raises(error, match=words):
            make(real, wrong)
