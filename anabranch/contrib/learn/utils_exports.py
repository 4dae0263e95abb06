"""`tf.contrib.learn.utils.saved_model_export_utils`: strategies of exports, and the folders that they write to."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
