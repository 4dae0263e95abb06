"""`tf.sets`."""

from __future__ import annotations

from anabranch.frontend.array import size
from anabranch.frontend.array import size as set_size

__all__ = [
    "set_size",
    "size",
]
