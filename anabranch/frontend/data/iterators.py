"""Iterators over datasets: one-shot, initializable, and feedable by a string handle (WP4.5)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.nest import Structure
from anabranch.core.trackables import Trackable
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest, structure as structures
from anabranch.frontend.data.functions import copied_by_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

if TYPE_CHECKING:
    from anabranch.frontend.data.datasets import Dataset

_MANY_CALLS = 32


class Iterator(Trackable):
    """A place in a dataset. It lives with the variables of a task; each step that fetches `get_next` moves it.

    Args:
        iterator_resource: its handle.
        initializer: the operation that moves it before the first element; None if there is none.
        output_types, output_shapes, output_classes: structures that describe the elements.
    """

    def __init__(
        self,
        iterator_resource: Tensor,
        initializer: Operation | None,
        output_types: Structure,
        output_shapes: Structure,
        output_classes: Structure,
    ) -> None:
        self._iterator_resource = iterator_resource
        self._initializer = initializer
        self._structure = structures.from_legacy(output_types, output_shapes, output_classes)
        self._string_handle = raw.IteratorToStringHandle(iterator_resource)
        self._get_next_calls = 0
        get_default_graph().add_to_collection("iterators", iterator_resource)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """Its position."""
        return {"ITERATOR": self}

    @classmethod
    def _of(cls, resource: Tensor, initializer: Operation | None, structure: Structure) -> Iterator:
        made = cls(resource, initializer, dtypes.float32, None, None)
        made._structure = structure
        return made

    @staticmethod
    def from_structure(
        output_types: Structure,
        output_shapes: Structure | None = None,
        shared_name: str | None = None,
        output_classes: Structure | None = None,
    ) -> Iterator:
        """An iterator without a dataset, for datasets whose elements have this structure; see `make_initializer`.

        Args:
            output_types: structure of dtypes.
            output_shapes: structure of shapes; default: unknown ones.
            shared_name: iterators of one name are one, across the sessions of a task.
            output_classes: structure of classes (`Tensor`, `SparseTensor`); default: tensors.
        """
        structure = structures.from_legacy(output_types, output_shapes, output_classes)
        resource = raw.IteratorV2(
            container="", shared_name=shared_name or _unique_name(), **structures.flat_attrs(structure)
        )
        return Iterator._of(resource, None, structure)

    @staticmethod
    def from_string_handle(
        string_handle: TensorLike,
        output_types: Structure,
        output_shapes: Structure | None = None,
        output_classes: Structure | None = None,
    ) -> Iterator:
        """The iterator that a string tensor names: what a session returned for another one's `string_handle()`."""
        structure = structures.from_legacy(output_types, output_shapes, output_classes)
        handle = convert_to_tensor(string_handle, dtypes.string)
        resource = raw.IteratorFromStringHandleV2(handle, **structures.flat_attrs(structure))
        return Iterator._of(resource, None, structure)

    @property
    def initializer(self) -> Operation:
        """The operation that moves it before the first element.

        Raises:
            ValueError: it has none: a one-shot iterator needs none, others are given a dataset by `make_initializer`.
        """
        if self._initializer is None:
            raise ValueError(
                "This iterator has no initializer: a one-shot iterator needs none; call make_initializer(dataset) for "
                "one that was made from a structure"
            )
        made: Operation = self._initializer
        return made

    def make_initializer(self, dataset: Dataset, name: str | None = None) -> Operation:
        """An operation that moves it before the first element of a dataset.

        Raises:
            TypeError: the dataset's elements have other types or shapes.
            ValueError: they have another structure.
        """
        try:
            nest.assert_same_structure(self._structure, dataset._structure)
        except TypeError as error:
            raise ValueError(f"The dataset's elements have another structure than the iterator's: {error}") from None
        if not structures.are_compatible(self._structure, dataset._structure):
            raise TypeError(
                f"Expected output types {self.output_types!r}, shapes {self.output_shapes!r} and classes "
                f"{self.output_classes!r} but got dataset with {structures.types_of(dataset._structure)!r}, "
                f"{structures.shapes_of(dataset._structure)!r} and {structures.classes_of(dataset._structure)!r}."
            )
        with get_default_graph().name_scope(name or "make_initializer") as scope:
            made: Operation = raw.MakeIterator(dataset._walked(), self._iterator_resource, name=scope)
        return made

    def get_next(self, name: str | None = None) -> Structure:
        """The next element, in the structure of the dataset's elements. Call it once, and fetch it often.

        Args:
            name: of the operation.

        Returns:
            A tensor of the element's shape, or a structure of tensors, as the dataset's elements are.

        Raises (in the step):
            OutOfRangeError: there is none.
            FailedPreconditionError: the iterator was not initialised.

        Example:
            >>> iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4])))
            >>> x, y = iterator.get_next()
            >>> sess.run([x, y]), sess.run([x, y])
            ([np.int32(1), np.int32(3)], [np.int32(2), np.int32(4)])
        """
        self._get_next_calls += 1
        if self._get_next_calls > _MANY_CALLS:
            warnings.warn(
                "Iterator.get_next() was called very often: each call adds operations to the graph. Call it once and "
                "fetch its result in each step",
                stacklevel=2,
            )
        results = raw.IteratorGetNext(self._iterator_resource, name=name, **structures.flat_attrs(self._structure))
        return structures.values_from(self._structure, _as_list(results))

    def string_handle(self, name: str | None = None) -> Tensor:
        """A string scalar whose value names this iterator, to be fed to `from_string_handle`'s."""
        handle: Tensor = self._string_handle
        if name is not None:
            handle = raw.IteratorToStringHandle(self._iterator_resource, name=name)
        return handle

    @property
    def output_classes(self) -> Structure:
        """The structure of classes of an element's components."""
        return structures.classes_of(self._structure)

    @property
    def output_shapes(self) -> Structure:
        """The structure of shapes."""
        return structures.shapes_of(self._structure)

    @property
    def output_types(self) -> Structure:
        """The structure of dtypes."""
        return structures.types_of(self._structure)

    @property
    def _element_structure(self) -> Any:
        return self._structure


def _as_list(results: Structure) -> list[Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


def _unique_name() -> str:
    """No name: then the operation's own, which is unique in its graph."""
    return ""


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> Iterator:
    """An iterator over a dataset; run its `initializer` first."""
    resource = raw.IteratorV2(container="", shared_name=shared_name or "", **structures.flat_attrs(dataset._structure))
    initializer = raw.MakeIterator(dataset._walked(), resource)
    return Iterator._of(resource, initializer, dataset._structure)


def make_one_shot_iterator(dataset: Dataset) -> Iterator:
    """An iterator over a dataset, once; it needs no initializer.

    Raises:
        ValueError: the dataset depends on placeholders, variables or tables.
    """
    graph = get_default_graph()
    body = FunctionGraph("make_dataset", graph)
    try:
        body.outputs = [copied_by_value(dataset._walked(), body)]
    except ValueError as error:
        raise ValueError(
            "Failed to create a one-shot iterator. `Dataset.make_one_shot_iterator()` does not support datasets "
            "that capture stateful objects (variables, tables) or placeholders; use "
            f"make_initializable_iterator() for them. (Original error: {error})"
        ) from None
    factory = FuncAttr(graph.add_function(body.name, body))
    resource = raw.OneShotIterator(dataset_factory=factory, **structures.flat_attrs(dataset._structure))
    return Iterator._of(resource, None, dataset._structure)


def get_legacy_output_classes(dataset_or_iterator: Dataset | Iterator) -> Structure:
    """The structure of classes of an element's components."""
    return structures.classes_of(dataset_or_iterator._element_structure)


def get_legacy_output_shapes(dataset_or_iterator: Dataset | Iterator) -> Structure:
    """The structure of shapes of an element's components."""
    return structures.shapes_of(dataset_or_iterator._element_structure)


def get_legacy_output_types(dataset_or_iterator: Dataset | Iterator) -> Structure:
    """The structure of dtypes of an element's components."""
    return structures.types_of(dataset_or_iterator._element_structure)
