"""`tf.contrib.losses`, by the package tf-slim: losses whose arguments are (predictions, labels)."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
