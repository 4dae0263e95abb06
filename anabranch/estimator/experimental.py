"""`tf.estimator.experimental`: hooks that stop and evaluate, and the networks of ready-made models as functions."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
