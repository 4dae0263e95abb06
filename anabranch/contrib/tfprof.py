"""`tf.contrib.tfprof`: where `tf.profiler` stood before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
