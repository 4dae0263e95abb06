"""What `tf.contrib.lookup` is made of: the tables that no other public submodule has."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
