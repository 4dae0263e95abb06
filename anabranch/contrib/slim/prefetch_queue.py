"""`tf.contrib.slim.prefetch_queue`: a queue of batches that are made while the program trains."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
