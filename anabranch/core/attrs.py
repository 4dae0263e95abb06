"""Attribute values that have no plain Python type of their own, and when two attribute values are the same.

The others are: `DType` for a type, `TensorShape` for a shape, a NumPy array for a tensor, `bytes` for a string, `int`,
`float`, `bool`, and lists of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

#: What an attribute holds: of which kind (see above) the operation type says, so that type checkers cannot know it.
AttributeValue: TypeAlias = Any

#: an attribute of a placeholder for a part of a sparse tensor: whether its size differs in each step
SIZE_VARIES: Final = "_size_varies"

#: annotates what hands on a value of which something is computed once more, when the operations before it have run:
#: meanwhile nothing of that is kept (`tf.recompute_grad`)
COMPUTED_AGAIN: Final = "_computed_again"


@dataclass(frozen=True, eq=False)
class FuncAttr:
    """A function of the graph's library, by name, with attributes for its instantiation.

    Equal to another of the same name and the same attributes.
    """

    name: str
    attrs: dict[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FuncAttr):
            return NotImplemented
        return self.name == other.name and same_attrs(self.attrs, other.attrs)

    def __hash__(self) -> int:
        return hash((FuncAttr, self.name))


@dataclass(frozen=True)
class AttrPlaceholder:
    """Inside a function's body: the value of the attribute `name` of whatever node calls the function."""

    name: str


def single_precision(value: float) -> float:
    """A number as attributes of kind `float` hold it: rounded to single precision, as it is in a GraphDef.

    So a graph computes the same before it is exported and after, and the same as TensorFlow: a `LeakyRelu` of float64
    multiplies by 0.20000000298. What is too large becomes infinite.
    """
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def same_attrs(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two sets of attributes have the same names and the same values."""
    return a.keys() == b.keys() and all(same_attr_value(value, b[name]) for name, value in a.items())


def same_attr_value(a: AttributeValue, b: AttributeValue) -> bool:
    """Whether two values of one attribute are the same: of one type, and equal element for element.

    Arrays are compared bit for bit, so that 0.0 differs from -0.0, and NaN is the same as itself. Shapes of unknown
    rank are the same as each other.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return _same_array(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_attr_value, a, b))
    if isinstance(a, float):
        return a.hex() == float(b).hex()
    dims = getattr(a, "dims_tuple", a)  # a TensorShape; its == knows no answer when a dimension is unknown
    return bool(dims == getattr(b, "dims_tuple", b))


def _same_array(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    return a.tobytes() == b.tobytes()
