"""`tf.contrib.stateless`: random numbers that are a function of the seed, under their contributed names."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
