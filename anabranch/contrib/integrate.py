"""`tf.contrib.integrate`: systems of ordinary differential equations."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
