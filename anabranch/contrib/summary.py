"""`tf.contrib.summary`: operations that write summaries themselves."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
