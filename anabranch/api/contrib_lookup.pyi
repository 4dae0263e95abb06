from anabranch.frontend.resources.lookup import (
    FastHashSpec as FastHashSpec,
    IdTableWithHashBuckets as IdTableWithHashBuckets,
    index_table_from_tensor as index_table_from_tensor,
    index_to_string_table_from_tensor as index_to_string_table_from_tensor,
)
