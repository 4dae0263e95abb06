"""What `tf.contrib.lookup` has beside the tables themselves: its own ways to make and use them."""

from __future__ import annotations

import anabranch as tf
from anabranch.api.contrib_lookup import (
    FastHashSpec,
    IdTableWithHashBuckets,
    index_table_from_tensor as _index_table_from_tensor,
    index_to_string_table_from_tensor as _index_to_string_table_from_tensor,
)
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike


def index_table_from_tensor(
    mapping: TensorLike,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: PassedOn = FastHashSpec,
    dtype: DTypeLike = "string",
    name: str | None = None,
) -> tf.lookup.StaticHashTable | IdTableWithHashBuckets:
    """`tf.lookup`'s table from the elements of a vector to their positions.

    Raises:
        ValueError: there is no vector.
    """
    if mapping is None:
        raise ValueError("mapping must be specified.")
    return _index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def string_to_index_table_from_tensor(
    mapping: TensorLike,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: PassedOn = FastHashSpec,
    name: str | None = None,
) -> tf.lookup.StaticHashTable | IdTableWithHashBuckets:
    """`index_table_from_tensor` of strings."""
    return index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, "string", name)


def index_to_string_table_from_tensor(
    mapping: TensorLike, default_value: str = "UNK", name: str | None = None
) -> tf.lookup.StaticHashTable:
    """A table from positions to the elements of a vector of strings.

    Raises:
        ValueError: there is no vector.
    """
    if mapping is None:
        raise ValueError("mapping must be specified.")
    return _index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(
    tensor: TensorLike, mapping: TensorLike, default_value: int = -1, name: str | None = None
) -> tf.Tensor | tf.SparseTensor:
    """The positions in a vector of strings; the table joins the graph's table initializers."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(
    tensor: TensorLike, mapping: TensorLike, default_value: str = "UNK", name: str | None = None
) -> tf.Tensor | tf.SparseTensor:
    """The elements of a vector of strings at positions; the table joins the graph's table initializers."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
