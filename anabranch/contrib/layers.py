"""`tf.contrib.layers`: layers of networks, by the package tf-slim; some that do not need it."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
