"""`tf.contrib.copy_graph`: copies in other graphs."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
