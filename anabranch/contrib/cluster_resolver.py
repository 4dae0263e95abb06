"""`tf.contrib.cluster_resolver`: where `tf.distribute.cluster_resolver` stood before; old programs still say so."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
