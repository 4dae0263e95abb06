"""`tf.nest`."""

from __future__ import annotations

from anabranch.core.nest import (
    assert_same_structure,
    assert_shallow_structure,
    flatten,
    flatten_dict_items,
    flatten_up_to,
    flatten_with_joined_string_paths,
    flatten_with_tuple_paths,
    is_nested,
    is_sequence,
    map_structure,
    map_structure_up_to,
    map_structure_with_paths,
    map_structure_with_tuple_paths,
    pack_sequence_as,
)

__all__ = [
    "assert_same_structure",
    "assert_shallow_structure",
    "flatten",
    "flatten_dict_items",
    "flatten_up_to",
    "flatten_with_joined_string_paths",
    "flatten_with_tuple_paths",
    "is_nested",
    "is_sequence",
    "map_structure",
    "map_structure_up_to",
    "map_structure_with_paths",
    "map_structure_with_tuple_paths",
    "pack_sequence_as",
]
