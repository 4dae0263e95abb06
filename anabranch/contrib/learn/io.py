"""`tf.contrib.learn.io`: batches of features out of files, and of arrays."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
