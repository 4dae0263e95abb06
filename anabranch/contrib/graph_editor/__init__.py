"""`tf.contrib.graph_editor`: a graph that stands already is searched, rewired and copied."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
