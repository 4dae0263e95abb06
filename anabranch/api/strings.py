"""`tf.strings`."""

from __future__ import annotations

from anabranch.frontend.array import split
from anabranch.frontend.strings import (
    as_string,
    reduce_join,
    regex_full_match,
    regex_replace,
    substr,
    unsorted_segment_join,
)
from anabranch.frontend.strings import (
    string_join as join,
)
from anabranch.frontend.strings import (
    string_strip as strip,
)
from anabranch.frontend.strings import (
    string_to_hash_bucket as to_hash_bucket,
)
from anabranch.frontend.strings import (
    string_to_hash_bucket_fast as to_hash_bucket_fast,
)
from anabranch.frontend.strings import (
    string_to_hash_bucket_strong as to_hash_bucket_strong,
)
from anabranch.frontend.strings import (
    string_to_number as to_number,
)

__all__ = [
    "as_string",
    "join",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "split",
    "strip",
    "substr",
    "to_hash_bucket",
    "to_hash_bucket_fast",
    "to_hash_bucket_strong",
    "to_number",
    "unsorted_segment_join",
]
