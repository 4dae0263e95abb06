"""Ragged tensors as components of a dataset's elements."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.data.structure import (
    Component,
    TensorComponent,
    component_makers,
    slice_makers,
    spec_components,
)
from anabranch.frontend.ragged.conversion import convert_to_ragged
from anabranch.frontend.ragged.specs import RaggedTensorSpec
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.ragged.values import RaggedTensorValue
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class RaggedComponent(Component):
    """A ragged tensor as a component of an element.

    Args:
        dtype: of its values.
        shape: its shape, with None for ragged dimensions.
        ragged_rank: of an element; 0 for a row of rows of values, which is a tensor.
        row_splits_dtype: int32 or int64.
    """

    def __init__(self, dtype: DType, shape: TensorShape, ragged_rank: int, row_splits_dtype: DType) -> None:
        self.dtype = dtype
        self.shape = shape
        self.ragged_rank = ragged_rank
        self.row_splits_dtype = row_splits_dtype

    @property
    def flat_type(self) -> DType:
        return dtypes.variant

    @property
    def flat_shape(self) -> TensorShape:
        return TensorShape(None)

    def from_tensor(self, tensor: Tensor) -> Any:
        rank = self.ragged_rank
        found = raw.RaggedTensorFromVariant(
            tensor,
            input_ragged_rank=-1,
            output_ragged_rank=rank,
            Tvalues=self.dtype,
            Tsplits=self.row_splits_dtype,
        )
        values = found.output_dense_values
        if rank == 0:
            values.set_shape(self.shape)
            return values
        if self.shape.ndims is not None:
            values.set_shape(TensorShape([None]).concatenate(self.shape[rank + 1 :]))
            rows = self.shape.as_list()[0]
            found.output_nested_splits[0].set_shape([None if rows is None else rows + 1])
        return RaggedTensor.from_nested_row_splits(values, found.output_nested_splits, validate=False)

    @property
    def classes(self) -> Any:
        """What `output_classes` says: the spec, which has what no class tells."""
        return RaggedTensorSpec(self.shape, self.dtype, self.ragged_rank, self.row_splits_dtype)

    @property
    def types(self) -> DType:
        return self.dtype

    @property
    def shapes(self) -> TensorShape:
        return self.shape

    def batched(self, size: int | None) -> Component:
        shape = TensorShape([size]).concatenate(self.shape)
        return RaggedComponent(self.dtype, shape, self.ragged_rank + 1, self.row_splits_dtype)

    def unbatched(self) -> Component:
        shape = TensorShape(None) if self.shape.ndims is None else self.shape[1:]
        # a tensor already: its rows are no longer packed
        if self.ragged_rank == 0:
            return TensorComponent(self.dtype, shape)
        return RaggedComponent(self.dtype, shape, self.ragged_rank - 1, self.row_splits_dtype)

    def is_compatible_with(self, other: Component) -> bool:
        return (
            isinstance(other, RaggedComponent)
            and (other.dtype, other.ragged_rank, other.row_splits_dtype)
            == (self.dtype, self.ragged_rank, self.row_splits_dtype)
            and self.shape.is_compatible_with(other.shape)
        )

    def most_specific(self, other: Component) -> Component:
        assert isinstance(other, RaggedComponent)
        shape = self.shape.most_specific_compatible_shape(other.shape)
        return RaggedComponent(self.dtype, shape, self.ragged_rank, self.row_splits_dtype)


def _component_of_spec(spec: RaggedTensorSpec) -> RaggedComponent:
    return RaggedComponent(spec.dtype, spec.shape, spec.ragged_rank, spec.row_splits_dtype)


def _component_of(value: Structure, rows: bool) -> tuple[Component, Tensor] | None:
    if not isinstance(value, RaggedTensor | RaggedTensorValue):
        return None
    ragged = convert_to_ragged(value)
    variant = raw.RaggedTensorToVariant(list(ragged.nested_row_splits), ragged.flat_values, batched_input=rows)
    return _component_of_spec(RaggedTensorSpec.from_value(ragged)), variant


component_makers.append(lambda value: _component_of(value, rows=False))
slice_makers.append(lambda value: _component_of(value, rows=True))
spec_components[RaggedTensorSpec] = _component_of_spec
