"""`tf.sparse`."""

from __future__ import annotations

from anabranch.frontend.array import concat, expand_dims, reshape, split, transpose
from anabranch.frontend.constants import placeholder
from anabranch.frontend.linalg import cross, matmul
from anabranch.frontend.linalg import matmul as sparse_dense_matmul
from anabranch.frontend.math import add, maximum, minimum
from anabranch.frontend.nn import softmax
from anabranch.frontend.reduction import (
    bincount,
    reduce_max,
    reduce_sum,
    segment_mean,
    segment_sum,
)
from anabranch.frontend.reduction import (
    sparse_segment_sqrt_n as segment_sqrt_n,
)
from anabranch.frontend.slicing import slice
from anabranch.frontend.sparse import (
    SparseTensor,
)
from anabranch.frontend.sparse import (
    sparse_fill_empty_rows as fill_empty_rows,
)
from anabranch.frontend.sparse import (
    sparse_mask as mask,
)
from anabranch.frontend.sparse import (
    sparse_merge as merge,
)
from anabranch.frontend.sparse import (
    sparse_reorder as reorder,
)
from anabranch.frontend.sparse import (
    sparse_reset_shape as reset_shape,
)
from anabranch.frontend.sparse import (
    sparse_retain as retain,
)
from anabranch.frontend.sparse import (
    sparse_tensor_to_dense as to_dense,
)
from anabranch.frontend.sparse import (
    sparse_to_indicator as to_indicator,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_max_sparse as reduce_max_sparse,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_sum_sparse as reduce_sum_sparse,
)

__all__ = [
    "SparseTensor",
    "add",
    "bincount",
    "concat",
    "cross",
    "expand_dims",
    "fill_empty_rows",
    "mask",
    "matmul",
    "maximum",
    "merge",
    "minimum",
    "placeholder",
    "reduce_max",
    "reduce_max_sparse",
    "reduce_sum",
    "reduce_sum_sparse",
    "reorder",
    "reset_shape",
    "reshape",
    "retain",
    "segment_mean",
    "segment_sqrt_n",
    "segment_sum",
    "slice",
    "softmax",
    "sparse_dense_matmul",
    "split",
    "to_dense",
    "to_indicator",
    "transpose",
]
