"""What conditionals and loops of converted code share: their variables, their conditions, and what they may hold."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.core import dtypes, nest
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.copied_functions import has_effect
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: the values of variables of the user's function
State: TypeAlias = "tuple[Any, ...]"
#: the names of these variables
SymbolNames: TypeAlias = "tuple[str, ...]"

_SCRATCH: Final = contextvars.ContextVar("anabranch.autograph.scratch", default=False)
_NUMBERS: Final = (bool, int, float, complex, str, bytes, np.ndarray, np.generic)


def is_symbolic(value: PassedOn) -> bool:
    """Whether something has a value only when a step runs."""
    return isinstance(value, Tensor | Variable)


def scalar_condition(cond: TensorLike, what: str) -> Tensor:
    """A condition as a boolean scalar.

    Raises:
        ValueError: it is none.
    """
    tensor = convert_to_tensor(cond)
    hint = "use tf.cast, or compare it; to test for None, use `is not None`"
    if tensor.dtype.base_dtype is not dtypes.bool:
        raise ValueError(
            f"condition of {what} expected to be `tf.bool` scalar, got {tensor.dtype.name} ({tensor.name}); {hint}"
        )
    dims = tensor.shape.dims_tuple
    if dims == ():
        return tensor
    if dims is not None and int(np.prod([d for d in dims if d is not None])) > 1:
        raise ValueError(
            f"condition of {what} expected to be `tf.bool` scalar, got shape {tensor.shape} ({tensor.name}); use "
            "tf.reduce_all or tf.reduce_any"
        )
    return raw.Reshape(tensor, [])  # type: ignore[no-any-return]


@contextlib.contextmanager
def scratch_graph() -> Iterator[None]:
    """A graph that is thrown away: for what one wants to know of a piece of code before it is built."""
    graph = get_default_graph()
    kept = {key: list(graph.get_collection_ref(key)) for key in graph.get_all_collection_keys()}
    token = _SCRATCH.set(True)
    try:
        with FunctionGraph("scratch", graph).as_default():
            yield
    finally:
        _SCRATCH.reset(token)
        for key in graph.get_all_collection_keys():
            graph.get_collection_ref(key)[:] = kept.get(key, [])


def is_scratch() -> bool:
    """Whether what is built now is thrown away."""
    return _SCRATCH.get()


def waiting_for_effects(graph: Graph, values: State) -> State:
    """The values after everything with effects in a branch or a body that was built in a graph of its own."""
    effects = [op for op in graph.get_operations() if has_effect(op)]
    if not effects:
        return values
    with graph.control_dependencies(effects):
        return tuple(nest.map_structure(_passed_on, value) for value in values)


def _passed_on(value: TensorLike) -> Any:
    return rebuilt(value, [raw.Identity(t) for t in components(value)])


def as_tensors(value: PassedOn, name: str, when: str) -> Any:
    """A structure with tensors for the numbers, texts, arrays and variables in it.

    Raises:
        TypeError: it holds something else.
    """

    def leaf(item: PassedOn) -> Any:
        if isinstance(item, (Variable, *_NUMBERS)):
            return convert_to_tensor(item)
        try:
            components(item)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"'{name}' holds {item!r} {when}: what an `if` or a loop over tensors changes may be tensors, numbers, "
                "and lists, tuples and dicts of them; compute it before, or give it another name inside"
            ) from error
        return item

    return nest.map_structure(leaf, value)


def check_same(
    name: str, one: PassedOn, other: PassedOn, where: str, elsewhere: str, convert: Callable[..., Any] = as_tensors
) -> None:
    """Whether a variable is of one kind in two places.

    Raises:
        TypeError: it has other dtypes or structures.
        ValueError: it is None in one of them.
    """
    for value, place in ((one, where), (other, elsewhere)):
        if value is None and one is not other:
            raise ValueError(f"'{name}' is None {place}; where it depends on a tensor it is a tensor on every way")
    first, second = convert(one, name, where), convert(other, name, elsewhere)
    try:
        nest.assert_same_structure(first, second)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"'{name}' must have the same nested structure {where} and {elsewhere}: {error}; tf.TensorArray holds "
            "what grows"
        ) from error
    for a, b in zip(nest.flatten(first), nest.flatten(second), strict=True):
        for x, y in zip(components(a), components(b), strict=False):
            if x.dtype.base_dtype is not y.dtype.base_dtype:
                raise TypeError(
                    f"'{name}' has dtype {x.dtype.name} {where}, but dtype {y.dtype.name} {elsewhere}; use tf.cast"
                )


def named(names: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(repr(name) for name in names)
