"""`tf.contrib.tensorboard`: what training writes for TensorBoard."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
