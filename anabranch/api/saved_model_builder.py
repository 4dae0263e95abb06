"""`tf.saved_model.builder`."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
