"""`tf.contrib.tpu`: what programs that were written for TPUs use where there are none."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
