"""Barriers, which TensorFlow has in a private module alone, for what is contributed here."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
