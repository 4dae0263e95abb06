"""`tf.contrib.learn`: of all that it was, how documents become numbers."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
