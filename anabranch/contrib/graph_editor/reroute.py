"""`tf.contrib.graph_editor.reroute`: edges of a graph are moved."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
