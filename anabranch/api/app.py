"""`tf.app`."""

from __future__ import annotations

from anabranch.frontend.platform.app import flags, run

__all__ = [
    "flags",
    "run",
]
