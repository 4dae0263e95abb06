"""`tf.estimator.inputs`: input functions of arrays in memory."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
