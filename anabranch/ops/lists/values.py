"""The value of a tensor list: what a variant tensor of the `TensorList` operations holds while a step runs.

The elements are tensors, or lists again: what an outer loop records of an inner one's records.

A list is *dense* where all its elements have one shape: one array with the elements along its first axis, so that it
can be part of a compiled program and be carried through its loops. Otherwise it is a Python list that only host kernels
see. A list into which nothing was written yet is dense without a shape: its elements stand for zeros.

The operation that makes a list declares the shape of its elements, as far as it is known. Lists made of it keep that,
and take no element of another shape; where two lists become one, as the results of branches and the iterations of a
loop do in a compiled program, what both declare is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ElementType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.core.values import TensorValue
from anabranch.graph.kernel_contexts import StepTracingContext

#: what an element of a Python list takes at least, in words: its place, an array of its own
_ELEMENT_WORDS = 16


@dataclass(frozen=True, slots=True)
class Declared:
    """What a list is declared with.

    Attributes:
        dims: the shape of its elements, as far as it is known.
        limit: how many elements it grows to; None: as many as are added.
        has_room: whether it is long enough for all that is written into it (`ops.control_flow.growing_lists`).
    """

    dims: tuple[int | None, ...] | None
    limit: int | None = None
    has_room: bool = False

    @classmethod
    def by(cls, stated: TensorShape | TensorValue, limit: int | None = None) -> Declared:
        """What an `element_shape` input declares."""
        return cls(stated_shape(stated).dims_tuple, limit)

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self.dims)


def common_declaration(a: Declared | None, b: Declared | None) -> Declared | None:
    """What two lists declare alike."""
    if a is None or b is None or a == b:
        return a if a == b else None
    dims = a.shape.most_specific_compatible_shape(b.shape).dims_tuple
    return Declared(dims, a.limit if a.limit == b.limit else None, a.has_room and b.has_room)


@jax.tree_util.register_pytree_node_class
class TensorList:
    """See the module docstring.

    Attributes:
        elements: array [length, ...]; None while nothing was written; or a Python list whose unwritten items are None.
        length: number of elements.
        dtype: NumPy dtype of the elements.
        declared: the shape that all elements were declared with; None where nobody declared one.
    """

    __slots__ = ("declared", "dtype", "elements", "length")

    def __init__(self, elements: Array, length: int, dtype: ElementType, declared: Declared | None = None) -> None:
        self.elements = elements
        self.length = length
        self.dtype = np.dtype(dtype)
        self.declared = declared

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, Any, Declared | None]]:
        """For JAX: the elements are data; length, dtype and declaration are structure."""
        return (self.elements,), (self.length, self.dtype, self.declared)

    @classmethod
    def tree_unflatten(cls, structure: tuple[int, Any, Declared | None], children: Sequence[Any]) -> TensorList:
        """The way back from `tree_flatten`."""
        return cls(children[0], *structure)

    # ------------------------------------------------------------------ questions
    @property
    def on_host(self) -> bool:
        """Whether this is a Python list."""
        return isinstance(self.elements, list)

    @property
    def element_shape(self) -> tuple[Any, ...] | None:
        """The shape of all elements; None while nothing was written, or where they may differ."""
        if self.elements is None or self.on_host:
            return None
        if isinstance(self.elements, TensorList):  # whose arrays have this list's axis before their own
            struct: Any = jax.ShapeDtypeStruct
            inner: Any = jax.tree.map(lambda t: struct(t.shape[1:], t.dtype), self.elements)
            return tuple(inner.shape[1:])
        return tuple(self.elements.shape[1:])

    @property
    def shape(self) -> Any:
        """What a compiled program that takes the list depends on, besides its values."""
        return ("list", self.length, self.element_shape, self.dtype.str, self.declared)

    @property
    def is_full(self) -> bool:
        """Whether no element may be added."""
        limit = None if self.declared is None else self.declared.limit
        return limit is not None and self.length >= limit

    def check_room(self) -> None:
        """Raises ValueError where no element may be added."""
        if self.is_full:
            raise ValueError(
                f"Tried to push item into a full list of {self.length} elements, which was declared with "
                f"max_num_elements = {self.declared.limit if self.declared else None}"
            )

    def of_type(self, ctx: OperationContext) -> TensorList:
        """The list itself.

        Raises:
            ValueError: it was declared with elements of another dtype than the operation has.
        """
        wanted = np.dtype(ctx.op.attrs["element_dtype"].as_numpy_dtype)
        if self.declared is not None and self.dtype != wanted:
            raise ValueError(f"Invalid data types; op elements {wanted} list elements {self.dtype}")
        return self

    def check_item(self, shape: Sequence[int], verb: str) -> None:
        """Raises ValueError unless the elements were declared with a shape that a tensor of this shape has."""
        if self.declared is not None and not self.declared.shape.is_compatible_with(shape):
            raise ValueError(
                f"Tried to {verb} a tensor with incompatible shape. Op element shape: {[*shape]} list shape: "
                f"{self.declared.shape}; declare the list with a shape that all of its elements have"
            )

    def known_shape(self, stated: TensorShape | TensorValue) -> tuple[int, ...] | None:
        """The shape of elements by what an `element_shape` input and the declaration say; None where that is open.

        Raises:
            ValueError: they contradict each other.
        """
        return element_shape(self.merged_shape(stated))

    def merged_shape(self, stated: TensorShape | TensorValue) -> TensorShape:
        """What an `element_shape` input and the declaration say together; raises as `known_shape`."""
        wanted = stated_shape(stated)
        return wanted if self.declared is None else wanted.merge_with(self.declared.shape)

    def block_until_ready(self) -> TensorList:
        """Waits for the elements, as arrays do."""
        jax.block_until_ready(self.elements)  # type: ignore[no-untyped-call]
        return self

    # ------------------------------------------------------------------ forms
    def replaced(self, elements: Array, length: int | None = None) -> TensorList:
        """A list of other elements, declared like this one."""
        return TensorList(elements, self.length if length is None else length, self.dtype, self.declared)

    def declared_as(self, declared: Declared | None) -> TensorList:
        """The same elements with another declaration."""
        return self if declared == self.declared else TensorList(self.elements, self.length, self.dtype, declared)

    def to_host(self) -> TensorList:
        """The same list as a Python list of NumPy arrays."""
        if self.on_host:
            return self
        if self.elements is None:
            return self.replaced(unwritten(self.length))
        if isinstance(self.elements, TensorList):
            return self.replaced([jax.tree.map(lambda e, i=i: e[i], self.elements) for i in range(self.length)])
        return self.replaced(list(np.asarray(self.elements)))

    def to_dense(self, capacity: int | None = None) -> TensorList:
        """The same list as one array where its elements have one shape; else itself.

        Args:
            capacity: the length of the result; zeros fill it up.
        """
        if not self.on_host:
            return self
        shapes = {np.shape(e) for e in self.elements if e is not None}
        length = self.length if capacity is None else capacity
        if self.dtype == np.object_ or len(shapes) > 1:
            return self
        if not shapes:
            return self.replaced(None, length)
        dense = np.zeros((length, *shapes.pop()), self.dtype)
        for i, element in enumerate(self.elements):
            if element is not None:
                dense[i] = element
        return self.replaced(dense, length)

    def of_shape(self, shape: Sequence[int]) -> TensorList:
        """A dense list without written elements, as one of zeros of this element shape; any other list as it is."""
        if self.elements is not None:
            return self
        return self.replaced(jnp.zeros((self.length, *shape), self.dtype))

    def of_item(self, item: TensorValue) -> TensorList:
        """The same with room for elements like `item`, which may be a list: one without a declaration."""
        if self.elements is not None:
            return self
        if isinstance(item, TensorList):
            item = item.declared_as(None)
        room = jax.tree.map(lambda t: jnp.zeros((self.length, *np.shape(t)), t.dtype), item)
        return self.replaced(room)

    def __add__(self, other: TensorList) -> TensorList:
        """The sums of the elements; what was never written counts as zeros. Declared is what both declare alike."""
        declared = common_declaration(self.declared, other.declared)
        if self.elements is None or other.elements is None:
            return (other if self.elements is None else self).declared_as(declared)
        if not self.on_host and not other.on_host:
            return TensorList(self.elements + other.elements, self.length, self.dtype, declared)
        pairs = zip(self.to_host().elements, other.to_host().elements, strict=True)
        sums = [b if a is None else a if b is None else a + b for a, b in pairs]
        return TensorList(sums, self.length, self.dtype, declared)

    def zeros(self) -> TensorList:
        """A list like this one in which nothing was written."""
        return self.replaced([None] * self.length if self.on_host else None)

    def zeroed(self) -> TensorList:
        """A list like this one with zeros where something was written."""
        if not self.on_host:
            return jax.tree.map(jnp.zeros_like, self)  # type: ignore[no-any-return]
        elements = [
            e.zeroed() if isinstance(e, TensorList) else None if e is None else np.zeros_like(e) for e in self.elements
        ]
        return self.replaced(elements)

    def item(self, index: int, shape: TensorShape | TensorValue) -> Any:
        """Element `index` of a Python list; zeros of `shape` where nothing was written.

        Raises:
            ValueError: nothing was written there and the shape is not known.
        """
        return self.items([index], shape)[0]

    def items(self, indices: Sequence[int], shape: TensorShape | TensorValue) -> list[Any]:
        """Elements of a Python list, as `item` gives them."""
        elements = [self.elements[index] for index in indices]
        missing = next((index for index, element in zip(indices, elements, strict=True) if element is None), None)
        if missing is None:
            return elements
        zeros = self._never_written(missing, shape)
        return [zeros if element is None else element for element in elements]

    def _never_written(self, index: int, shape: TensorShape | TensorValue) -> Any:
        """What is read where nothing was written."""
        if self.dtype == np.object_:
            return TensorList(None, 0, np.float32)
        known = self.known_shape(shape)
        if known is None:
            known = next((np.shape(e) for e in self.elements if e is not None), None)
        if known is None:
            raise ValueError(f"element {index} of the list was never written, and its shape is not known")
        return np.zeros(known, self.dtype)


def unwritten(length: int) -> list[Any]:
    """So many elements of a Python list into which nothing was written.

    Raises:
        ResourceExhaustedError: the memory would not hold that many.
    """
    check_storable([length, _ELEMENT_WORDS], np.int64, what="a list of tensors")
    return [None] * length


def sum_of_lists(a: TensorList, b: TensorList, ctx: StepTracingContext) -> TensorList:
    """The sums of the elements, in a compiled program; elements of different shapes are for the host."""
    if None not in (a.element_shape, b.element_shape) and (a.length, a.element_shape) != (b.length, b.element_shape):
        raise ctx.needs_host("lists of elements of different shapes are added")
    return a + b


def stated_shape(stated: TensorShape | TensorValue) -> TensorShape:
    """The shape that an `element_shape` input states: one of unknown rank where only the step knows the input."""
    if isinstance(stated, TensorShape):
        return stated
    if not isinstance(stated, np.ndarray) or stated.ndim == 0:
        return TensorShape(None)
    return TensorShape([None if d < 0 else int(d) for d in stated])


def element_shape(shape: TensorShape | TensorValue) -> tuple[int, ...] | None:
    """The shape that an `element_shape` input states, None where it leaves something open."""
    known = stated_shape(shape)
    return tuple(d or 0 for d in known.as_list()) if known.is_fully_defined() else None


def check_element_shape(stated: TensorShape | TensorValue, shape: Sequence[int]) -> None:
    """Raises ValueError unless elements of `shape` are what a known `element_shape` input states."""
    wanted = stated_shape(stated)
    if not wanted.is_compatible_with(shape):
        raise ValueError(f"the elements of the list are declared with shape {wanted}, but have shape {[*shape]}")
