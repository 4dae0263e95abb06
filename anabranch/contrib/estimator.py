"""`tf.contrib.estimator`: heads, hooks and models that stand in `tf.estimator` by now."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
