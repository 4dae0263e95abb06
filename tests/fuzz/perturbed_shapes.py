"""Calls of an operation with one input's shape changed: what TensorFlow says of each is recorded, and tested here.

The inputs are those of the operation's first row in the op tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.testing.op_cases import OpCase
from tests.fuzz.op_rows import input_arrays
from tests.fuzz.wire import Array

#: By operation type and label of a call, when TensorFlow refuses it: `BUILT`, `RUN` or `NEVER`
REFUSED = Path(__file__).resolve().parents[1] / "fixtures" / "refused_shapes.json"
#: where the shapes are known, it refuses to build the operation
BUILT = "when built"
#: it builds the operation, and refuses to run it
RUN = "when run"
NEVER = "never"

Inputs = list[Array | list[Array]]


def perturbed_inputs(case: OpCase) -> Iterator[tuple[str, Inputs]]:
    """The row's inputs with the shape of one of them changed, and a label that says which and how.

    Of an input that is a list, the first tensor is changed.
    """
    inputs: Inputs = list(input_arrays(case))
    for i, value in enumerate(inputs):
        if isinstance(value, list) and not value:
            continue
        first = value[0] if isinstance(value, list) else value
        for label, changed in _changes(first):
            new: Any = [changed, *value[1:]] if isinstance(value, list) else changed
            yield f"{i} {label}", [*inputs[:i], new, *inputs[i + 1 :]]


def _changes(array: Array) -> Iterator[tuple[str, Array]]:
    """One dimension more, one less, one row more, one column more."""
    yield "+dimension", array[None]
    if array.ndim and len(array):
        yield "-dimension", np.asarray(array[0], array.dtype)
        yield "+row", np.concatenate([array, array[:1]])
        if array.ndim > 1:
            yield "+column", np.concatenate([array, array[..., :1]], axis=-1)
