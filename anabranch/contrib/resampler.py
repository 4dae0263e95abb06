"""`tf.contrib.resampler`: values of a picture between its pixels."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
