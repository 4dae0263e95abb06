"""`tf.contrib.distributions`: distributions of `tf.distributions`, and more by TensorFlow Probability 0.8."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
