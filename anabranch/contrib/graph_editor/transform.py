"""`tf.contrib.graph_editor.transform`: parts of a graph are copied, and changed on the way."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
