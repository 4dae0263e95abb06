"""The form that the optimizers of this package share: one update operation per variable."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from anabranch.core.dtypes import DType
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import Optimizer

_Class = TypeVar("_Class", bound=Optimizer)


class _ByKernel(Optimizer):
    """What `by_kernel` gives a class: the methods of `Optimizer` by one operation, dense or for rows."""

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        """Returns an operation that applies a dense gradient."""
        raise NotImplementedError

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        """Returns an operation that applies the rows `grad` at `indices`; equal indices count as their sum."""
        raise NotImplementedError

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._update_dense(grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._update_dense(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        return self._update_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        return self._update_rows(grad, handle, indices)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        # The sparse update operations sum equal indices themselves, on the device. An override of the method below is
        # promised that no index repeats.
        if type(self)._resource_apply_sparse is _ByKernel._resource_apply_sparse:
            return self._update_rows(grad, handle, indices)
        return Optimizer._resource_apply_sparse_duplicate_indices(self, grad, handle, indices)


_METHODS: Final = {name: method for name, method in vars(_ByKernel).items() if "_apply_" in name}


def by_kernel(optimizer: type[_Class]) -> type[_Class]:
    """A decorator of an optimizer whose update is one operation, which works on the variable and its slots in place.

    The class has `_update_dense` and `_update_rows`, and gets the methods of `Optimizer` that call them. It is derived
    from `Optimizer` itself, since programs compare a class's `__base__` with it. Subclasses that users write may
    override the methods of `Optimizer` and call those of their base class, in either form.
    """
    for name, method in _METHODS.items():
        setattr(optimizer, name, method)
    return optimizer


def cast_like(tensor: TensorLike, var: Variable) -> Tensor:
    """A hyperparameter in the dtype of the variable (or gradient) that it is used with."""
    dtype = var.dtype.base_dtype
    value = convert_to_tensor(tensor)
    if value.dtype.base_dtype is dtype:
        return value
    cast: Tensor = raw.Cast(value, DstT=dtype)
    return cast


class ConstantSlot:
    """The initializer of a slot that begins with one value everywhere."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __call__(self, shape: ShapeLike, dtype: DType) -> Tensor:
        filled: Tensor = raw.Fill(shape, convert_to_tensor(self._value, dtype))
        return filled
