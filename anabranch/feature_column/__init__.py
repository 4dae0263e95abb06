"""`tf.feature_column`: how raw features become the tensors that a model takes, said as data."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
