"""`tf.estimator.export`: what an exported model takes and gives."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
