"""`tf.contrib.tensorboard.plugins.projector`: embeddings that TensorBoard shows in space."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
