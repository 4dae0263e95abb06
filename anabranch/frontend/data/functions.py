"""Python functions on elements as function graphs (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.data import nest
from anabranch.frontend.data.structure import (
    Component,
    SparseComponent,
    TensorComponent,
    are_compatible,
    components_of,
    types_of,
    values_from,
)
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: stateful operations whose running nobody can notice
_WITHOUT_EFFECT = frozenset({"Placeholder", "ReadVariableOp", "VarHandleOp", "Const", "FakeParam"})
#: stateful operations that keep no state
_WITHOUT_STATE = frozenset({"Assert", "MatchingFiles"})


class ElementBody:
    """A function graph made by calling a Python function with symbolic elements.

    Args:
        function: called with the values of `structures`, a tuple of values unpacked when there is one structure.
        what: for messages, such as ``"Dataset.map()"``.
        structures: of the arguments.

    Attributes:
        function: the attribute value that names the function.
        captured: the tensors to pass besides elements.
        structure: of what it returns.

    Raises:
        TypeError: it returns something that no element can hold.
    """

    def __init__(self, function: Callable[..., Any], what: str, *structures: Structure) -> None:
        outer = get_default_graph()
        self.body = body = FunctionGraph(what.replace(".", "_").rstrip("()"), outer)
        with body.as_default():
            arguments = [self._parameters(structure, i) for i, structure in enumerate(structures)]
            if len(structures) == 1 and type(arguments[0]) is tuple:
                arguments = list(arguments[0])
            result = function(*arguments)
            if isinstance(result, list):
                result = tuple(result)
            if result is None:
                raise TypeError(f"Unsupported return value from function passed to {what}: {result!r}.")
            try:
                self.structure, tensors = components_of(result)
            except (ValueError, TypeError) as error:
                raise TypeError(f"Unsupported return value from function passed to {what}: {result!r}.") from error
            body.outputs = self._results([body.capture(t) for t in tensors])
        if body.outer_control_inputs:
            raise ValueError(
                f"the function passed to {what} waits for {body.outer_control_inputs[0].name!r}, which is outside of it"
            )
        self.captured = body.captures
        self.function = FuncAttr(outer.add_function(self.body.name, body))

    def _parameters(self, structure: Structure, number: int) -> Any:
        components = nest.flatten(structure)
        tensors = [
            self.body.add_parameter(c.flat_type, c.flat_shape, f"args_{number}_{i}" if number or i else "args_0")
            for i, c in enumerate(components)
        ]
        return values_from(structure, tensors)

    def _results(self, tensors: list[Tensor]) -> list[Tensor]:
        """The outputs, which wait for operations with effects that the function added and nothing else needs."""
        effects = [op for op in self.body.get_operations() if _has_effect(op)]
        waiting = [op for op in effects if not any(t in tensors for t in op.outputs)]
        if not waiting:
            return tensors
        with self.body.control_dependencies(waiting):
            return [t if t.dtype is dtypes.resource else raw.Identity(t) for t in tensors]


def check_predicate(body: ElementBody, what: str) -> None:
    """Raises ValueError unless a function returns a boolean scalar."""
    wanted = TensorComponent(dtypes.bool, TensorShape([]))
    if not are_compatible(wanted, body.structure):
        raise ValueError(f"{what} return type must be convertible to a scalar boolean tensor. Was {body.structure!r}.")


def _has_effect(op: Operation) -> bool:
    kind = op.type
    if not op.op_def.stateful or kind in _WITHOUT_EFFECT or "Dataset" in kind:
        return False
    return not op.op_def.random


def state_body(
    function: Callable[..., Any], what: str, state: Structure, element: Structure, state_of: Callable[[Any], Any]
) -> tuple[ElementBody, Any]:
    """A function (state, element) -> results, of which `state_of` tells the next state, and the state's structure.

    Shapes that change from one state to the next become unknown.

    Raises:
        TypeError: the next state has other types or another structure.
    """
    while True:
        body = ElementBody(function, what, state, element)
        following = state_of(body.structure)
        try:
            nest.assert_same_structure(state, following)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the function passed to {what} returns another structure than the state's: {error}") from (
                None
            )
        for old, new in zip(nest.flatten(state), nest.flatten(following), strict=True):
            if type(old) is not type(new) or old.types != new.types:
                raise TypeError(
                    "The element types for the new state must match the initial state. The function passed to "
                    f"{what} gets {types_of(state)} and "
                    f"returns {types_of(following)}"
                )
        relaxed = nest.map_structure(lambda a, b: a.most_specific(b), state, following)
        if _same_shapes(relaxed, state):
            return body, state
        state = relaxed


def _same_shapes(one: Structure, other: Structure) -> bool:
    return all(
        a.flat_shape.dims_tuple == b.flat_shape.dims_tuple and _dims(a) == _dims(b)
        for a, b in zip(nest.flatten(one), nest.flatten(other), strict=True)
    )


def _dims(component: Component) -> Any:
    return component.shapes.dims_tuple if isinstance(component, TensorComponent | SparseComponent) else None


def copied_by_value(tensor: Tensor, body: FunctionGraph) -> Tensor:
    """The tensor in a function graph that is given nothing: what computes it is copied.

    Raises:
        ValueError: it depends on a placeholder, or on a resource.
    """
    copies: dict[Operation, Operation] = {}

    def copy(op: Operation) -> Operation:
        if op in copies:
            return copies[op]
        if op.type in ("Placeholder", "PlaceholderV2"):
            raise ValueError(f"Cannot capture a placeholder (name:{op.name}, type:{op.type}) by value.")
        if op.op_def.stateful and "Dataset" not in op.type and op.type not in _WITHOUT_STATE:
            raise ValueError(f"Cannot capture a stateful node (name:{op.name}, type:{op.type}) by value.")
        inputs = [copy(t.op).outputs[t.value_index] for t in op.inputs]
        controls = [copy(c) for c in op.control_inputs]
        attrs = {k: v for k, v in op.attrs.items() if k != "_class"}
        made = body.create_op(op_def_of(op.type), inputs, attrs, name=op.name, site=op.site, control_inputs=controls)
        copies[op] = made
        return made

    with body.as_default():
        return copy(tensor.op).outputs[tensor.value_index]
