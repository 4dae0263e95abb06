"""`tf.contrib.training`: hyperparameters, buckets, how variables are spread; training loops by the package tf-slim."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
