"""`tf.contrib.learn.preprocessing`: documents and categories become numbers."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
