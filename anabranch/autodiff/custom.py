"""Gradients that users define: RegisterGradient, custom_gradient, NotDifferentiable (§4.1)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

from anabranch.core import nest
from anabranch.core.dtypes import resource
from anabranch.core.registry import register_gradient
from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import Gradient
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_names = itertools.count()
_COLLECTIONS_OF_VARIABLES: Final = (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES,
)


class RegisterGradient:
    """Decorator that registers a gradient function under a name, for an operation type or `gradient_override_map`.

    ``@RegisterGradient("Name")`` on ``def f(op, *grads)``, which returns one gradient (or None) per input.
    """

    def __init__(self, op_type: str) -> None:
        """Raises TypeError when `op_type` is not a string."""
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Registers `f`; raises KeyError when the name has a gradient already."""
        register_gradient(self._op_type, f)
        return f


def no_gradient(op_type: str) -> None:
    """States that operations of a type are not differentiable.

    Raises:
        TypeError: `op_type` is not a string.
        KeyError: the type has a gradient already.
    """
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    register_gradient(op_type, None)


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a function that brings its own gradient.

    `f(*xs)` returns ``(y, grad_fn)``; ``grad_fn(*dys)`` returns one gradient per x. When `f` uses other variables,
    ``grad_fn(*dys, variables=[...])`` returns a pair: gradients of xs, gradients of the variables.
    """

    @functools.wraps(f)
    def decorated(*args: TensorLike, **kwargs: PassedOn) -> Any:
        graph = get_default_graph()
        xs = [convert_to_tensor(x) for x in nest.flatten(args)]
        before = len(graph.get_operations())
        result, grad_fn = f(*nest.pack_sequence_as(args, xs), **kwargs)
        used = variables_read(graph.get_operations()[before:], graph)
        # the gradient of a variable whose handle is given is that argument's
        variables = [v for v in used if all(v.handle is not x for x in xs)]
        flat = [convert_to_tensor(y) for y in nest.flatten(result)]
        name = f"CustomGradient-{next(_names)}"
        register_gradient(name, _gradient_of(grad_fn, len(flat), len(xs), variables))
        with graph.gradient_override_map({raw.IdentityN.name: name}):
            handles = [v.handle for v in variables]
            tied = raw.IdentityN([*flat, *xs, *handles])
        return nest.pack_sequence_as(result, list(tied[: len(flat)]))

    return decorated


def variables_read(operations: Iterable[Operation], graph: Graph) -> list[Any]:
    """The trainable variables whose values `operations` of a graph take, in the order in which they were made."""
    from_handle = {
        v.handle: v
        for collection in _COLLECTIONS_OF_VARIABLES
        for v in graph.get_collection(collection)
        if isinstance(getattr(v, "handle", None), Tensor) and v.trainable
    }
    read = {t.get_attribute("handle_of", t) for op in operations for t in op.inputs if t.dtype is resource}
    return [v for handle, v in from_handle.items() if handle in read]


def _gradient_of(grad_fn: Callable[..., Any], outputs: int, inputs: int, variables: list[Any]) -> Callable[..., Any]:
    def gradient(op: Operation, *grads: Gradient | None) -> list[Any]:
        if variables:
            input_grads, variable_grads = grad_fn(*grads[:outputs], variables=variables)
        else:
            input_grads, variable_grads = grad_fn(*grads[:outputs]), []
        flat = nest.flatten(input_grads)
        if len(flat) != inputs:
            raise ValueError(f"the grad_fn of a custom_gradient returned {len(flat)} gradients for {inputs} inputs")
        return [None] * outputs + flat + list(variable_grads)

    return gradient
