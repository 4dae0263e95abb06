"""`tf.contrib.learn`: of all that it was, how documents become numbers, and the modes of models."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
