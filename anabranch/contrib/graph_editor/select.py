"""`tf.contrib.graph_editor.select`: ways to select operations and tensors."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
