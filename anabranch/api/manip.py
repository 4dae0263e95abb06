"""`tf.manip`."""

from __future__ import annotations

from anabranch.frontend.array import reshape, tile
from anabranch.frontend.data_flow import scatter_nd
from anabranch.frontend.gathering import gather_nd
from anabranch.frontend.rearranging import batch_to_space_nd, reverse, roll, space_to_batch_nd

__all__ = [
    "batch_to_space_nd",
    "gather_nd",
    "reshape",
    "reverse",
    "roll",
    "scatter_nd",
    "space_to_batch_nd",
    "tile",
]
