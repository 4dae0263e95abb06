"""The operators of `SparseTensor`: importing this module defines them, whichever names a program uses."""

from __future__ import annotations

from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.ops import raw


def _with_dense(op: OpFunction, x: SparseTensor, y: TensorLike) -> SparseTensor:
    dense = convert_to_tensor(y, x.dtype.base_dtype, name="y")
    return SparseTensor(x.indices, op(x.indices, x.values, x.dense_shape, dense), x.dense_shape)


def _multiply(self: SparseTensor, other: TensorLike) -> SparseTensor:
    """Elementwise, with a dense tensor that broadcasts to this one's shape."""
    return _with_dense(raw.SparseDenseCwiseMul, self, other)


def _divide(self: SparseTensor, other: TensorLike) -> SparseTensor:
    """Elementwise, by a dense tensor that broadcasts to this one's shape; integers are divided towards zero."""
    return _with_dense(raw.SparseDenseCwiseDiv, self, other)


def _true_divide(self: SparseTensor, other: TensorLike) -> SparseTensor:
    """Elementwise, by a dense tensor that broadcasts to this one's shape; integers become floating numbers first."""
    wide = _FLOAT_OF_INTEGER.get(self.dtype.base_dtype.name)
    if wide is None:
        return _divide(self, other)
    divisor = convert_to_tensor(other, self.dtype.base_dtype, name="y")
    dividend = SparseTensor(self.indices, raw.Cast(self.values, DstT=wide), self.dense_shape)
    return _divide(dividend, raw.Cast(divisor, DstT=wide))


#: as `tf.truediv`: small integers become float32, large ones float64
_FLOAT_OF_INTEGER: dict[str, str | DType] = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), "float32"),
    **dict.fromkeys(("int32", "int64", "uint32", "uint64"), "float64"),
}

for _name, _function in {"mul": _multiply, "div": _divide, "truediv": _true_divide}.items():
    setattr(SparseTensor, f"__{_name}__", _function)
