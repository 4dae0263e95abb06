"""`tf.contrib.framework`: `arg_scope` and sets of variables, by the package tf-slim; nested structures, checkpoints."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
