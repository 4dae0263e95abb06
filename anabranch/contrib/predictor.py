"""`tf.contrib.predictor`: a SavedModel, or a model of `tf.estimator`, as a function of arrays."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
