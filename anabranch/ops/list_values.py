"""The value of a tensor list: what a variant tensor of the `TensorList` operations holds while a step runs.

The elements are tensors, or lists again: what an outer loop records of an inner one's records.

A list is *dense* where all its elements have one shape: one array with the elements along its first axis, so that it
can be part of a compiled program and be carried through its loops. Otherwise it is a Python list that only host kernels
see. A list into which nothing was written yet is dense without a shape: its elements stand for zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.shapes import TensorShape


@jax.tree_util.register_pytree_node_class
class TensorList:
    """See the module docstring.

    Attributes:
        elements: array [length, ...]; None while nothing was written; or a Python list whose unwritten items are None.
        length: number of elements.
        dtype: NumPy dtype of the elements.
    """

    __slots__ = ("dtype", "elements", "length")

    def __init__(self, elements: Any, length: int, dtype: Any) -> None:
        self.elements = elements
        self.length = length
        self.dtype = np.dtype(dtype)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, Any]]:
        """For JAX: the elements are data, length and dtype are structure."""
        return (self.elements,), (self.length, self.dtype)

    @classmethod
    def tree_unflatten(cls, structure: tuple[int, Any], children: Sequence[Any]) -> TensorList:
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
        return ("list", self.length, self.element_shape, self.dtype.str)

    def block_until_ready(self) -> TensorList:
        """Waits for the elements, as arrays do."""
        jax.block_until_ready(self.elements)  # type: ignore[no-untyped-call]
        return self

    # ------------------------------------------------------------------ forms
    def to_host(self) -> TensorList:
        """The same list as a Python list of NumPy arrays."""
        if self.on_host:
            return self
        if self.elements is None:
            return TensorList([None] * self.length, self.length, self.dtype)
        if isinstance(self.elements, TensorList):
            items = [jax.tree.map(lambda e, i=i: e[i], self.elements) for i in range(self.length)]
            return TensorList(items, self.length, self.dtype)
        return TensorList(list(np.asarray(self.elements)), self.length, self.dtype)

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
            return TensorList(None, length, self.dtype)
        dense = np.zeros((length, *shapes.pop()), self.dtype)
        for i, element in enumerate(self.elements):
            if element is not None:
                dense[i] = element
        return TensorList(dense, length, self.dtype)

    def of_shape(self, shape: Sequence[int]) -> TensorList:
        """A dense list without written elements, as one of zeros of this element shape; any other list as it is."""
        if self.elements is not None:
            return self
        return TensorList(jnp.zeros((self.length, *shape), self.dtype), self.length, self.dtype)

    def of_item(self, item: Any) -> TensorList:
        """The same with room for elements like `item`, which may be a list."""
        if self.elements is not None:
            return self
        room = jax.tree.map(lambda t: jnp.zeros((self.length, *np.shape(t)), t.dtype), item)
        return TensorList(room, self.length, self.dtype)

    def __add__(self, other: TensorList) -> TensorList:
        """The sums of the elements; what was never written counts as zeros."""
        if self.elements is None or other.elements is None:
            return other if self.elements is None else self
        if not self.on_host and not other.on_host:
            return TensorList(self.elements + other.elements, self.length, self.dtype)
        pairs = zip(self.to_host().elements, other.to_host().elements, strict=True)
        sums = [b if a is None else a if b is None else a + b for a, b in pairs]
        return TensorList(sums, self.length, self.dtype)

    def zeros(self) -> TensorList:
        """A list like this one in which nothing was written."""
        return TensorList([None] * self.length if self.on_host else None, self.length, self.dtype)

    def zeroed(self) -> TensorList:
        """A list like this one with zeros where something was written."""
        if not self.on_host:
            return jax.tree.map(jnp.zeros_like, self)  # type: ignore[no-any-return]
        elements = [
            e.zeroed() if isinstance(e, TensorList) else None if e is None else np.zeros_like(e) for e in self.elements
        ]
        return TensorList(elements, self.length, self.dtype)

    def item(self, index: int, shape: Any) -> Any:
        """Element `index` of a Python list; zeros of `shape` where nothing was written.

        Raises:
            ValueError: nothing was written there and the shape is not known.
        """
        found = self.elements[index]
        if found is not None:
            return found
        if self.dtype == np.object_:
            return TensorList(None, 0, np.float32)
        known = element_shape(shape)
        if known is None:
            known = next((np.shape(e) for e in self.elements if e is not None), None)
        if known is None:
            raise ValueError(f"element {index} of the list was never written, and its shape is not known")
        return np.zeros(known, self.dtype)


def _zeros_like(element: Any) -> Any:
    if isinstance(element, TensorList):
        return element.zeroed()
    return None if element is None else np.zeros_like(element)


def sum_of_lists(a: TensorList, b: TensorList, ctx: Any) -> TensorList:
    """The sums of the elements, in a compiled program; elements of different shapes are for the host."""
    if None not in (a.element_shape, b.element_shape) and a.shape != b.shape:
        raise ctx.needs_host("lists of elements of different shapes are added")
    return a + b


def element_shape(shape: Any) -> tuple[int, ...] | None:
    """The shape that an `element_shape` input states, None where it leaves something open."""
    if isinstance(shape, TensorShape):
        return None if not shape.is_fully_defined() else tuple(d or 0 for d in shape.as_list())
    dims = np.asarray(shape)
    if dims.ndim == 0 or (dims < 0).any():
        return None
    return tuple(int(d) for d in dims)


def check_element_shape(stated: Any, shape: Sequence[int]) -> None:
    """Raises ValueError unless elements of `shape` are what a known `element_shape` input states."""
    if isinstance(stated, TensorShape):
        wanted = stated
    elif isinstance(stated, np.ndarray) and stated.ndim:
        wanted = TensorShape([None if d < 0 else int(d) for d in stated])
    else:
        return
    if not wanted.is_compatible_with(shape):
        raise ValueError(f"the elements of the list are declared with shape {wanted}, but have shape {[*shape]}")
