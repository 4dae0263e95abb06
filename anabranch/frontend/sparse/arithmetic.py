"""Arithmetic on sparse tensors: products, sums, reductions, softmax."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import PerAxis, one_of
from anabranch.frontend.framework import name_scope
from anabranch.frontend.sparse.form import as_sparse_tensor, parts_of
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import SparseTensor, SparseTensorLike, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _is_sparse(value: object) -> bool:
    return isinstance(value, SparseTensor | SparseTensorValue)


def sparse_tensor_dense_matmul(
    sp_a: TensorLike | SparseTensorLike,
    b: TensorLike | SparseTensorLike,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """The product of a sparse and a dense matrix, either of which may come first.

    Args:
        sp_a: a sparse matrix (or a dense one, when `b` is sparse).
        b: a dense matrix of the same dtype.
        adjoint_a, adjoint_b: whether to take the conjugate transpose of the operand.
    """
    with name_scope(name, "SparseTensorDenseMatMul") as scope:
        if _is_sparse(b) and not _is_sparse(sp_a):
            # a b = (b* a*)*
            product = _product(b, sp_a, not adjoint_b, not adjoint_a, None)
            conjugate = raw.Conj(product) if product.dtype.is_complex else product
            result: Tensor = raw.Transpose(conjugate, [1, 0], name=scope)
            return result
        return _product(sp_a, b, adjoint_a, adjoint_b, scope)


def _product(
    sparse: TensorLike | SparseTensorLike,
    dense: TensorLike | SparseTensorLike,
    adjoint_sparse: bool,
    adjoint_dense: bool,
    name: str | None,
) -> Tensor:
    a = as_sparse_tensor(sparse)
    b = convert_to_tensor(dense, a.dtype.base_dtype, name="b")
    result: Tensor = raw.SparseTensorDenseMatMul(
        *parts_of(a), b, adjoint_a=adjoint_sparse, adjoint_b=adjoint_dense, name=name
    )
    return result


@overload
def sparse_add(
    a: SparseTensor, b: SparseTensor, threshold: TensorLike = ..., thresh: TensorLike = ...
) -> SparseTensor: ...
@overload
def sparse_add(
    a: TensorLike,
    b: TensorLike,
    threshold: TensorLike = ...,
    thresh: TensorLike = ...,
) -> Tensor: ...
def sparse_add(
    a: TensorLike | SparseTensorLike,
    b: TensorLike | SparseTensorLike,
    threshold: TensorLike | None = None,
    thresh: TensorLike | None = None,
) -> Tensor | SparseTensor:
    """The sum of two tensors at least one of which is sparse.

    Args:
        threshold: sums of two sparse tensors that are smaller in magnitude are left out; default: none are.
        thresh: deprecated name of `threshold`.

    Returns:
        a `SparseTensor` when both are sparse, else a dense tensor.

    Raises:
        TypeError: both are dense.
    """
    limit = one_of("threshold", threshold, "thresh", thresh)
    if not _is_sparse(a) and not _is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if _is_sparse(a) and _is_sparse(b):
        x, y = as_sparse_tensor(a), as_sparse_tensor(b)
        real = x.dtype.real_dtype.base_dtype
        smallest = convert_to_tensor(0 if limit is None else limit, real, name="thresh")
        indices, values, shape = raw.SparseAdd(*parts_of(x), *parts_of(y), smallest)
        known = x.shape.merge_with(y.shape)
        return SparseTensor(indices, values, known.as_list() if known.is_fully_defined() else shape)
    sparse, dense = (a, b) if _is_sparse(a) else (b, a)
    x = as_sparse_tensor(sparse)
    result: Tensor | SparseTensor = raw.SparseTensorDenseAdd(*parts_of(x), convert_to_tensor(dense, x.dtype.base_dtype))
    return result


def sparse_maximum(sp_a: SparseTensorLike, sp_b: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The elementwise maximum of two sparse tensors of one shape; what is not stored counts as zero."""
    return _extremum("SparseSparseMaximum", raw.SparseSparseMaximum, sp_a, sp_b, name)


def sparse_minimum(sp_a: SparseTensorLike, sp_b: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The elementwise minimum of two sparse tensors of one shape; what is not stored counts as zero."""
    return _extremum("SparseSparseMinimum", raw.SparseSparseMinimum, sp_a, sp_b, name)


def _extremum(
    kind: str, op: OpFunction, sp_a: SparseTensorLike, sp_b: SparseTensorLike, name: str | None
) -> SparseTensor:
    a, b = as_sparse_tensor(sp_a), as_sparse_tensor(sp_b)
    with name_scope(name, kind, [a.indices, b.indices]) as scope:
        indices, values = op(*parts_of(a), *parts_of(b), name=scope)
    return SparseTensor(indices, values, a.dense_shape)


def sparse_softmax(sp_input: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """Softmax along the last dimension, among the stored elements."""
    value = as_sparse_tensor(sp_input)
    with name_scope(name, "SparseSoftmax", [value.indices]) as scope:
        return SparseTensor(value.indices, raw.SparseSoftmax(*parts_of(value), name=scope), value.dense_shape)


# ---------------------------------------------------------------------- reductions
def sparse_reduce_sum(
    sp_input: SparseTensorLike,
    axis: PerAxis | None = None,
    keepdims: bool | None = None,
    reduction_axes: PerAxis | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """The dense sum over the dimensions `axis` (default: all).

    Args:
        keepdims: whether reduced dimensions stay, with size 1.
        reduction_axes, keep_dims: deprecated names of `axis` and `keepdims`.
    """
    result: Tensor = _reduced(raw.SparseReduceSum, sp_input, axis, keepdims, reduction_axes, keep_dims)
    return result


def sparse_reduce_sum_sparse(
    sp_input: SparseTensorLike,
    axis: PerAxis | None = None,
    keepdims: bool | None = None,
    reduction_axes: PerAxis | None = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Like `sparse_reduce_sum`, with a sparse result."""
    return SparseTensor(*_reduced(raw.SparseReduceSumSparse, sp_input, axis, keepdims, reduction_axes, keep_dims))


def sparse_reduce_max(
    sp_input: SparseTensorLike,
    axis: PerAxis | None = None,
    keepdims: bool | None = None,
    reduction_axes: PerAxis | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """The dense maximum of the stored elements over the dimensions `axis` (default: all); 0 where there are none."""
    result: Tensor = _reduced(raw.SparseReduceMax, sp_input, axis, keepdims, reduction_axes, keep_dims)
    return result


def sparse_reduce_max_sparse(
    sp_input: SparseTensorLike,
    axis: PerAxis | None = None,
    keepdims: bool | None = None,
    reduction_axes: PerAxis | None = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Like `sparse_reduce_max`, with a sparse result."""
    return SparseTensor(*_reduced(raw.SparseReduceMaxSparse, sp_input, axis, keepdims, reduction_axes, keep_dims))


def _reduced(
    op: OpFunction,
    sp_input: SparseTensorLike,
    axis: PerAxis | None,
    keepdims: bool | None,
    reduction_axes: PerAxis | None,
    keep_dims: bool | None,
) -> Any:
    value = as_sparse_tensor(sp_input)
    axes = one_of("axis", axis, "reduction_axes", reduction_axes)
    keep = one_of("keepdims", keepdims, "keep_dims", keep_dims)
    if axes is None:
        rank = value.dense_shape.shape.as_list()[0]
        axes = raw.Range(0, raw.Size(value.dense_shape), 1) if rank is None else np.arange(rank, dtype=np.int32)
    return op(*parts_of(value), axes, keep_dims=bool(keep))
