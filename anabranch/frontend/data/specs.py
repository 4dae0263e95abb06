"""The specs of datasets and optionals, and specs for the types of a dataset's components."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn
from anabranch.frontend.control_flow.tensor_array_spec import TensorArraySpec
from anabranch.frontend.data import nest
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.data.nested import DatasetComponent
from anabranch.frontend.data.optional import Optional, OptionalComponent
from anabranch.frontend.data.ragged import RaggedComponent
from anabranch.frontend.data.structure import SparseComponent, TensorComponent, components_of_specs, spec_components
from anabranch.frontend.ragged.specs import RaggedTensorSpec
from anabranch.frontend.specs import SparseTensorSpec, TensorSpec, TypeSpec, register_spec_maker
from anabranch.graph.operation import Tensor


class DatasetSpec(TypeSpec):
    """What a `tf.data.Dataset` must be.

    Args:
        element_spec: the structure of the specs of an element.
        dataset_shape: of the variant: a batch of datasets is a vector; default: one dataset.
    """

    def __init__(self, element_spec: Structure, dataset_shape: ShapeLike = ()) -> None:
        self._element_spec = element_spec
        self._dataset_shape = TensorShape(dataset_shape)

    @staticmethod
    def from_value(value: Dataset) -> DatasetSpec:
        """The spec that a dataset meets."""
        return DatasetSpec(get_structure(value))

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return Dataset

    @property
    def element_spec(self) -> Structure:
        """The structure of the specs of an element."""
        return self._element_spec

    @property
    def dataset_shape(self) -> TensorShape:
        """The shape of the variant."""
        return self._dataset_shape

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the class."""
        return self._element_spec, self._dataset_shape


class OptionalSpec(TypeSpec):
    """What a `tf.data.experimental.Optional` must be.

    Args:
        value_structure: the structure of the specs of its value.
    """

    def __init__(self, value_structure: Structure) -> None:
        self._value_structure = value_structure

    @staticmethod
    def from_value(value: Optional) -> OptionalSpec:
        """The spec that an optional meets."""
        return OptionalSpec(specs_of(value.value_structure))

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return Optional

    @property
    def value_structure(self) -> Structure:
        """The structure of the specs of the value."""
        return self._value_structure

    def parts(self) -> tuple[Any, ...]:
        """The argument of the class."""
        return (self._value_structure,)


register_spec_maker(Dataset, DatasetSpec.from_value)
register_spec_maker(Optional, OptionalSpec.from_value)
spec_components[DatasetSpec] = lambda spec: DatasetComponent(
    Dataset, components_of_specs(spec.element_spec), spec.dataset_shape
)
spec_components[OptionalSpec] = lambda spec: OptionalComponent(components_of_specs(spec.value_structure))


# ---------------------------------------------------------------------- and back
def specs_of(structure: Structure) -> Structure:
    """The structure of the specs of component types."""
    return nest.map_structure(_spec_of, structure)


def _spec_of(component: PassedOn) -> TypeSpec:
    if isinstance(component, TensorComponent):
        return TensorSpec(component.shape, component.dtype)
    if isinstance(component, SparseComponent):
        return SparseTensorSpec(component.shape, component.dtype)
    if isinstance(component, RaggedComponent):
        return RaggedTensorSpec(component.shape, component.dtype, component.ragged_rank, component.row_splits_dtype)
    if isinstance(component, DatasetComponent):
        return DatasetSpec(specs_of(component.element), component.flat_shape)
    if isinstance(component, OptionalComponent):
        return OptionalSpec(specs_of(component.value))
    if isinstance(component, TypeSpec):
        return component
    raise TypeError(f"there is no spec for {component!r}")


def get_structure(dataset_or_iterator: Dataset | Iterator) -> Structure:
    """The structure of the specs of the elements.

    Raises:
        TypeError: it is neither a dataset nor an iterator.

    Example:
        >>> tf.data.experimental.get_structure(tf.data.Dataset.range(3))
        TensorSpec(shape=(), dtype=tf.int64, name=None)
    """
    if not isinstance(dataset_or_iterator, Dataset | Iterator):
        raise TypeError(
            f"`dataset_or_iterator` must be a Dataset or Iterator object, but got {type(dataset_or_iterator)}."
        )
    return specs_of(dataset_or_iterator._element_structure)


def from_variant(variant: Tensor, structure: Structure) -> Dataset:
    """The dataset for which a variant tensor stands.

    Args:
        structure: of the specs of its elements, as `get_structure` gives it.
    """
    return Dataset(variant, components_of_specs(structure))


# ---------------------------------------------------------------------- older names, which take the dtype first
def tensor_structure(dtype: DTypeLike, shape: ShapeLike) -> TensorSpec:
    """Deprecated: `tf.TensorSpec(shape, dtype)`."""
    return TensorSpec(shape, dtype)


def sparse_tensor_structure(dtype: DTypeLike, shape: ShapeLike) -> SparseTensorSpec:
    """Deprecated: `tf.SparseTensorSpec(shape, dtype)`."""
    return SparseTensorSpec(shape, dtype)


def ragged_tensor_structure(dtype: DTypeLike, shape: ShapeLike, ragged_rank: int) -> RaggedTensorSpec:
    """Deprecated: `tf.RaggedTensorSpec(shape, dtype, ragged_rank)`."""
    return RaggedTensorSpec(shape, dtype, ragged_rank)


def tensor_array_structure(
    dtype: DTypeLike, element_shape: ShapeLike, dynamic_size: bool, infer_shape: bool
) -> TensorArraySpec:
    """Deprecated: `tf.TensorArraySpec(element_shape, dtype, dynamic_size, infer_shape)`."""
    return TensorArraySpec(element_shape, dtype, dynamic_size, infer_shape)
