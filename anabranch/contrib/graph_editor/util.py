"""`tf.contrib.graph_editor.util`: lists and structures of operations and tensors, and names."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
