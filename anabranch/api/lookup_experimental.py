"""`tf.lookup.experimental`."""

from __future__ import annotations

from anabranch.frontend.mutable_tables import (
    DenseHashTable,
)

__all__ = ["DenseHashTable"]
