"""`tf.contrib.factorization`: clusters of examples."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
