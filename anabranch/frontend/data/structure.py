"""What is known of a dataset's elements: one component type per leaf of their structure.

An element is a structure (tuples, dicts) of tensors, sparse tensors, datasets or optionals. In the graph each leaf is
one tensor: a tensor as it is; the others as variants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.data import nest
from anabranch.frontend.specs import SparseTensorSpec, TensorSpec, TypeSpec
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: makes a component of a value, for values that other files know: (value) -> (component, tensor) or None
component_makers: list[Callable[[Any], tuple[Component, Tensor] | None]] = []
#: the same for values whose rows are to be the elements
slice_makers: list[Callable[[Any], tuple[Component, Tensor] | None]] = []
#: makes a component of a spec
spec_components: dict[type, Callable[[Any], Component]] = {}
#: makes a component from what `output_classes`, `output_types`, `output_shapes` say
component_classes: dict[type, Callable[[Any, Any], Component]] = {}


class Component(ABC):
    """The type of one leaf."""

    @property
    @abstractmethod
    def flat_type(self) -> DType:
        """The dtype of the tensor that stands for it."""

    @property
    @abstractmethod
    def flat_shape(self) -> TensorShape:
        """The static shape of that tensor."""

    @abstractmethod
    def from_tensor(self, tensor: Tensor) -> Any:
        """The user's value of the tensor that stands for it."""

    @property
    @abstractmethod
    def classes(self) -> Any:
        """The same as in `output_classes`."""

    @property
    @abstractmethod
    def types(self) -> Any:
        """The same as in `output_types`."""

    @property
    @abstractmethod
    def shapes(self) -> Any:
        """The same as in `output_shapes`."""

    @abstractmethod
    def batched(self, size: int | None) -> Component:
        """The type of several of them stacked."""

    @abstractmethod
    def unbatched(self) -> Component:
        """The type of a row."""

    @abstractmethod
    def is_compatible_with(self, other: Component) -> bool:
        """Whether a value of the other type may be of this one."""

    @abstractmethod
    def most_specific(self, other: Component) -> Component:
        """What holds of values of either type."""


def _joined(a: TensorShape, b: TensorShape) -> TensorShape:
    """What holds of a shape that is one of two."""
    one, two = a.dims_tuple, b.dims_tuple
    if one is None or two is None or len(one) != len(two):
        return TensorShape(None)
    return TensorShape([x if x == y else None for x, y in zip(one, two, strict=True)])


@dataclass(frozen=True, eq=False)
class _Shaped(Component):
    """A component with a dtype and a shape."""

    dtype: DType
    shape: TensorShape

    @property
    def types(self) -> DType:
        return self.dtype

    @property
    def shapes(self) -> TensorShape:
        return self.shape

    def batched(self, size: int | None) -> Component:
        return type(self)(self.dtype, TensorShape([size]).concatenate(self.shape))

    def unbatched(self) -> Component:
        return type(self)(self.dtype, TensorShape(None) if self.shape.ndims is None else self.shape[1:])

    def is_compatible_with(self, other: Component) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, _Shaped)
            and other.dtype is self.dtype
            and self.shape.is_compatible_with(other.shape)
        )

    def most_specific(self, other: Component) -> Component:
        assert isinstance(other, _Shaped)
        return type(self)(self.dtype, _joined(self.shape, other.shape))


class TensorComponent(_Shaped):
    """A tensor."""

    @property
    def flat_type(self) -> DType:
        return self.dtype

    @property
    def flat_shape(self) -> TensorShape:
        return self.shape

    def from_tensor(self, tensor: Tensor) -> Any:
        tensor.set_shape(self.shape)
        return tensor

    @property
    def classes(self) -> type:
        return Tensor


class SparseComponent(_Shaped):
    """A sparse tensor; `shape` is its dense shape."""

    @property
    def flat_type(self) -> DType:
        return dtypes.variant

    @property
    def flat_shape(self) -> TensorShape:
        return TensorShape(None)

    def from_tensor(self, tensor: Tensor) -> SparseTensor:
        indices, values, dense_shape = raw.DeserializeSparse(tensor, dtype=self.dtype)
        rank = self.shape.ndims
        indices.set_shape([None, rank])
        dense_shape.set_shape([rank])
        return SparseTensor(indices, values, dense_shape)

    @property
    def classes(self) -> type:
        return SparseTensor


component_classes[Tensor] = TensorComponent
component_classes[SparseTensor] = SparseComponent
spec_components[TensorSpec] = lambda spec: TensorComponent(spec.dtype, spec.shape)
spec_components[SparseTensorSpec] = lambda spec: SparseComponent(spec.dtype, spec.shape)


def components_of_specs(structure: Structure) -> Structure:
    """The structure of component types that a structure of specs stands for; component types stay.

    Raises:
        TypeError: a leaf is nothing that an element can hold.
    """
    return nest.map_structure(_component_of_spec, structure)


def _component_of_spec(spec: Structure) -> Component:
    if isinstance(spec, Component):
        return spec
    if type(spec) in spec_components:
        return spec_components[type(spec)](spec)
    raise TypeError(f"an element of a dataset cannot be described by {spec!r}; use a tf.TypeSpec such as tf.TensorSpec")


# ---------------------------------------------------------------------- values
def component_of(value: Structure) -> tuple[Component, Tensor]:
    """The type of a leaf and the tensor that stands for it.

    Raises:
        TypeError, ValueError: it is nothing that an element can hold.
    """
    for make in component_makers:
        made = make(value)
        if made is not None:
            return made
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if isinstance(value, SparseTensor):
        component = SparseComponent(value.dtype, value.get_shape())
        parts = (value.indices, value.values, value.dense_shape)
        return component, raw.SerializeSparse(*parts, out_type=dtypes.variant)
    tensor = convert_to_tensor(value)
    return TensorComponent(tensor.dtype.base_dtype, tensor.shape), tensor


def sliced_component_of(value: Structure) -> tuple[Component, Tensor]:
    """Like `component_of`, for a value whose rows are to be the elements: the component's is the whole's type."""
    for make in slice_makers:
        made = make(value)
        if made is not None:
            return made
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        return component_of(value)
    component = SparseComponent(value.dtype, value.get_shape())
    return component, raw.SerializeManySparse(value.indices, value.values, value.dense_shape, out_type=dtypes.variant)


def components_of(
    value: Structure, of: Callable[[Any], tuple[Component, Tensor]] = component_of
) -> tuple[Any, list[Tensor]]:
    """The structure of component types of a structure of values, and the tensors in flat order."""
    pairs = [of(leaf) for leaf in nest.flatten(value)]
    return nest.pack_sequence_as(value, [component for component, _ in pairs]), [tensor for _, tensor in pairs]


def values_from(structure: Structure, tensors: list[Tensor]) -> Any:
    """The user's structure of values."""
    components = nest.flatten(structure)
    return nest.pack_sequence_as(structure, [c.from_tensor(t) for c, t in zip(components, tensors, strict=True)])


def from_legacy(
    output_types: Structure, output_shapes: Structure | None = None, output_classes: Structure | None = None
) -> Any:
    """A structure of component types from structures of dtypes, shapes (default: unknown) and classes (tensors)."""
    types = nest.map_structure(as_dtype, output_types)
    if output_shapes is None:
        output_shapes = nest.map_structure(lambda _: TensorShape(None), types)
    if output_classes is None:
        output_classes = nest.map_structure(lambda _: Tensor, types)
    try:
        shapes = nest.map_structure_up_to(types, TensorShape, output_shapes)
        classes = nest.map_structure_up_to(types, lambda c: c, output_classes)
    except ValueError as error:
        raise TypeError(f"output_types, output_shapes and output_classes are nested differently: {error}") from None

    def make(dtype: DType, shape: TensorShape, cls: type) -> Component:
        if isinstance(cls, TypeSpec):
            return _component_of_spec(cls)
        return component_classes[cls](dtype, shape) if isinstance(cls, type) else cls

    return nest.map_structure(make, types, shapes, classes)


def flat_attrs(structure: Structure) -> dict[str, Any]:
    """The attributes `output_types` and `output_shapes` of an operation for such elements."""
    components = nest.flatten(structure)
    return {"output_types": [c.flat_type for c in components], "output_shapes": [c.flat_shape for c in components]}


def classes_of(structure: Structure) -> Any:
    """The same as `output_classes`."""
    return nest.map_structure(lambda c: c.classes, structure)


def types_of(structure: Structure) -> Any:
    """The same as `output_types`."""
    return nest.map_structure(lambda c: c.types, structure)


def shapes_of(structure: Structure) -> Any:
    """The same as `output_shapes`."""
    return nest.map_structure(lambda c: c.shapes, structure)


def are_compatible(one: Structure, other: Structure) -> bool:
    """Whether values of the second structure can stand where the first is expected."""
    try:
        nest.assert_same_structure(one, other)
    except (TypeError, ValueError):
        return False
    return all(a.is_compatible_with(b) for a, b in zip(nest.flatten(one), nest.flatten(other), strict=True))


def rows_of(structure: Structure) -> Structure:
    """The structure of the rows of an element; the components have as many rows each.

    Raises:
        ValueError: a component is a scalar, or they differ in their number of rows.
    """
    rows = TensorShape([None])
    for component in nest.flatten(structure):
        shape = component.shapes if isinstance(component.shapes, TensorShape) else component.flat_shape
        if shape.ndims == 0:
            raise ValueError("Cannot unbatch an input with scalar components.")
        rows = rows.merge_with(TensorShape([None]) if shape.ndims is None else shape[:1])
    return nest.map_structure(lambda c: c.unbatched(), structure)


def joint_structure(one: Structure, other: Structure) -> Structure:
    """The structure that fits the elements of two datasets, one of which follows the other.

    Raises:
        TypeError: the types, or the structures, differ.
    """
    try:
        nest.assert_same_structure(one, other)
    except ValueError as error:
        raise TypeError(f"Two datasets to concatenate have different types, namely structures: {error}") from None
    for a, b in zip(nest.flatten(one), nest.flatten(other), strict=True):
        if type(a) is not type(b) or a.types != b.types:
            raise TypeError(
                f"Two datasets to concatenate have different types {types_of(one)} and {types_of(other)}, or classes"
            )
    return nest.map_structure(lambda a, b: a.most_specific(b), one, other)
