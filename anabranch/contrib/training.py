"""`tf.contrib.training`: hyperparameters, buckets, and how variables are spread over parameter servers."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
