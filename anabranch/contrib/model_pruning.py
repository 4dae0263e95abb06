"""`tf.contrib.model_pruning`: weights that become zero while a model is trained."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
