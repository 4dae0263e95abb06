"""What `tf.contrib.staging` is made of."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
