"""`tf.contrib.mixed_precision`: scaled losses."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
