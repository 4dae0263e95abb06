"""`tf.contrib.learn.datasets.base`: tables in files."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
