"""`tf.contrib.learn.monitors`: what looks on while a model of `tf.contrib.learn` trains."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
