"""`tf.contrib.gan`: networks that generate data, trained against networks that tell them from real data."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
