"""`tf.contrib.learn.utils.input_fn_utils`: what an exported model is fed."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
