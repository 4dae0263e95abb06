"""`tf.contrib.nccl`: sums and their like over tensors of several devices, as ordinary operations."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
