"""Datasets as elements of datasets: windows, groups, and what functions of `flat_map` return (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.data import nest
from anabranch.frontend.data.functions import ElementBody
from anabranch.frontend.data.structure import Component, are_compatible, shapes_of, types_of
from anabranch.graph.operation import Tensor


class DatasetComponent(Component):
    """A dataset as a component of an element: `element` is the structure of its elements.

    Args:
        dataset_class: makes a dataset of its variant and `element`: `tf.data.Dataset`, which is built on this module.
        element: what an element of the inner dataset is.
        shape: of the variant: a batch of datasets is a vector of variants; default: a scalar.
    """

    def __init__(
        self, dataset_class: Callable[[Tensor, Structure], Any], element: Structure, shape: TensorShape | None = None
    ) -> None:
        self._dataset_class = dataset_class
        self.element = element
        self._shape = TensorShape([]) if shape is None else shape

    @property
    def flat_type(self) -> Any:
        return dtypes.variant

    @property
    def flat_shape(self) -> TensorShape:
        return self._shape

    def from_tensor(self, tensor: Tensor) -> Any:
        return self._dataset_class(tensor, self.element)

    @property
    def classes(self) -> Any:
        return self._dataset_class

    @property
    def types(self) -> Any:
        return types_of(self.element)

    @property
    def shapes(self) -> Any:
        return shapes_of(self.element)

    def batched(self, size: int | None) -> Component:
        return DatasetComponent(self._dataset_class, self.element, TensorShape([size]).concatenate(self._shape))

    def unbatched(self) -> Component:
        return DatasetComponent(self._dataset_class, self.element, self._shape[1:])

    def is_compatible_with(self, other: Component) -> bool:
        return isinstance(other, DatasetComponent) and are_compatible(self.element, other.element)

    def most_specific(self, other: Component) -> Component:
        assert isinstance(other, DatasetComponent)
        element = nest.map_structure(lambda a, b: a.most_specific(b), self.element, other.element)
        return DatasetComponent(self._dataset_class, element, self._shape)


def body_of_datasets(function: Callable[..., Any], what: str, structure: Structure) -> ElementBody:
    """A function graph that makes a dataset of each element, as `flat_map` and `interleave` need it.

    Raises:
        TypeError: it returns something else.
    """
    body = ElementBody(function, what, structure)
    if not isinstance(body.structure, DatasetComponent):
        raise TypeError(f"the function passed to {what} must return a `Dataset` object, got {body.structure!r}")
    return body
