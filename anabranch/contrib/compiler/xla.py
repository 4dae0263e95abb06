"""`tf.contrib.compiler.xla`: functions that XLA compiles whole."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
