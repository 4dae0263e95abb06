"""`tf.contrib.gan.eval`: distances between real and generated data, scores, and summaries of pictures."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
