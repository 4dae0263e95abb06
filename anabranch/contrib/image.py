"""`tf.contrib.image`: projective transforms of images, and pictures whose pixels are moved."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
