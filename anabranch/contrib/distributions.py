"""`tf.contrib.distributions`: distributions of `tf.distributions`, and some more."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
