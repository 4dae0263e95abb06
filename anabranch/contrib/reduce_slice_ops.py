"""`tf.contrib.reduce_slice_ops`: reductions of ranges along an axis."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
