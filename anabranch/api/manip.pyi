from anabranch.frontend.arrays.data_flow import scatter_nd as scatter_nd
from anabranch.frontend.arrays.gathering import gather_nd as gather_nd
from anabranch.frontend.arrays.layout import tile as tile
from anabranch.frontend.arrays.rearranging import (
    batch_to_space_nd as batch_to_space_nd,
    reverse as reverse,
    roll as roll,
    space_to_batch_nd as space_to_batch_nd,
)
from anabranch.frontend.arrays.shapes import reshape as reshape
