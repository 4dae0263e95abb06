"""`tf.image`."""

from __future__ import annotations

from anabranch.frontend.array import transpose
from anabranch.frontend.array import transpose as transpose_image
from anabranch.frontend.rearranging import extract_image_patches

__all__ = [
    "extract_image_patches",
    "transpose",
    "transpose_image",
]
