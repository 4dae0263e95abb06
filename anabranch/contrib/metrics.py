"""`tf.contrib.metrics`, by the package tf-slim: metrics whose arguments are (predictions, labels)."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
