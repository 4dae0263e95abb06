"""`tf.contrib.graph_editor.subgraph`: views of a part of a graph."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
