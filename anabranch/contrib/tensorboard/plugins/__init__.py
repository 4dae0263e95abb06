"""`tf.contrib.tensorboard.plugins`: what TensorBoard's plugins show."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
