"""The few names of `tf.contrib` that public programs need, written with the public package only."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
