from anabranch.frontend.ragged.broadcasting import map_flat_values as map_flat_values
from anabranch.frontend.ragged.factories import (
    constant as constant,
    constant_value as constant_value,
    placeholder as placeholder,
    range as range,
    row_splits_to_segment_ids as row_splits_to_segment_ids,
    segment_ids_to_row_splits as segment_ids_to_row_splits,
)
from anabranch.frontend.ragged.joining import stack as stack
from anabranch.frontend.ragged.rearranging import (
    boolean_mask as boolean_mask,
    stack_dynamic_partitions as stack_dynamic_partitions,
)
from anabranch.frontend.ragged.values import RaggedTensorValue as RaggedTensorValue
