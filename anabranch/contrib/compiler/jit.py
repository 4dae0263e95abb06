"""`tf.contrib.compiler.jit`: which operations XLA is to compile."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
