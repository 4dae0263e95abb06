from anabranch.compat import v1 as v1, v2 as v2
from anabranch.core.compat import (
    as_bytes as as_bytes,
    as_str as as_str,
    as_str_any as as_str_any,
    as_text as as_text,
    bytes_or_text_types as bytes_or_text_types,
    complex_types as complex_types,
    integral_types as integral_types,
    path_to_str as path_to_str,
    real_types as real_types,
)
from anabranch.core.dimensions import dimension_value as dimension_value
from anabranch.core.forward_compatibility import (
    forward_compatibility_horizon as forward_compatibility_horizon,
    forward_compatible as forward_compatible,
)
from anabranch.core.shapes import dimension_at_index as dimension_at_index
