"""`tf.contrib.slim`: what programs use of it that is not a layer."""

from __future__ import annotations

from anabranch.contrib.slim import prefetch_queue

__all__ = ["prefetch_queue"]
