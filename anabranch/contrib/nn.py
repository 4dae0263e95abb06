"""`tf.contrib.nn`: cross entropies whose arguments are (logits, labels), dropout for SELU, and others."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
