"""`tf.compat`: conversions between bytes and text, tuples of number types, and `tf.compat.v1`."""

from __future__ import annotations

from anabranch.compat import v1
from anabranch.core.compat import (
    as_bytes,
    as_str,
    as_str_any,
    as_text,
    bytes_or_text_types,
    complex_types,
    dimension_at_index,
    dimension_value,
    integral_types,
    path_to_str,
    real_types,
)

__all__ = [
    "as_bytes",
    "as_str",
    "as_str_any",
    "as_text",
    "bytes_or_text_types",
    "complex_types",
    "dimension_at_index",
    "dimension_value",
    "integral_types",
    "path_to_str",
    "real_types",
    "v1",
]
