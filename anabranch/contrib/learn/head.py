"""`tf.contrib.learn.head`: the heads of models, also by the names that they had before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
