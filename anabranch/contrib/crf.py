"""`tf.contrib.crf`: conditional random fields over sequences of tags."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
