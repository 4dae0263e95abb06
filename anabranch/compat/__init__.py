"""`tf.compat`: conversions between bytes and text, tuples of number types, and `tf.compat.v1`."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
