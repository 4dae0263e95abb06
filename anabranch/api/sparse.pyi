from anabranch.frontend.arrays.segments import sparse_segment_mean, sparse_segment_sqrt_n, sparse_segment_sum
from anabranch.frontend.resources.accumulators import SparseConditionalAccumulator as SparseConditionalAccumulator
from anabranch.frontend.sparse.arithmetic import (
    sparse_add,
    sparse_maximum,
    sparse_minimum,
    sparse_reduce_max,
    sparse_reduce_max_sparse,
    sparse_reduce_sum,
    sparse_reduce_sum_sparse,
    sparse_softmax,
    sparse_tensor_dense_matmul,
)
from anabranch.frontend.sparse.crossing import sparse_cross, sparse_cross_hashed
from anabranch.frontend.sparse.form import (
    sparse_concat,
    sparse_expand_dims,
    sparse_eye,
    sparse_fill_empty_rows,
    sparse_from_dense,
    sparse_mask,
    sparse_merge,
    sparse_placeholder,
    sparse_reorder,
    sparse_reset_shape,
    sparse_reshape,
    sparse_retain,
    sparse_slice,
    sparse_split,
    sparse_tensor_to_dense,
    sparse_to_indicator,
    sparse_transpose,
)
from anabranch.graph.composite import SparseTensor as SparseTensor

add = sparse_add
concat = sparse_concat
cross = sparse_cross
cross_hashed = sparse_cross_hashed
expand_dims = sparse_expand_dims
eye = sparse_eye
fill_empty_rows = sparse_fill_empty_rows
from_dense = sparse_from_dense
mask = sparse_mask
matmul = sparse_tensor_dense_matmul
maximum = sparse_maximum
merge = sparse_merge
minimum = sparse_minimum
placeholder = sparse_placeholder
reduce_max = sparse_reduce_max
reduce_max_sparse = sparse_reduce_max_sparse
reduce_sum = sparse_reduce_sum
reduce_sum_sparse = sparse_reduce_sum_sparse
reorder = sparse_reorder
reset_shape = sparse_reset_shape
reshape = sparse_reshape
retain = sparse_retain
segment_mean = sparse_segment_mean
segment_sqrt_n = sparse_segment_sqrt_n
segment_sum = sparse_segment_sum
slice = sparse_slice
softmax = sparse_softmax
sparse_dense_matmul = sparse_tensor_dense_matmul
split = sparse_split
to_dense = sparse_tensor_to_dense
to_indicator = sparse_to_indicator
transpose = sparse_transpose
