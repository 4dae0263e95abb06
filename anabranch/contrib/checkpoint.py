"""`tf.contrib.checkpoint`: what belongs to `tf.train.Checkpoint`: containers, states of Python's, looking at files."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
