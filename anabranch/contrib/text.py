"""`tf.contrib.text`: words with words around them."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
