"""`tf.data.experimental.Optional`: an element, or none (WP4.5)."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.data import nest
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.data.structure import (
    Component,
    component_makers,
    components_of,
    components_of_specs,
    flat_attrs,
    values_from,
)
from anabranch.graph.building import apply_op
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Optional:
    """A value that may be missing; `value_structure` describes it."""

    def __init__(self, variant_tensor: Tensor, structure: Structure) -> None:
        self._variant_tensor = variant_tensor
        self._structure = structure

    def has_value(self, name: str | None = None) -> Tensor:
        """A boolean scalar: whether there is a value."""
        made: Tensor = raw.OptionalHasValue(self._variant_tensor, name=name)
        return made

    def get_value(self, name: str | None = None) -> Structure:
        """The value.

        Raises (in the step):
            InvalidArgumentError: there is none.
        """
        bound = {"optional": self._variant_tensor, **flat_attrs(self._structure)}
        return values_from(self._structure, apply_op(op_def_of("OptionalGetValue"), bound, name).outputs)

    @property
    def value_structure(self) -> Structure:
        """The structure of the value's component types."""
        return self._structure

    @staticmethod
    def from_value(value: Structure) -> Optional:
        """An optional that holds a structure of tensors."""
        structure, flat = components_of(value)
        return Optional(apply_op(op_def_of("OptionalFromValue"), {"components": flat}).outputs[0], structure)

    @staticmethod
    def none_from_structure(value_structure: Structure) -> Optional:
        """An optional without a value.

        Args:
            value_structure: what `value_structure` of another one tells; or a structure of specs (`tf.TensorSpec`).
        """
        return Optional(raw.OptionalNone(), components_of_specs(value_structure))


def get_next_as_optional(iterator: Iterator) -> Optional:
    """The iterator's next element; at the end an optional without a value instead of an error."""
    structure = iterator._structure
    return Optional(raw.IteratorGetNextAsOptional(iterator._iterator_resource, **flat_attrs(structure)), structure)


class OptionalComponent(Component):
    """An optional as a component of an element."""

    def __init__(self, value: Structure) -> None:
        self.value = value

    @property
    def flat_type(self) -> Any:
        return dtypes.variant

    @property
    def flat_shape(self) -> TensorShape:
        return TensorShape([])

    def from_tensor(self, tensor: Tensor) -> Optional:
        return Optional(tensor, self.value)

    @property
    def classes(self) -> Any:
        return Optional

    @property
    def types(self) -> Any:
        return dtypes.variant

    @property
    def shapes(self) -> Any:
        return TensorShape([])

    def batched(self, size: int | None) -> Component:
        raise NotImplementedError("optionals cannot be batched")

    def unbatched(self) -> Component:
        raise NotImplementedError("optionals have no rows")

    def is_compatible_with(self, other: Component) -> bool:
        if not isinstance(other, OptionalComponent):
            return False
        pairs = zip(nest.flatten(self.value), nest.flatten(other.value), strict=True)
        return all(a.is_compatible_with(b) for a, b in pairs)

    def most_specific(self, other: Component) -> Component:
        return self


def _component_of_optional(value: object) -> tuple[Component, Tensor] | None:
    return (OptionalComponent(value._structure), value._variant_tensor) if isinstance(value, Optional) else None


component_makers.append(_component_of_optional)
