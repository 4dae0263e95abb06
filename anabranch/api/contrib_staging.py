"""What `tf.contrib.staging` is made of."""

from __future__ import annotations

from anabranch.frontend.staging import MapStagingArea, StagingArea

__all__ = ["MapStagingArea", "StagingArea"]
