"""`tf.contrib.learn`: estimators with `fit`, experiments, and how documents become numbers."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
