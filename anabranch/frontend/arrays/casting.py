"""Conversions between dtypes."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, overload

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops.arithmetic import math as arithmetic

#: what some functions take and give back beside tensors
_Sparse = TypeVar("_Sparse", SparseTensor, IndexedSlices)


@overload
def cast(x: _Sparse, dtype: DTypeLike, name: str | None = ...) -> _Sparse: ...
@overload
def cast(x: TensorLike, dtype: DTypeLike, name: str | None = ...) -> Tensor: ...
@dispatched
def cast(x: TensorLike, dtype: DTypeLike, name: str | None = None) -> Tensor | SparseTensor | IndexedSlices:
    """The elements of a tensor, `SparseTensor` or `IndexedSlices`, of another dtype.

    Floating numbers are truncated where integers are asked for; of complex numbers the real part is kept where real
    numbers are asked for; `tf.bool` asks whether an element is not 0.

    Args:
        x: numbers or bool, of any shape.
        dtype: the wanted dtype, or its name.
        name: of the operation.

    Returns:
        What `x` is (a tensor, `SparseTensor` or `IndexedSlices`), with its shape, of dtype `dtype`.

    Raises:
        TypeError: `x` cannot be converted.

    Example:
        >>> sess.run(tf.cast([1.7, -1.7], tf.int32))
        array([ 1, -1], dtype=int32)
    """
    target = as_dtype(dtype).base_dtype
    if isinstance(x, Tensor) and x.dtype is target:
        return x
    with name_scope(name, "Cast", [x]) as scope:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, cast(x.values, target, scope), x.dense_shape)
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, target, scope), x.indices, x.dense_shape)
        tensor = convert_to_tensor(x, name="x")
        if tensor.dtype.base_dtype is target:
            return tensor
        result: Tensor | SparseTensor | IndexedSlices = arithmetic.Cast(tensor, DstT=target, name=scope)
        return result


@dispatched
def saturate_cast(value: TensorLike, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """Like `cast`, after clipping to the range of `dtype`, so that nothing overflows."""
    target = as_dtype(dtype).base_dtype
    with name_scope(name, "saturate_cast", [value]) as scope:
        tensor = convert_to_tensor(value, name="value")
        if tensor.dtype.min < target.min:
            tensor = arithmetic.Maximum(tensor, convert_to_tensor(_bound(target.min), tensor.dtype, name="min"))
        if tensor.dtype.max > target.max:
            tensor = arithmetic.Minimum(tensor, convert_to_tensor(_bound(target.max), tensor.dtype, name="max"))
        return cast(tensor, target, scope)


def _bound(value: TensorLike) -> Any:
    return int(value) if isinstance(value, int) else float(value)


class _To(Protocol):
    """A conversion to one dtype."""

    @overload
    def __call__(self, x: _Sparse, name: str = ...) -> _Sparse: ...
    @overload
    def __call__(self, x: TensorLike, name: str = ...) -> Tensor: ...


def _to(dtype: DType, public: str, default: str) -> _To:
    def function(x: TensorLike, name: str = default) -> Tensor | SparseTensor | IndexedSlices:
        result: Tensor | SparseTensor | IndexedSlices = cast(x, dtype, name)
        return result

    function.__name__ = function.__qualname__ = public
    function.__doc__ = f"""`cast` to {dtype.name}.

    Args:
        x: a tensor of any shape, a `SparseTensor`, or an `IndexedSlices`; numbers or bool.
        name: of the operation.

    Returns:
        What `x` is, with its shape, of dtype {dtype.name}.

    Raises:
        TypeError: `x` cannot be converted.

    Example:
        >>> tf.{public}([True, False]).dtype
        tf.{dtype.name}
    """
    overloaded: Any = function
    return overloaded  # type: ignore[no-any-return]


to_float = _to(dtypes.float32, "to_float", "ToFloat")
to_double = _to(dtypes.float64, "to_double", "ToDouble")
to_int32 = _to(dtypes.int32, "to_int32", "ToInt32")
to_int64 = _to(dtypes.int64, "to_int64", "ToInt64")
to_bfloat16 = _to(dtypes.bfloat16, "to_bfloat16", "ToBFloat16")
to_complex64 = _to(dtypes.complex64, "to_complex64", "ToComplex64")
to_complex128 = _to(dtypes.complex128, "to_complex128", "ToComplex128")
