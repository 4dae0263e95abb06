"""`tf.contrib.gan.estimator`: models of this module as Estimators."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
