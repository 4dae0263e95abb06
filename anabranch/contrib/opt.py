"""`tf.contrib.opt`: optimizers beyond those of `tf.train`, and wrappers around optimizers."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
