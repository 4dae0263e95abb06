"""Function graphs: the bodies of functional control flow, and of functions in a graph's library."""

from __future__ import annotations

from anabranch.core.dtypes import DType, resource, variant
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.graph.constants import CAPTURED, COPIED
from anabranch.graph.graph import Graph, get_default_graph, op_def_of
from anabranch.graph.loop_bodies import operations_behind
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.scopes import ControlScope

_COPIED_CONSTANT_BYTES = 1024


class FunctionGraph(Graph):
    """A graph with parameters and results.

    Tensors of an enclosing graph that the body uses are *captured*: each becomes one more parameter, and
    `captures` tells which outer tensor the caller must pass for it. Small constants are copied instead, so that
    what is known of them stays known inside.

    Attributes:
        name: the function's name in the library of the graph that holds it.
        inputs: parameters, in order: the declared ones, then the captures.
        outputs: results, set by whoever builds the body.
    """

    building_function = True

    def __init__(self, name: str, outer_graph: Graph | None = None) -> None:
        super().__init__()
        self.name = name
        self.outer_graph = outer_graph or get_default_graph()
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self._captured: dict[Tensor, Tensor] = {}
        self._constants: dict[Tensor, Tensor] = {}
        self.seed = self.outer_graph.seed
        self._collections = self.outer_graph._collections
        self._scopes.container = self.outer_graph.current_container
        #: the scopes in which operations of enclosing graphs are waited for, with these
        self._outer_controls: list[tuple[ControlScope, list[Operation]]] = []

    @property
    def captures(self) -> list[Tensor]:
        """The outer tensors that the caller passes, in the order of the last parameters."""
        return list(self._captured)

    @property
    def captured_parameters(self) -> list[Tensor]:
        """The parameters that stand for `captures`."""
        return list(self._captured.values())

    def captured_from(self, parameter: Tensor) -> Tensor | None:
        """The tensor of the enclosing graph that a parameter stands for; None of declared ones."""
        outer: Tensor | None = parameter.get_attribute(CAPTURED)
        return outer

    def add_parameter(self, dtype: DType, shape: ShapeLike, name: str) -> Tensor:
        """Declares one more parameter."""
        parameter = self._placeholder(dtype, TensorShape(shape), name)
        self.inputs.append(parameter)
        return parameter

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this body that stands for an outer one.

        Raises:
            ValueError: `tensor` is not of an enclosing graph.
        """
        if tensor.graph is self:
            return tensor
        if tensor in self._captured:
            return self._captured[tensor]
        if tensor in self._constants:
            return self._constants[tensor]
        outer = self._as_outer(tensor)
        if self._is_copied(tensor):
            copied = self._copy_constant(tensor)
            self._constants[tensor] = copied
            return copied
        return self.capture_as_parameter(outer)

    def capture_as_parameter(self, outer: Tensor) -> Tensor:
        """Like `capture`, for a tensor of the directly enclosing graph, and never as a copied constant."""
        if outer in self._captured:
            return self._captured[outer]
        parameter = self._placeholder(outer.dtype, outer.shape, outer.op.name.rsplit("/", 1)[-1].lstrip("_") or "x")
        if outer.dtype in (resource, variant):
            parameter.set_attribute("handle_of", outer.get_attribute("handle_of", outer))
        self.inputs.append(parameter)
        self._captured[outer] = parameter
        parameter.set_attribute(CAPTURED, outer)
        return parameter

    @property
    def outer_control_inputs(self) -> list[Operation]:
        """The operations of enclosing graphs that something waits for which the results need: the caller waits."""
        needed = operations_behind(self.outputs) if self._outer_controls else set()
        waited = (op for scope, outer in self._outer_controls if not scope.seen.isdisjoint(needed) for op in outer)
        return list(dict.fromkeys(waited))

    def _control_scope(self, operations: list[Operation]) -> ControlScope:
        scope = super()._control_scope([op for op in operations if op.graph is self])
        outer = [op for op in operations if op.graph is not self]
        if outer:
            self._outer_controls.append((scope, outer))
        return scope

    def _as_outer(self, tensor: Tensor) -> Tensor:
        """The tensor of the directly enclosing graph: levels in between capture it too."""
        assert self.outer_graph is not None
        graph: Graph | None = self.outer_graph
        while graph is not None and graph is not tensor.graph:
            graph = graph.outer_graph
        if graph is None:
            raise ValueError(
                f"tensor {tensor.name} (created at {tensor.op.site}) cannot be used inside the function {self.name!r}: "
                "it belongs neither to its body nor to an enclosing graph"
            )
        return self.outer_graph.capture(tensor)

    def _placeholder(self, dtype: DType, shape: TensorShape, name: str) -> Tensor:
        attrs = {"dtype": dtype.base_dtype, "shape": shape}
        return self.create_op(op_def_of("Placeholder"), [], attrs, name=name, control_inputs=[]).outputs[0]

    def _is_copied(self, tensor: Tensor) -> bool:
        """Whether a body holds a copy of a constant instead of taking it as a parameter, so that shapes follow from it.

        Not where a gradient could be asked for: that of a copy would not be the gradient of the constant.
        """
        return is_small_constant(tensor) and not (tensor.dtype.is_floating or tensor.dtype.is_complex)

    def _copy_constant(self, tensor: Tensor) -> Tensor:
        attrs = dict(tensor.op.attrs)
        attrs.pop("_class", None)
        op = self.create_op(tensor.op.op_def, [], attrs, name=tensor.op.name.rsplit("/", 1)[-1], control_inputs=[])
        op.outputs[0].set_attribute(COPIED, True)
        return op.outputs[0]


def is_small_constant(tensor: Tensor) -> bool:
    """Whether a tensor is a constant that costs less to copy than to pass as an argument."""
    return tensor.op.type == "Const" and bool(tensor.op.attrs["value"].nbytes <= _COPIED_CONSTANT_BYTES)
