"""`tf.contrib.checkpoint`: where `tf.train.CheckpointManager` stood before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
