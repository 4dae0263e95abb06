"""`tf.contrib.learn.datasets.mnist`: handwritten digits in files."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
