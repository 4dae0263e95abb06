"""`tf.contrib.staging`."""

from __future__ import annotations

from anabranch.api.contrib_staging import MapStagingArea, StagingArea

__all__ = ["MapStagingArea", "StagingArea"]
