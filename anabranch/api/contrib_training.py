"""What `tf.contrib.training` has of queues: buckets."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
