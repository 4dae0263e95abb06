"""`tf.sparse`."""

from __future__ import annotations

from anabranch.frontend.reduction import (
    sparse_segment_mean as segment_mean,
)
from anabranch.frontend.reduction import (
    sparse_segment_sqrt_n as segment_sqrt_n,
)
from anabranch.frontend.reduction import (
    sparse_segment_sum as segment_sum,
)
from anabranch.frontend.sparse import (
    SparseTensor,
)
from anabranch.frontend.sparse import (
    sparse_concat as concat,
)
from anabranch.frontend.sparse import (
    sparse_expand_dims as expand_dims,
)
from anabranch.frontend.sparse import (
    sparse_eye as eye,
)
from anabranch.frontend.sparse import (
    sparse_fill_empty_rows as fill_empty_rows,
)
from anabranch.frontend.sparse import (
    sparse_from_dense as from_dense,
)
from anabranch.frontend.sparse import (
    sparse_mask as mask,
)
from anabranch.frontend.sparse import (
    sparse_merge as merge,
)
from anabranch.frontend.sparse import (
    sparse_placeholder as placeholder,
)
from anabranch.frontend.sparse import (
    sparse_reorder as reorder,
)
from anabranch.frontend.sparse import (
    sparse_reset_shape as reset_shape,
)
from anabranch.frontend.sparse import (
    sparse_reshape as reshape,
)
from anabranch.frontend.sparse import (
    sparse_retain as retain,
)
from anabranch.frontend.sparse import (
    sparse_slice as slice,
)
from anabranch.frontend.sparse import (
    sparse_split as split,
)
from anabranch.frontend.sparse import (
    sparse_tensor_to_dense as to_dense,
)
from anabranch.frontend.sparse import (
    sparse_to_indicator as to_indicator,
)
from anabranch.frontend.sparse import (
    sparse_transpose as transpose,
)
from anabranch.frontend.sparse_math import (
    sparse_add as add,
)
from anabranch.frontend.sparse_math import (
    sparse_maximum as maximum,
)
from anabranch.frontend.sparse_math import (
    sparse_minimum as minimum,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_max as reduce_max,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_max_sparse as reduce_max_sparse,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_sum as reduce_sum,
)
from anabranch.frontend.sparse_math import (
    sparse_reduce_sum_sparse as reduce_sum_sparse,
)
from anabranch.frontend.sparse_math import (
    sparse_softmax as softmax,
)
from anabranch.frontend.sparse_math import (
    sparse_tensor_dense_matmul as matmul,
)
from anabranch.frontend.sparse_math import (
    sparse_tensor_dense_matmul as sparse_dense_matmul,
)

__all__ = [
    "SparseTensor",
    "add",
    "concat",
    "expand_dims",
    "eye",
    "fill_empty_rows",
    "from_dense",
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
