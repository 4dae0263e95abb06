"""Sparse tensors as strings: tf.serialize_sparse, tf.deserialize_many_sparse."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.sparse.form import as_sparse_tensor
from anabranch.graph.composite import SparseTensor, SparseTensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def serialize_sparse(
    sp_input: SparseTensorLike, name: str | None = None, out_type: DTypeLike = dtypes.string
) -> Tensor:
    """The parts of a sparse tensor as serialized messages.

    Args:
        sp_input: any dtype and shape.
        name: of the operation.
        out_type: tf.string or tf.variant.

    Returns:
        Shape [3]: indices, values, shape.

    Raises:
        TypeError: `sp_input` is not sparse.

    Example:
        >>> sparse = tf.SparseTensor([[0, 1]], [5], [2, 2])
        >>> tf.serialize_sparse(sparse).shape
        TensorShape([Dimension(3)])
    """
    sparse = as_sparse_tensor(sp_input)
    return raw.SerializeSparse(  # type: ignore[no-any-return]
        sparse.indices, sparse.values, sparse.dense_shape, out_type=as_dtype(out_type), name=name
    )


def serialize_many_sparse(
    sp_input: SparseTensorLike, name: str | None = None, out_type: DTypeLike = dtypes.string
) -> Tensor:
    """The rows of a sparse tensor, each as `serialize_sparse` gives it.

    Args:
        sp_input: any dtype, shape [n, ...], of rank 2 at least.
        name: of the operation.
        out_type: tf.string or tf.variant.

    Returns:
        Shape [n, 3].

    Raises:
        TypeError: `sp_input` is not sparse.

    Example:
        >>> sparse = tf.SparseTensor([[0, 1]], [5], [2, 2])
        >>> sess.run(tf.shape(tf.serialize_many_sparse(sparse)))
        array([2, 3], dtype=int32)
    """
    sparse = as_sparse_tensor(sp_input)
    return raw.SerializeManySparse(  # type: ignore[no-any-return]
        sparse.indices, sparse.values, sparse.dense_shape, out_type=as_dtype(out_type), name=name
    )


def deserialize_many_sparse(
    serialized_sparse: TensorLike, dtype: DTypeLike, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """A sparse tensor of serialized ones, stacked along a new first dimension.

    Args:
        serialized_sparse: strings, shape [n, 3], each row as `serialize_sparse` gives it.
        dtype: of the values.
        rank: of each of the tensors, where it is known.
        name: of the operation.

    Returns:
        A sparse tensor of rank `rank` + 1.

    Raises (in the step):
        InvalidArgumentError: a string is no such message, or the ranks differ.

    Example:
        >>> sparse = tf.SparseTensor([[0, 1]], [5], [2, 2])
        >>> again = tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse), tf.int32, rank=1)
        >>> sess.run(again).values
        array([5], dtype=int32)
    """
    indices, values, shape = raw.DeserializeManySparse(serialized_sparse, dtype=as_dtype(dtype), name=name)
    indices.set_shape([None, None if rank is None else rank + 1])
    shape.set_shape([None if rank is None else rank + 1])
    return SparseTensor(indices, values, shape)
