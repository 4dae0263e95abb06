"""`tf.contrib.solvers`: methods for linear equations that only multiply by the matrix."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
