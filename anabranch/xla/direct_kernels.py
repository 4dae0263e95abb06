"""Kernels that run one after the other on NumPy's arrays, in place of a compiled program (docs/decisions/0018).

Where the shapes of a small island change from step to step, its operations' own kernels run sooner than XLA compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core import dtypes
from anabranch.core.host_memory import ALIGNED_FROM, Key, aligned_empty, is_aligned, is_sole
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.sizes import braces_of

#: multiplications and additions that take as long as an element of most operations, in a library for matrices
_FLOPS_OF_ELEMENT: Final = 200
#: the types that such a library has products of; those of 16 bits are converted to float32
_QUICK_PRODUCTS: Final = frozenset(
    dtype.as_numpy_dtype for dtype in (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
)


class BetterCompiledError(Exception):
    """A compiled program had better do it, most often because so much is computed."""


Shapes = Sequence[tuple[int, ...]]


class DirectSizes:
    """Counts what kernels compute that run directly, one after the other.

    Attributes:
        left: elements that they may yet give.

    Args:
        most: elements that they may give in all; products count as so many elements as take as long.
    """

    def __init__(self, most: int) -> None:
        self.left = most

    def count(self, op: StepNode, inputs: list[Any], shapes: Iterable[TensorShape], find: Callable[[], Shapes]) -> None:
        """Counts what a kernel computes that is about to run.

        Args:
            shapes: what is known of its results' shapes.
            find: tells them, and takes its time.

        Raises:
            BetterCompiledError: it is too much.
        """
        known = list(shapes)
        if all(shape.is_fully_defined() for shape in known):
            self._take(op, inputs, [tuple(shape.sizes()) for shape in known])
        # the bound costs nothing, and mostly suffices to see that `find` need not be asked
        elif not 0 <= _at_most(op, inputs) <= self.left:
            self._take(op, inputs, find())

    def _take(self, op: StepNode, inputs: list[Any], shapes: Shapes) -> None:
        self.left -= _cost_of_kernel(op, [np.shape(value) for value in inputs], shapes)
        if self.left < 0:
            raise BetterCompiledError


def known_cost(op: StepNode) -> int:
    """What the kernel of an operation computes at least, as `DirectSizes` counts; 0 where a shape is not known."""
    given, shapes = [t.shape for t in op.inputs], [t.shape for t in op.outputs]
    if not all(shape.is_fully_defined() for shape in (*given, *shapes)):
        return 0
    return _cost_of_kernel(op, [tuple(shape.sizes()) for shape in given], [tuple(shape.sizes()) for shape in shapes])


def _cost_of_kernel(op: StepNode, given: Shapes, shapes: Shapes) -> int:
    """What NumPy takes for an operation, in elements; from the shapes of its inputs and outputs."""
    if op.op_def.passes_on:
        return 0
    rule = op.op_def.flops_rule
    if rule is None or not op.outputs:
        return sum(map(cost_of, shapes))
    products = rule(given, shapes, op.attrs)
    quick = op.outputs[0].dtype.as_numpy_dtype in _QUICK_PRODUCTS
    return max(products // (_FLOPS_OF_ELEMENT if quick else 1), *map(cost_of, shapes))


def cost_of(shape: Sequence[int]) -> int:
    """How many elements an array has, or what it costs XLA to have none."""
    return max(math.prod(shape), braces_of(shape))


def _at_most(op: StepNode, inputs: list[Any]) -> int:
    """More elements than an operation makes of its inputs: all with all, as often as sizes say; negative: unknown."""
    static, most = op.op_def.static_positions(op), 1
    for position, value in enumerate(inputs):
        if position not in static:
            most *= max(np.size(value), 1) if isinstance(value, np.ndarray) else 1
        elif value.dtype.kind not in "iub":
            return -1
        else:
            most *= math.prod([abs(int(v)) + 1 for v in value.ravel()])
    return most


def takes_numpy(op: StepNode) -> bool:
    """Whether an operation runs on NumPy arrays; others expect what is not known to be JAX's."""
    op_def = op.op_def
    return (
        op_def.portable
        or op_def.takes_numpy
        or op_def.takes_quantised  # by the host kernel
        or op_def.passes_on
        or op_def.calls_functions
    )


def lasting(values: dict[Key, Any], key: Key, dtype: np.dtype[Any] | None = None) -> Any:
    """An array of `values`, in memory that is nobody else's and that JAX takes as it is; it may be taken out."""
    if is_sole(values, key):
        value = values[key]
        if value.nbytes >= ALIGNED_FROM and dtype in {None, value.dtype} and is_aligned(value):
            return values.pop(key)
    # a copy: a kernel may give back an argument, or part of one
    array = np.asarray(values[key], dtype)
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def on_host(value: TensorValue) -> Any:
    """A value as a NumPy array; handles, lists and random keys stay what they are."""
    if not isinstance(value, jax.Array) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    return np.asarray(value)
