"""How `tf.contrib.training` spreads variables over parameter servers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anabranch as tf


class GreedyLoadBalancingStrategy:
    """Gives each operation to the parameter-server task whose load is least; of several the first.

    Args:
        num_tasks: number of tasks.
        load_fn: operation -> its load, such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: tf.Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """Gives each operation to a parameter-server task at random, the same in every process with one seed."""

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._random = random.Random(seed)

    def __call__(self, op: tf.Operation) -> int:
        return self._random.randrange(self._num_tasks)


def byte_size_load_fn(op: tf.Operation) -> float:
    """The bytes of the variable that an operation makes.

    Raises:
        ValueError: its shape is not fully known.
    """
    output = op.outputs[0]
    shape = op.attrs["shape"] if output.dtype.name == "resource" else output.shape
    dtype = op.attrs["dtype"] if output.dtype.name == "resource" else output.dtype
    size = shape.num_elements()
    if size is None:
        raise ValueError(
            f"the load of {op.name!r} is not known: its shape is {shape}; state a shape, or another load_fn"
        )
    return float(size * dtype.size)
