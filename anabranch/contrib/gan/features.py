"""`tf.contrib.gan.features`: clipped weights, conditions, pools of earlier data, spectral and virtual normalization."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
