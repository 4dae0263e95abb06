"""`tf.contrib.deprecated`: summaries as they were before `tf.summary`."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
