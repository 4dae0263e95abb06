"""`tf.bitwise`."""

from __future__ import annotations

from anabranch.frontend.math import bitwise_and, bitwise_or, bitwise_xor, invert, left_shift, right_shift

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
]
