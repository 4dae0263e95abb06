"""`tf.contrib.memory_stats`: how much memory devices use."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
