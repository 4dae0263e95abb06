"""`tf.estimator.tpu`: estimators that were written for TPUs."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
