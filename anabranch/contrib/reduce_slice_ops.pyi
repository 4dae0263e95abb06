from anabranch.contrib.slice_reductions import (
    reduce_slice_max as reduce_slice_max,
    reduce_slice_min as reduce_slice_min,
    reduce_slice_prod as reduce_slice_prod,
    reduce_slice_sum as reduce_slice_sum,
)
