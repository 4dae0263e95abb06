"""Calls of functions as raw operations: ``tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=g)``.

As everywhere, the function is copied in, and what the call is named is an IdentityN of its results, as it is after an
import (docs/decisions/0055). So gradients, shapes and placement meet ordinary operations only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.autodiff.gradients import gradients
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.frontend.raw_datasets import dataset_of_graph, graph_of_dataset
from anabranch.graph.building import Argument, OpFunction, read_arguments
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.copied_functions import copied_into
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def build_call(definition: OpFunction, args: Sequence[Argument], kwargs: Mapping[str, Argument]) -> Any:
    """Copies a function into the default graph, or into that of the inputs.

    Args:
        args, kwargs: as for an operation type: inputs, attributes and `name`.

    Returns:
        The results, as a list of tensors; the operation that runs everything where there are none.

    Raises:
        TypeError: an argument is missing, or is not what the function takes.
        ValueError: the graph has no such function, or the function takes or gives another number of tensors.
    """
    given = dict(kwargs)
    name = given.pop("name", None)
    bound = definition.bind(tuple(args), given)
    graph = _graph_of(bound)
    with contextlib.nullcontext() if graph is get_default_graph() else graph.as_default():
        call = _RawCall(graph, definition, bound, name if isinstance(name, str) else definition.name)
        return _BUILDERS[definition.name](call)


def _graph_of(bound: Mapping[str, Any]) -> Graph:
    default = get_default_graph()
    if not default.building_function:
        for value in bound.values():
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    return item.graph
    return default


class _RawCall:
    """One call: its inputs, its attributes, and the function that it names.

    Attributes:
        inputs: the flat inputs.
        attrs: every attribute.
    """

    def __init__(self, graph: Graph, definition: OpFunction, bound: dict[str, Any], name: str) -> None:
        self.graph = graph
        self._type = definition.name
        self._name = name[:-1] if name.endswith("/") else graph.unique_name(name)
        with self.inside():
            inputs, self.attrs = read_arguments(definition, bound)
            self.inputs = [graph.capture(t) for t in inputs]

    def inside(self) -> contextlib.AbstractContextManager[str]:
        """The scope in which what the call consists of is named."""
        return self.graph.name_scope(f"{self._name}/")

    def function(self, attr: str, given: Sequence[DType]) -> FunctionGraph:
        """The function of an attribute, which takes tensors of these dtypes."""
        func: FuncAttr = self.attrs[attr]
        body = self.graph.functions.get(func.name)
        if not isinstance(body, FunctionGraph):
            known = sorted(self.graph.functions)[:10]
            raise ValueError(
                f"{self._type} {self._name!r}: failed to find function {func.name!r} in the graph's library, which has "
                f"{known}; give the function itself, made by Defun or get_concrete_function"
            )
        self.check("arguments", [t.dtype for t in body.inputs], given, func.name)
        return body

    def check(self, what: str, wanted: Sequence[DType], given: Sequence[DType], function: str) -> None:
        """Raises unless the dtypes are those that the function has."""
        if [t.base_dtype for t in wanted] == [t.base_dtype for t in given]:
            return
        message = (
            f"{self._type} {self._name!r}: the function {function!r} has {what} of types {[t.name for t in wanted]}, "
            f"but the call has {[t.name for t in given]}"
        )
        if len(wanted) != len(given):
            raise ValueError(f"{message}; what a function captured is passed after its own arguments")
        raise TypeError(f"{message}; use tf.cast")

    def copied(self, body: FunctionGraph, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Operation]]:
        """The results of a copy of a function, and what has effects in it."""
        tensors, effects = copied_into(body, self.graph, dict(zip(body.inputs, inputs, strict=True)))
        return [tensors[t] for t in body.outputs], effects

    def finished(self, results: Sequence[Tensor], effects: Sequence[Operation]) -> Any:
        """What bears the name of the call: its results, after all that it does."""
        with self.graph.control_dependencies(list(effects)):
            if not results:
                return raw.NoOp(name=f"{self._name}/")
            return raw.IdentityN(list(results), name=f"{self._name}/")


def _plain(call: _RawCall) -> Any:
    return _called(call, call.inputs)


def _called(call: _RawCall, inputs: list[Tensor]) -> Any:
    body = call.function("f", [t.dtype for t in inputs])
    call.check("results", [t.dtype for t in body.outputs], call.attrs["Tout"], call.attrs["f"].name)
    with call.inside():
        results, effects = call.copied(body, inputs)
    return call.finished(results, effects)


def _remote(call: _RawCall) -> Any:
    """On the device that the target names, where that is known while the graph is built; else where it fits."""
    target = constant_value(call.inputs[0])
    if target is None:
        with call.graph.control_dependencies([call.inputs[0].op]):
            return _called(call, call.inputs[1:])
    with call.graph.device(target.item().decode()):
        return _called(call, call.inputs[1:])


def _symbolic_gradient(call: _RawCall) -> Any:
    """The gradients of a function with respect to its arguments, zeros where there is none."""
    wanted: list[DType] = call.attrs["Tout"]
    count = len(wanted)
    values = call.inputs[:count]
    body = call.function("f", [t.dtype for t in values])
    needed = [*(t.dtype for t in body.inputs), *(t.dtype for t in body.outputs)]
    call.check("arguments and results", needed, [t.dtype for t in call.inputs], call.attrs["f"].name)
    call.check("gradients", [t.dtype for t in values], wanted, call.attrs["f"].name)
    with call.inside():
        # one tensor may be several arguments, each with a gradient of its own
        arguments = [raw.Identity(t) for t in values]
        results, effects = call.copied(body, arguments)
        found = _gradients_of(results, arguments, call.inputs[count:])
        flat = [raw.ZerosLike(x) if g is None else convert_to_tensor(g) for x, g in zip(arguments, found, strict=True)]
    return call.finished(flat, effects)


def _gradients_of(ys: list[Tensor], xs: list[Tensor], grads: list[Tensor]) -> list[Any]:
    flowing = [(y, g) for y, g in zip(ys, grads, strict=True) if y.dtype.is_floating or y.dtype.is_complex]
    if not flowing:
        return [None] * len(xs)
    return gradients([y for y, _ in flowing], xs, [g for _, g in flowing])


def _for(call: _RawCall) -> Any:
    types: list[DType] = call.attrs["T"]
    body = call.function("body", [t.dtype for t in (call.inputs[0], *call.inputs[3:])])
    call.check("results", [t.dtype for t in body.outputs], types, call.attrs["body"].name)
    with call.inside():
        start, limit, delta = (raw.EnsureShape(t, shape=[]) for t in call.inputs[:3])
        with call.graph.control_dependencies([_checked_range(start, limit, delta)]):
            start = raw.Identity(start)
        last, *results = _looped(call, body, start, limit, delta)
    return call.finished(results, [last.op])


def _checked_range(start: Tensor, limit: Tensor, delta: Tensor) -> Operation:
    upwards = raw.LogicalAnd(raw.Greater(delta, 0), raw.LessEqual(start, limit))
    downwards = raw.LogicalAnd(raw.Less(delta, 0), raw.GreaterEqual(start, limit))
    fits = raw.LogicalOr(raw.LogicalOr(upwards, downwards), raw.Equal(start, limit))
    checked: Operation = raw.Assert(fits, ["Invalid start/limit/delta: ", start, limit, delta])
    return checked


def _looped(call: _RawCall, body: FunctionGraph, start: Tensor, limit: Tensor, delta: Tensor) -> list[Tensor]:
    """The counter after the loop, and the results; what each iteration passes on unchanged is no loop variable."""
    inputs = call.inputs[3:]
    varying = [i for i, t in enumerate(body.outputs) if _root(t) is not body.inputs[i + 1]]

    def going(i: Tensor, *_: Tensor) -> Tensor:
        return raw.SelectV2(raw.Greater(delta, 0), raw.Less(i, limit), raw.Greater(i, limit))  # type: ignore[no-any-return]

    def iterate(i: Tensor, *values: Tensor) -> list[Tensor]:
        graph = get_default_graph()
        given = dict(enumerate(inputs)) | dict(zip(varying, values, strict=True))
        arguments = [i, *(graph.capture(given[n]) for n in range(len(inputs)))]
        tensors, effects = copied_into(body, graph, dict(zip(body.inputs, arguments, strict=True)))
        with graph.control_dependencies(effects):
            return [raw.AddV2(i, delta), *(raw.Identity(tensors[body.outputs[n]]) for n in varying)]

    def loop(shapes: list[TensorShape]) -> list[Tensor]:
        first, invariants = [start, *(inputs[n] for n in varying)], [TensorShape([]), *shapes]
        last, *found = while_loop(going, iterate, first, invariants, return_same_structure=True)
        results = dict(enumerate(inputs)) | dict(zip(varying, found, strict=True))
        return [last, *(results[n] for n in range(len(inputs)))]

    try:
        with call.graph.all_or_nothing():
            return loop([inputs[n].shape for n in varying])
    except ValueError:  # the function may change shapes
        return loop([TensorShape(None)] * len(varying))


def _root(tensor: Tensor) -> Tensor:
    """The tensor of which one is a copy."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _dataset_to_graph(call: _RawCall) -> Any:
    with call.inside():
        text = graph_of_dataset(
            call.inputs[0],
            call.attrs["stateful_whitelist"],
            call.attrs["allow_stateful"],
            call.attrs["strip_device_assignment"],
        )
    return call.finished([text], ())[0]


def _dataset_from_graph(call: _RawCall) -> Any:
    with call.inside() as scope:
        dataset = dataset_of_graph(call.inputs[0], scope)
    return call.finished([dataset], ())[0]


_BUILDERS = {
    "DatasetFromGraph": _dataset_from_graph,
    "DatasetToGraph": _dataset_to_graph,
    "PartitionedCall": _plain,
    "StatefulPartitionedCall": _plain,
    "RemoteCall": _remote,
    "SymbolicGradient": _symbolic_gradient,
    "For": _for,
}
