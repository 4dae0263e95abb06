"""The operators of `Tensor`: importing this module fills `Tensor.OPERATORS`.

A plain Python value or array takes the dtype of the tensor beside it, so that `1 + float_tensor` is floating, and
`1.0 + int_tensor` a `TypeError`.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.linalg import matmul
from anabranch.frontend.arithmetic.math import QUOTIENT_TYPES, abs
from anabranch.frontend.arrays.slicing import slice_helper
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import logic, math as arithmetic


def _operator(name: str, apply: Callable[[Any, Any, str], Any]) -> Callable[[Any, Any], Any]:
    """The operator `name` of two operands, at least one of them a tensor; `apply(x, y, operation name)`."""

    def operator(x: TensorLike, y: TensorLike) -> Any:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return apply(x, y, name)
        if isinstance(y, SparseTensor | SparseTensorValue):
            return _with_sparse(name, x, y)
        other = y if isinstance(x, Tensor) else x
        try:
            return apply(x, y, name)
        except TypeError:
            if not _is_plain(other):
                if _defines(type(other), _REFLECTED.get(name, f"r{name}") if other is y else name):
                    return NotImplemented  # the other operand's own operator may know what to do
                raise
            if other is x:
                raise
            # a value that does not fit the tensor's dtype is reported as a mismatch of two dtypes
            return apply(x, convert_to_tensor(y, name="y"), name)

    return operator


#: comparisons with their operands exchanged
_REFLECTED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _defines(cls: type, name: str) -> bool:
    """Whether a class has an operator of its own."""
    method = f"__{name}__"
    return getattr(cls, method, None) is not getattr(object, method, None)


def _is_plain(value: TensorLike) -> bool:
    return isinstance(value, numbers.Number | str | bytes | list | tuple | np.ndarray | np.generic | Tensor)


def _with_sparse(name: str, x: TensorLike, y: TensorLike) -> Any:
    """A dense times a sparse tensor; no other operator has a sparse tensor on its right."""
    if name != "mul":
        raise TypeError(f"the operator {name!r} is not defined for {x!r} and the sparse tensor {y!r}")
    return SparseTensor.from_value(y) * convert_to_tensor(x)


def _op(op: OpFunction) -> Callable[[Any, Any, str], Any]:
    return lambda x, y, name: op(x, y, name=name)


def _add(x: TensorLike, y: TensorLike, name: str) -> Any:
    dtype = x.dtype if isinstance(x, Tensor) else y.dtype
    op = arithmetic.Add if dtype.base_dtype is dtypes.string else arithmetic.AddV2
    return op(x, y, name=name)


def _converted(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """Both operands as tensors; a plain one takes the dtype of the other."""
    if isinstance(x, Tensor):
        return x, convert_to_tensor(y, None if is_tensor_like(y) else x.dtype.base_dtype, name="y")
    return convert_to_tensor(x, None if is_tensor_like(x) else y.dtype.base_dtype, name="x"), y


def _division(of_integers: Callable[[Any, Any, str], Any]) -> Callable[[Any, Any, str], Any]:
    def apply(x: TensorLike, y: TensorLike, name: str) -> Any:
        dtype = (x if isinstance(x, Tensor) else y).dtype.base_dtype
        if dtype.is_floating or dtype.is_complex:
            return arithmetic.RealDiv(x, y, name=name)
        return of_integers(x, y, name)

    return apply


def _true_quotient(x: TensorLike, y: TensorLike, name: str) -> Any:
    with get_default_graph().name_scope(name) as scope:
        a, b = _converted(x, y)
        wide = QUOTIENT_TYPES.get(a.dtype.base_dtype)
        if wide is None or a.dtype.base_dtype is not b.dtype.base_dtype:
            raise TypeError(f"x and y must have the same numeric dtype, got {a.dtype!r} and {b.dtype!r}; use tf.cast")
        return arithmetic.RealDiv(raw.Cast(a, DstT=wide), raw.Cast(b, DstT=wide), name=scope)


def _matmul(x: TensorLike, y: TensorLike, name: str) -> Any:
    return matmul(*_converted(x, y), name=name)


def _xor(x: TensorLike, y: TensorLike, name: str) -> Any:
    either, both = logic.LogicalOr(x, y), logic.LogicalAnd(x, y)
    return logic.LogicalAnd(either, logic.LogicalNot(both), name=name)


_BINARY: dict[str, Callable[[Any, Any, str], Any]] = {
    "add": _add,
    "sub": _op(arithmetic.Sub),
    "mul": _op(arithmetic.Mul),
    "truediv": _division(_true_quotient),
    "div": _division(_op(arithmetic.FloorDiv)),
    "floordiv": _op(arithmetic.FloorDiv),
    "mod": _op(arithmetic.FloorMod),
    "pow": _op(arithmetic.Pow),
    "matmul": _matmul,
    "and": _op(logic.LogicalAnd),
    "or": _op(logic.LogicalOr),
    "xor": _xor,
}
_COMPARISONS = {"lt": logic.Less, "le": logic.LessEqual, "gt": logic.Greater, "ge": logic.GreaterEqual}


def _comparison(op: OpFunction) -> Callable[[Any, Any, str], Any]:
    return lambda x, y, _: op(x, y)


Tensor.OPERATORS.update({name: _operator(name, apply) for name, apply in _BINARY.items()})
Tensor.OPERATORS.update({name: _operator(name, _comparison(op)) for name, op in _COMPARISONS.items()})
Tensor.OPERATORS.update({"neg": arithmetic.Neg, "abs": abs, "invert": logic.LogicalNot, "getitem": slice_helper})
