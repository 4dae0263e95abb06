"""`tf.math.special`."""

from __future__ import annotations

from anabranch.frontend.math import bessel_i0, bessel_i0e, bessel_i1, bessel_i1e

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
]
