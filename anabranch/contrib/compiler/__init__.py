"""`tf.contrib.compiler`: where `tf.xla.experimental` stood before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
