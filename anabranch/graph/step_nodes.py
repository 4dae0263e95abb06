"""Nodes: what a step runs, apart from the user's graph (§3.2; docs/decisions/0032).

When a step is planned, the operations that it needs are copied to nodes once (`passes.prune`). The passes then make
graphs of nodes from graphs of nodes, and nothing of the user's graph is looked at any more. A node keeps the name of
its operation and the line that created it, for messages and profiles.

A `StepNode` and a `StepTensor` have what kernels, shape rules and cost models ask of an `Operation` and a `Tensor`,
under the same names. They do not know who takes their results, and never change once a pass has given them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.op_def import OpDef
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.errors import NotFoundError
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.operation import Operation, Tensor


class _NotKnown:
    """The value of a tensor that only the step finds out."""

    def __repr__(self) -> str:
        return "not known"


NOT_KNOWN: Final = _NotKnown()


class StepTensor:
    """A tensor of a step: a node computes it, or it is fed, or its value is known.

    Attributes:
        op: the node that it comes from. A node that is not part of the step only lends its name: then the tensor is
            fed, or known.
        value_index: which output of the node it is.
        known: its value, where that is the same in every such step (a NumPy array, or a resource handle); `NOT_KNOWN`
            elsewhere.
    """

    __slots__ = ("__weakref__", "_constant", "dtype", "known", "op", "shape", "value_index")

    def __init__(
        self, op: StepNode, value_index: int, dtype: DType, shape: TensorShape, known: TensorValue = NOT_KNOWN
    ) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self.shape = shape
        self.known = known
        #: its value where that follows from constants and shapes alone, once somebody has computed it
        self._constant: Any = None

    @property
    def name(self) -> str:
        """``<node name>:<output index>``."""
        return f"{self.op.name}:{self.value_index}"

    @property
    def is_known(self) -> bool:
        """Whether its value is the same in every such step."""
        return self.known is not NOT_KNOWN

    def __repr__(self) -> str:
        return f"<StepTensor {self.name} {self.dtype.name}{self.shape}>"


class StepNode:
    """One operation of a step.

    Attributes:
        name: unique in its step.
        inputs: what it takes, flat.
        outputs: what it gives, flat.
        control_inputs: nodes of the step that it waits for, and dies with, besides those that produce its inputs.
        after: nodes that it waits for, dead or alive, although no tensor or control edge says so.
        device: what the program asks for; may be partial or empty.
        placed_on: the full name of the device that it was placed on; empty: the default device.
        number: its place in the order in which the operations were created, which decides between equals.
        site: the line of the user's code that created the operation.
        origin: names the operation beyond this step: ``name``, or ``name@function`` in the body of a function.
        functions: the functions that its attributes name.
    """

    __slots__ = (
        *("__weakref__", "after", "attrs", "control_inputs", "device", "functions", "inputs", "name", "number"),
        *("op_def", "origin", "outputs", "placed_on", "site"),
    )

    def __init__(
        self,
        op_def: OpDef,
        name: str,
        inputs: list[StepTensor],
        control_inputs: tuple[StepNode, ...],
        attrs: dict[str, Any],
        device: str,
        number: int,
        site: CreationSite,
        origin: str,
        functions: Mapping[str, StepFunction],
    ) -> None:
        self.op_def = op_def
        self.name = name
        self.inputs = inputs
        self.outputs: list[StepTensor] = []
        self.control_inputs = control_inputs
        self.after: tuple[StepNode, ...] = ()
        self.attrs = attrs
        self.device = device
        self.placed_on = ""
        self.number = number
        self.site = site
        self.origin = origin
        self.functions = functions

    @property
    def type(self) -> str:
        return self.op_def.name

    @property
    def creation_site(self) -> str:
        """``file:line`` of the user code that created the operation."""
        return str(self.site)

    def function(self, name: str) -> StepFunction:
        """The function of that name, which an attribute mentions.

        Raises:
            NotFoundError: the graph has no such function.
        """
        function = self.functions.get(name)
        if function is None:
            raise NotFoundError(
                None, self, f"operation {self.name!r} ({self.type}) calls the function {name!r}, which the graph lacks"
            )
        return function

    def copied(
        self,
        inputs: list[StepTensor],
        control_inputs: tuple[StepNode, ...],
        after: tuple[StepNode, ...] = (),
        placed_on: str | None = None,
    ) -> StepNode:
        """The same operation with other edges, and outputs of its own."""
        node = StepNode(
            self.op_def,
            self.name,
            inputs,
            control_inputs,
            self.attrs,
            self.device,
            self.number,
            self.site,
            self.origin,
            self.functions,
        )
        node.after = after
        node.placed_on = self.placed_on if placed_on is None else placed_on
        node.outputs = [StepTensor(node, t.value_index, t.dtype, t.shape, t.known) for t in self.outputs]
        return node

    def __repr__(self) -> str:
        return f"<StepNode {self.name} {self.type}>"


class StepFunction:
    """The body of a function as steps call it.

    Attributes:
        name: that of the function graph in the library of its graph.
        inputs: the parameters: outputs of nodes that are not among `operations`.
        outputs: the results.
        operations: what a call runs, in an order that respects all edges: what the results need, without the
            parameters. As everywhere, an operation that nothing depends on does not run; control dependencies make it.
        colocated: operations of the function graph that do not run, but whose devices others are to share: by name.
        facts: what was found out about a call (`loop_bodies.remembered`).
    """

    __slots__ = ("__weakref__", "colocated", "facts", "inputs", "name", "operations", "outputs")

    def __init__(
        self,
        name: str,
        inputs: Sequence[StepTensor],
        outputs: Sequence[StepTensor],
        operations: list[StepNode],
        colocated: Mapping[str, StepNode],
    ) -> None:
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.operations = operations
        self.colocated = colocated
        self.facts: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<StepFunction {self.name}, {len(self.operations)} operations>"


#: what kernels, shape rules and questions about bodies are asked of: while a graph is built, and in a step
AnyOperation = Operation | StepNode
AnyTensor = Tensor | StepTensor


def called_names(attrs: Mapping[str, Any], op_def: OpDef) -> list[str]:
    """The names of the functions that the attributes of an operation mention, in the order of its signature."""
    names: list[str] = []
    for name, attr in op_def.attrs.items():
        if attr.kind in {"func", "list(func)"}:
            value = attrs[name]
            functions = value if isinstance(value, list) else [value]
            names.extend(f.name for f in functions if isinstance(f, FuncAttr) and f.name)
    return names
