"""`tf.contrib.slim`, by the package tf-slim; `prefetch_queue` is there without it."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
