"""`tf.contrib.learn.datasets`: tables and digits in files."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
