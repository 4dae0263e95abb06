"""Which dtype an argument gets whose type attribute has a default; that of a list of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import raw_ops

WIDE = np.int64(2**40)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (1, "int32"),
        (np.int32(1), "int32"),
        (np.int64(1), "int32"),  # as in TensorFlow 1: graphs hold 32 bits wherever they are enough
        (WIDE, "int64"),
        (-WIDE, "int64"),
        (0.5, "float32"),
        (np.float32(0.5), "float32"),
        (np.float32(1), "float32"),  # whatever the number: a graph's types do not follow from its values
        (np.float64(0.5), "float64"),
    ],
)
def test_no_number_loses_its_fraction_or_its_higher_bits(start: Any, expected: str) -> None:
    kind = type(start)
    assert raw_ops.Range(start=start, limit=kind(start + 2), delta=kind(1)).dtype.name == expected


@pytest.mark.parametrize("shape", [np.array([]), np.float32([]), np.int64([])])
def test_what_the_attribute_does_not_allow_becomes_the_default(shape: Any) -> None:
    assert raw_ops.Reshape(tensor=np.float32([7]), shape=shape).op.inputs[1].dtype.name == "int32"


def test_an_axis_beyond_32_bits_stays_what_it_is() -> None:
    assert raw_ops.Cumsum(x=np.float32([1]), axis=WIDE).op.inputs[1].dtype.name == "int64"


def test_a_list_of_tensors_has_one_dtype() -> None:
    """Unless another one than that of the first is asked for: then all are cast, as in TensorFlow."""
    real, whole, long = tf.constant(1.5), tf.constant(2), tf.constant(3, tf.int64)
    for mixed, dtype in (([real, whole], None), ([[real, 1.0], [2.0, whole]], None), ([real, whole], tf.float32)):
        with pytest.raises(TypeError, match="a list containing a tensor of dtype int32 to float32"):
            tf.convert_to_tensor(mixed, dtype)
    with pytest.raises(TypeError, match="a list containing a tensor of dtype int64 to int32"):
        tf.zeros([whole, long])
    assert tf.convert_to_tensor([whole, real], tf.float32).dtype is tf.float32
    assert tf.convert_to_tensor([[real, 1], [2, real]]).shape.as_list() == [2, 2]
    assert tf.convert_to_tensor([whole, whole], tf.float64).dtype is tf.float64
