"""`tf.contrib.quantize`: graphs are rewritten so that training feels what numbers of 8 bits will do."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
