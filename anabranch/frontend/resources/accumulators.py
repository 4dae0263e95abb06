"""Accumulators of gradients as users see them  (§4.4)."""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, int64
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class ConditionalAccumulatorBase:
    """Sums gradients of one time step; gradients of earlier steps are dropped. Use a subclass.

    Args:
        dtype, shape: of a gradient.
        accumulator_ref: the handle.
    """

    def __init__(self, dtype: DTypeLike, shape: ShapeLike, accumulator_ref: Tensor) -> None:
        self._dtype = as_dtype(dtype)
        self._shape = TensorShape(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.op.name.split("/")[-1]

    @property
    def accumulator_ref(self) -> Tensor:
        """The handle."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the accumulator."""
        return self._accumulator_ref.op.name

    @property
    def dtype(self) -> DType:
        """The dtype of the gradients."""
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """How many gradients make up the sum, an int32."""
        name = f"{self._name}_NumAccumulated" if name is None else name
        result: Tensor = raw.AccumulatorNumAccumulated(self._accumulator_ref, name=name)
        return result

    def set_global_step(self, new_global_step: TensorLike, name: str | None = None) -> Operation:
        """An operation that sets the time step of the accumulator."""
        step = _as_int64(convert_to_tensor(new_global_step))
        result: Operation = raw.AccumulatorSetGlobalStep(self._accumulator_ref, step, name=name)
        return result


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Sums dense gradients.

    Args:
        dtype: of a gradient.
        shape: of a gradient; may be partial.
        shared_name: of the accumulator in the task.
        name: of the operation.
        reduction_type: "MEAN" or "SUM": what `take_grad` gives.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        shape: ShapeLike | None = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = raw.ConditionalAccumulator(
            dtype=dtype,
            shape=TensorShape(shape),
            shared_name=shared_name or "",
            reduction_type=reduction_type,
            name=name,
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: TensorLike, local_step: TensorLike = 0, name: str | None = None) -> Operation:
        """An operation that adds a gradient, unless `local_step` is earlier than the accumulator's time step.

        Raises:
            ValueError: the shape does not fit.
        """
        gradient = convert_to_tensor(grad, self._dtype)
        gradient.shape.assert_is_compatible_with(self._shape)
        step = _as_int64(convert_to_tensor(local_step))
        result: Operation = raw.AccumulatorApplyGradient(self._accumulator_ref, step, gradient, name=name)
        return result

    def take_grad(self, num_required: TensorLike, name: str | None = None) -> Tensor:
        """The average (or sum); waits until `num_required` gradients have come. Advances the time step by one.

        When it runs: `InvalidArgumentError` if `num_required` is not positive.
        """
        result: Tensor = raw.AccumulatorTakeGradient(self._accumulator_ref, num_required, dtype=self._dtype, name=name)
        result.set_shape(self._shape)
        return result


class SparseGradient(NamedTuple):
    """A sparse gradient: the rows, their values, and the dense shape."""

    indices: Tensor
    values: Tensor
    shape: Tensor


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Sums sparse gradients: `IndexedSlices`, or their parts.

    Args:
        dtype: of the values.
        shape: of a gradient as a dense tensor; may be partial.
        shared_name, name, reduction_type: as for `ConditionalAccumulator`. The mean of a row is over the gradients that
            touch it.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        shape: ShapeLike | None = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = raw.SparseConditionalAccumulator(
            dtype=dtype,
            shape=TensorShape(shape),
            shared_name=shared_name or "",
            reduction_type=reduction_type,
            name=name,
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: TensorLike = 0, name: str | None = None
    ) -> Operation:
        """`apply_grad` of the parts of an `IndexedSlices`."""
        return self.apply_grad(
            grad_indices=grad.indices,
            grad_values=grad.values,
            grad_shape=grad.dense_shape,
            local_step=local_step,
            name=name,
        )

    def apply_grad(
        self,
        grad_indices: TensorLike,
        grad_values: TensorLike,
        grad_shape: TensorLike | None = None,
        local_step: TensorLike = 0,
        name: str | None = None,
    ) -> Operation:
        """An operation that adds a gradient, unless `local_step` is earlier than the accumulator's time step.

        Args:
            grad_indices: [n], the rows that it touches.
            grad_values: [n, ...].
            grad_shape: of the gradient as a dense tensor, if it is known.

        When it runs: `InvalidArgumentError` if the parts do not fit.
        """
        indices = convert_to_tensor(grad_indices)
        values = convert_to_tensor(grad_values, self._dtype)
        step = _as_int64(convert_to_tensor(local_step))
        shape: Any = [] if grad_shape is None else convert_to_tensor(grad_shape)
        result: Operation = raw.SparseAccumulatorApplyGradient(
            self._accumulator_ref,
            step,
            raw.Cast(indices, DstT=int64) if indices.dtype is not int64 else indices,
            values,
            _as_int64(shape),
            has_known_shape=grad_shape is not None,
            name=name,
        )
        return result

    def take_grad(self, num_required: TensorLike, name: str | None = None) -> SparseGradient:
        """The average (or sum): a named tuple of `indices`, `values`, `shape`; otherwise as a dense accumulator's."""
        taken = raw.SparseAccumulatorTakeGradient(self._accumulator_ref, num_required, dtype=self._dtype, name=name)
        return SparseGradient(*taken)

    def take_indexed_slices_grad(self, num_required: TensorLike, name: str | None = None) -> IndexedSlices:
        """`take_grad` as an `IndexedSlices`."""
        taken = self.take_grad(num_required, name)
        return IndexedSlices(taken.values, taken.indices, taken.shape)


def _as_int64(value: TensorLike) -> Any:
    if isinstance(value, Tensor) and value.dtype is not int64:
        return raw.Cast(value, DstT=int64)
    return value
