"""Kernels that run one after the other on NumPy's arrays, in place of a compiled program (docs/decisions/0018).

Where the shapes of a small island change from step to step, its operations' own kernels run sooner than XLA compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.sizes import braces_of


class BetterCompiledError(Exception):
    """A compiled program had better do it, most often because so much is computed."""


class DirectSizes:
    """Counts what kernels give that run directly, one after the other.

    Args:
        most: elements that they may give in all.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def count(self, op: StepNode, inputs: list[Any], shapes: Iterable[TensorShape], find: Callable[[], int]) -> None:
        """Counts the results of a kernel that is about to run.

        Args:
            shapes: what is known of their shapes.
            find: tells their size, and takes its time.

        Raises:
            BetterCompiledError: there are too many.
        """
        known = list(shapes)
        if all(shape.is_fully_defined() for shape in known):
            self._take(sum(cost_of(shape.sizes()) for shape in known))
        # the bound costs nothing, and mostly suffices to see that `find` need not be asked
        elif not 0 <= _at_most(op, inputs) <= self._left:
            self._take(find())

    def _take(self, elements: int) -> None:
        self._left -= elements
        if self._left < 0:
            raise BetterCompiledError


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


def on_host(value: TensorValue) -> Any:
    """A value as a NumPy array; handles, lists and random keys stay what they are."""
    if not isinstance(value, jax.Array) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    return np.asarray(value)
