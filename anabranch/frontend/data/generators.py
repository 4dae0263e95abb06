"""Datasets of what Python generators yield (WP4.5)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, TensorValue, to_array
from anabranch.frontend.control_flow.script import py_func
from anabranch.frontend.data import nest
from anabranch.frontend.data.functions import ElementBody
from anabranch.frontend.data.structure import flat_attrs, from_legacy
from anabranch.graph.building import apply_op
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Tensor


class _Generators:
    """The generators that are being walked, by number."""

    def __init__(self, generator: Callable[..., Any], structure: Structure, types: list[DType]) -> None:
        self._generator = generator
        self._structure, self._types = structure, types
        self._shapes: list[TensorShape] = [c.shapes for c in nest.flatten(structure)]
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._running: dict[int, Iterator[Any]] = {}

    def start(self, *arguments: TensorValue) -> Any:
        """Calls the generator; returns its number."""
        with self._lock:
            number = next(self._numbers)
        self._running[number] = iter(self._generator(*arguments))
        return np.int64(number)

    def step(self, number: TensorValue) -> list[Any]:
        """The next element; StopIteration at the end."""
        values = next(self._running[int(number)])
        try:
            flat = nest.flatten_up_to(self._structure, values)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "`generator` yielded an element that did not match the expected structure. The expected structure was "
                f"{nest.map_structure(lambda c: c.types, self._structure)}, but the yielded element was {values!r}."
            ) from error
        return [self._converted(*row) for row in zip(flat, self._types, self._shapes, strict=True)]

    @staticmethod
    def _converted(value: TensorLike, dtype: DType, shape: TensorShape) -> Any:
        try:
            array = to_array(list(value) if isinstance(value, range) else value, dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "`generator` yielded an element that could not be converted to the expected type. The expected type "
                f"was {dtype.name}, but the yielded element was {value!r}."
            ) from error
        if array.shape != shape.dims_tuple and not shape.is_compatible_with(array.shape):
            raise ValueError(
                f"`generator` yielded an element of shape {array.shape} where an element of shape {shape} was expected."
            )
        return array

    def finish(self, number: TensorValue) -> Any:
        """Forgets a generator, which closes it."""
        generator = self._running.pop(int(number), None)
        close = getattr(generator, "close", None)
        if callable(close):
            close()
        return np.int64(0)


def generator_variant(
    generator: Callable[..., Any], output_types: Structure, output_shapes: Structure, args: Sequence[TensorLike] | None
) -> tuple[Tensor, Any]:
    """The tensor of a dataset of what a generator yields, and the structure of its elements; see `from_generator`."""
    if not callable(generator):
        raise TypeError("`generator` must be callable.")
    structure = from_legacy(output_types, output_shapes)
    components = nest.flatten(structure)
    types = [c.flat_type for c in components]
    running = _Generators(generator, structure, types)
    arguments = [convert_to_tensor(a, name=f"args_{i}") for i, a in enumerate(args or ())]

    def step(number: Tensor) -> Any:
        results = py_func(running.step, [number], types, True)
        for result, component in zip(results, components, strict=True):
            result.set_shape(component.flat_shape)
        return tuple(results)

    number = from_legacy(dtypes.int64, TensorShape([]))
    what = "Dataset.from_generator()"
    init = ElementBody(lambda: _scalar(py_func(running.start, arguments, dtypes.int64, True)), what)
    following = ElementBody(step, what, number)
    final = ElementBody(lambda n: py_func(running.finish, [n], dtypes.int64, True), what, number)
    bound = {
        "init_func_other_args": init.captured,
        "next_func_other_args": following.captured,
        "finalize_func_other_args": final.captured,
        "init_func": init.function,
        "next_func": following.function,
        "finalize_func": final.function,
        **flat_attrs(structure),
    }
    return apply_op(op_def_of("GeneratorDataset"), bound).outputs[0], structure


def _scalar(tensor: Tensor) -> Tensor:
    tensor.set_shape([])
    return tensor
