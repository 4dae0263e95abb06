"""`tf.contrib.hooks`: where `tf.train.ProfilerHook` stood before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
