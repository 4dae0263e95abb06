"""`tf.contrib.slim`: what programs use of it that is not a layer."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
