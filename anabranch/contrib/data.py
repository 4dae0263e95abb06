"""`tf.contrib.data`: where parts of `tf.data` stood before; old programs still say so."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
