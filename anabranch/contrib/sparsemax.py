"""`tf.contrib.sparsemax`: probabilities of which many are zero."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
