"""`tf.contrib.learn.utils`: how models are exported, and what they are fed then."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
