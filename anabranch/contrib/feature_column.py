"""`tf.contrib.feature_column`: the input of recurrent networks from columns of sequences."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
