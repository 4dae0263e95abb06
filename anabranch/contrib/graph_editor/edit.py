"""`tf.contrib.graph_editor.edit`: parts of a graph are cut off, connected, and passed by."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
