from anabranch.frontend.array import reshape as reshape, tile as tile
from anabranch.frontend.data_flow import scatter_nd as scatter_nd
from anabranch.frontend.gathering import gather_nd as gather_nd
from anabranch.frontend.rearranging import (
    batch_to_space_nd as batch_to_space_nd,
    reverse as reverse,
    roll as roll,
    space_to_batch_nd as space_to_batch_nd,
)
