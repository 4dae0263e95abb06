"""`tf.contrib.proto`: where `tf.io.decode_proto` and `tf.io.encode_proto` stood before."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
