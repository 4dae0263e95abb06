"""Symbolic reverse-mode differentiation (§4.1, WP4.1).

`gradients` walks the operations between `xs` and `ys` backwards. An operation is differentiated when the gradients of
all its consumers on such a path are complete; the gradients that meet at a tensor are summed then.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from anabranch.autodiff.aggregation import AggregationMethod, aggregate
from anabranch.autodiff.zeros import zeros_like
from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.registry import find_gradient
from anabranch.core.roles import Role
from anabranch.core.values import TensorLike
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.conversion import REFERENCE, convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.inner_values import owner_of
from anabranch.graph.loop_structure import is_back_edge, lifted
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.known_shapes import full_shape

_lifting: list[str] = []


def lift_loops_by(module: str) -> None:
    """Names the module that makes loops of primitives anew, so that they can be differentiated; imported when needed.

    Args:
        module: its function `lift` is called with the Exits that lie between the xs and the ys, and the xs. It
            exchanges the loops that these leave, and notes at each result what stands for it (`graph.loop_structure`).
    """
    _lifting[:] = [module]


class UnconnectedGradients(enum.Enum):
    """What the gradient with respect to an x is that no y depends on: None, or zeros of x's shape."""

    NONE = "none"
    ZERO = "zero"


def gradients(
    ys: TensorLike | Sequence[TensorLike],
    xs: TensorLike | Sequence[TensorLike],
    grad_ys: TensorLike | Sequence[TensorLike] | None = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: TensorLike | Sequence[TensorLike] | None = None,
    unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
) -> list[Any]:
    """Adds operations that compute the sum over ys of d(y)/d(x), for each x.

    Args:
        ys: tensor or list of tensors to be differentiated.
        xs: tensor, variable, or a list of these.
        grad_ys: initial gradients, one per y, of its shape; None (the whole or an element): ones.
        name: name scope of the operations added.
        colocate_gradients_with_ops: whether each gradient operation shares the device of the operation it belongs to.
        gate_gradients: whether all gradients of an operation must be ready before any of them is used.
        aggregation_method: one of `AggregationMethod`'s values; all give the same sums.
        stop_gradients: tensors through which no gradient flows: they count as constants.
        unconnected_gradients: what stands for the gradient of an x that no y depends on.

    Returns:
        One gradient per x: a tensor of x's dtype and shape, IndexedSlices where only some rows are known to be
        different from zero, or None.

    Raises:
        LookupError: an operation between xs and ys has no gradient.
        ValueError: the arguments do not fit each other; an operation's gradient function is wrong.
        TypeError: a y is of a dtype that has no gradient.

    Example:
        >>> x = tf.constant([1.0, 2.0])
        >>> sess.run(tf.gradients(x * x, [x]))
        [array([2., 4.], dtype=float32)]
    """
    try:
        unconnected = UnconnectedGradients(unconnected_gradients)
    except ValueError:
        raise ValueError(
            f"Unknown value for unconnected_gradients: {unconnected_gradients!r}; it is 'none' or 'zero'"
        ) from None
    y_list = [_y_tensor(y) for y in _as_list(ys)]
    x_list = [_x_tensor(x) for x in _as_list(xs)]
    if not y_list:
        return [None] * len(x_list)
    source = y_list[0].graph
    graph = _building_graph(source)
    with graph.as_default(), graph.name_scope(name):
        stop = [_x_tensor(t) for t in _as_list(stop_gradients)] if stop_gradients is not None else []
        seeds = _initial_gradients(y_list, _as_list(grad_ys) if grad_ys is not None else [None] * len(y_list))
        backward = _without_loops(source, y_list, x_list, stop)
        backward.graph, backward.colocate, backward.gate = graph, colocate_gradients_with_ops, gate_gradients
        backward.aggregation = AggregationMethod.DEFAULT if aggregation_method is None else aggregation_method
        grads = backward.run(seeds)
        return [_connected(g, x, unconnected) for g, x in zip(grads, x_list, strict=True)]


def operations_between(ys: list[Any], xs: list[Any]) -> list[Operation]:
    """The operations on the paths from xs to ys, those nearest to the ys first."""
    tensors = [_y_tensor(y) for y in ys]
    return _Backward(tensors[0].graph, tensors, [_x_tensor(x) for x in xs], []).between


def _without_loops(source: Graph, ys: list[Tensor], xs: list[Tensor], stop: list[Tensor]) -> _Backward:
    """The backward pass, once no loop of primitives is on its way."""
    before: list[Operation] = []
    while True:
        backward = _Backward(source, *(list(map(lifted, tensors)) for tensors in (ys, xs, stop)))
        exits = [op for op in backward.between if op.op_def.role is Role.EXIT]
        if not _lifting or exits == before:
            return backward
        before = exits
        # all results of a loop that is made anew depend on all that it takes, so that further loops may be on the way
        importlib.import_module(_lifting[0]).lift(exits, xs)


def _as_list(value: TensorLike | Sequence[TensorLike]) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _y_tensor(y: TensorLike) -> Tensor:
    return convert_to_tensor(y, name="y")


def _x_tensor(x: TensorLike) -> Tensor:
    handle = getattr(x, "handle", None)
    if isinstance(handle, Tensor):
        return handle
    if isinstance(x, Tensor) and REFERENCE in x.op.attrs:
        return x.op.inputs[0]  # whatever depends on the variable has a read of its own
    return x.values if isinstance(x, IndexedSlices) else convert_to_tensor(x, name="x")


def _building_graph(source: Graph) -> Graph:
    """Where the gradients are built: in a function body that is open, else in the graph of the ys."""
    default = get_default_graph()
    return default if default.building_function else source


def _connected(gradient: Gradient | None, x: Tensor, unconnected: UnconnectedGradients) -> Any:
    if gradient is None and unconnected is UnconnectedGradients.ZERO:
        return zeros_like(x)
    return gradient


def _initial_gradients(ys: list[Tensor], grad_ys: list[Any]) -> list[Any]:
    if len(grad_ys) != len(ys):
        raise ValueError(f"grad_ys has {len(grad_ys)} elements for {len(ys)} ys; give one gradient per y")
    seeds: list[Any] = []
    for i, (y, grad) in enumerate(zip(ys, grad_ys, strict=True)):
        if grad is None:
            if not (y.dtype.is_floating or y.dtype.is_integer):
                problem = "Cannot differentiate y"
                if y.dtype.is_complex:
                    problem = "Gradients of complex tensors must set grad_ys"
                raise TypeError(
                    f"{problem} (y.dtype = {y.dtype!r}): {y.name}; give its gradient in grad_ys, or use a y of "
                    "floating-point numbers"
                )
            one = convert_to_tensor(1, y.dtype, name=f"grad_ys_{i}")
            seeds.append(raw.Fill(full_shape(y), one))
            continue
        if not isinstance(grad, IndexedSlices):
            grad = convert_to_tensor(grad, name=f"grad_ys_{i}")
            if not grad.dtype.is_compatible_with(y.dtype):
                raise TypeError(f"grad_ys[{i}] has dtype {grad.dtype.name}, but y {y.name} has {y.dtype.name}")
            grad = _shaped_as(y, grad, i)
        seeds.append(grad)
    return seeds


def _shaped_as(y: Tensor, grad: Tensor, index: int) -> Tensor:
    """`grad` with the shape of `y`, where it has as many elements, such as shape [1] for a scalar."""
    if grad.shape.is_compatible_with(y.shape):
        return grad
    if grad.shape.num_elements() != y.shape.num_elements():
        raise ValueError(f"grad_ys[{index}] has shape {grad.shape}, but y {y.name} has {y.shape}")
    reshaped: Tensor = raw.Reshape(grad, y.shape.as_list())
    return reshaped


class _Backward:
    """One backward pass: which operations of the ys' graph lie between xs and ys, and the gradients that arrived.

    The gradients may be built in another graph than the one that is walked: a function body built for the gradient of
    a conditional takes the values of the forward body as captures.

    Where the ys are in a function body and an x is in a graph around it, the walk goes on from what the body captures
    to the operations that computed it. Their gradients are built in the body as well.
    """

    graph: Graph
    colocate: bool
    gate: bool
    aggregation: int
    #: what depends on the xs, up to where the gradients stop: gradients of anything else lead nowhere
    marked: set[Tensor]

    def __init__(self, source: Graph, ys: list[Tensor], xs: list[Tensor], stop: list[Tensor]) -> None:
        enclosing = set(_enclosing(source))
        self.leaves_body = any(x.graph in enclosing for x in xs)
        inside = _uncaptured if self.leaves_body else source.capture
        self.ys = [inside(y) for y in ys]
        self.xs = [inside(x) for x in xs]
        self.stop = {inside(t) for t in stop}
        self.between = self._operations_between()
        self.arrived: dict[Tensor, list[Any]] = {}

    def _operations_between(self) -> list[Operation]:
        """The operations on a path from an x to a y, latest first."""
        ordered = _in_order(self._reachable_backwards(), self._inputs_of)
        marked: set[Tensor] = {x for x in self.xs if _carries_gradients(x)}
        while True:
            before = len(marked)
            between: list[Operation] = []
            for op in ordered:
                if any(t in marked for t in self._inputs_of(op)):
                    between.append(op)
                    marked.update(t for t in op._outputs if t not in self.stop and _carries_gradients(t))
            # what a loop of primitives hands to its next iteration may lead to operations that were passed over
            if len(marked) == before or not any(op.op_def.role is Role.NEXT_ITERATION for op in between):
                self.marked = marked
                return between[::-1]

    def _inputs_of(self, op: Operation) -> list[Tensor]:
        return [_uncaptured(t) for t in op._inputs] if self.leaves_body else op._inputs

    def _reachable_backwards(self) -> set[Operation]:
        reached: set[Operation] = set()
        stack = [y.op for y in self.ys]
        while stack:
            op = stack.pop()
            if op not in reached:
                reached.add(op)
                stack.extend(t.op for t in self._inputs_of(op) if t not in self.stop)
        return reached

    def run(self, seeds: list[Any]) -> list[Any]:
        for y, seed in zip(self.ys, seeds, strict=True):
            self.arrived.setdefault(y, []).append(seed)
        for op, others in self._groups():
            self._differentiate(op, others)
        return [self._total(x) for x in self.xs]

    def _total(self, tensor: Tensor) -> Any:
        """The sum of the gradients that arrived at a tensor; kept, so that it is summed once."""
        terms = self.arrived.get(tensor)
        if not terms:
            return None
        if len(terms) > 1:
            with self._beside(tensor, terms):
                self.arrived[tensor] = terms = [aggregate(terms, self.aggregation, tensor)]
        return terms[0]

    def _beside(self, tensor: Tensor, terms: list[Any]) -> contextlib.AbstractContextManager[object]:
        """Where gradients are summed, with `colocate`: where they are, or where the tensor is, if they are apart."""
        if not self.colocate:
            return contextlib.nullcontext()
        devices = {term.device for term in terms}
        return self.graph.colocate_with(terms[-1].op if len(devices) == 1 else tensor.op)

    def _groups(self) -> list[tuple[Operation, list[Operation]]]:
        """What is differentiated, in order: an operation, with those that stand beside it.

        They are one computation, which takes the same inputs. It comes where the last of them does: then the gradients
        of all that they give are complete.
        """
        groups: dict[Operation, list[Operation]] = {}
        for op in self.between:
            owner = owner_of(op)
            others = groups.pop(owner, [])
            groups[owner] = others if op is owner else [*others, op]
        return list(groups.items())

    def _differentiate(self, op: Operation, others: list[Operation]) -> None:
        out_grads = [None if t in self.stop else self._total(t) for t in op._outputs]
        further = [(other, [self._total(t) for t in other._outputs]) for other in others]
        if all(g is None for grads in (out_grads, *(grads for _, grads in further)) for g in grads):
            return
        function = _gradient_function(op)
        if function is None:
            return
        with self._gradient_scope(op):
            filled = [_zeros_if_missing(g, t) for g, t in zip(out_grads, op._outputs, strict=True)]
            in_grads = _as_flat_list(function(op, *filled, others=further) if further else function(op, *filled))
            if len(in_grads) == 1 and len(op._inputs) > 1 and in_grads[0] is None:
                in_grads = [None] * len(op._inputs)
            if len(in_grads) != len(op._inputs):
                raise ValueError(
                    f"Num gradients {len(in_grads)} generated for op {op.name} ({op.type}) do not match num inputs "
                    f"{len(op._inputs)}; its gradient function must return one value (or None) per input"
                )
            # a gate must not make a step compute what nobody asked for, a gradient to fed data say
            in_grads = [g if t in self.marked else None for t, g in zip(self._inputs_of(op), in_grads, strict=True)]
            if self.gate and sum(g is not None for g in in_grads) > 1:
                in_grads = _gated(in_grads)
        for tensor, grad in zip(self._inputs_of(op), in_grads, strict=True):
            if grad is not None:
                self.arrived.setdefault(tensor, []).append(_checked(op, tensor, grad))

    @contextlib.contextmanager
    def _gradient_scope(self, op: Operation) -> Any:
        colocation = self.graph.colocate_with(op) if self.colocate else contextlib.nullcontext()
        with self.graph.name_scope(op.name + "_grad"), colocation:
            yield


def _enclosing(graph: Graph) -> Iterator[Graph]:
    """The graphs around a function body, the nearest first."""
    outer = getattr(graph, "outer_graph", None)
    while outer is not None:
        yield outer
        outer = getattr(outer, "outer_graph", None)


def _uncaptured(tensor: Tensor) -> Tensor:
    """The tensor of an enclosing graph that a parameter stands for, or `tensor` itself."""
    while isinstance(tensor.graph, FunctionGraph):
        outer = tensor.graph.captured_from(tensor)
        if outer is None:
            break
        tensor = outer
    return tensor


_InputsOf = Callable[[Operation], list[Tensor]]


def _in_order(operations: Iterable[Operation], inputs_of: _InputsOf) -> list[Operation]:
    """Operations in an order that respects data edges; those of enclosing graphs come first."""
    depth = {graph: sum(1 for _ in _enclosing(graph)) for graph in {op.graph for op in operations}}
    place = {op: (depth[op.graph], op._id) for op in operations}
    ordered = sorted(place, key=place.__getitem__)
    before = (-1, -1)  # what was not reached
    if all(place.get(t._op, before) < place[op] or is_back_edge(op, t) for op in ordered for t in inputs_of(op)):
        return ordered
    return _topological(ordered, inputs_of)


def _topological(operations: list[Operation], inputs_of: _InputsOf) -> list[Operation]:
    """For graphs whose creation order is not an execution order (imported ones): depth first, without recursion."""
    members = set(operations)
    done: dict[Operation, None] = {}
    entered: set[Operation] = set()
    stack = [(op, False) for op in reversed(operations)]
    while stack:
        op, expanded = stack.pop()
        if expanded:
            done[op] = None
        elif op not in entered:
            entered.add(op)
            stack.append((op, True))
            inputs = (t for t in inputs_of(op) if not is_back_edge(op, t))
            stack.extend((t.op, False) for t in inputs if t.op in members and t.op not in entered)
    return list(done)


def _gradient_function(op: Operation) -> Callable[..., Any] | None:
    override = op.attrs.get("_gradient_op_type")
    key = override.decode() if override is not None else op.type
    try:
        return find_gradient(key)
    except LookupError:
        raise LookupError(
            f"No gradient defined for operation '{op.name}' (op type: {op.type}), created at {op.site}; use "
            "tf.stop_gradient on its input, or register one with tf.RegisterGradient"
        ) from None


def _carries_gradients(tensor: Tensor) -> bool:
    """Whether what depends on `tensor` depends on it smoothly: numbers of steps, say, do not."""
    dtype = tensor.dtype
    return dtype.is_floating or dtype.is_complex or dtype in (dtypes.resource, dtypes.variant)


def _zeros_if_missing(grad: Gradient | None, tensor: Tensor) -> Any:
    if grad is None and (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return zeros_like(tensor)
    return grad


def _as_flat_list(result: Structure) -> list[Any]:
    if isinstance(result, list | tuple) and not isinstance(result, IndexedSlices):
        return [leaf for item in result for leaf in _as_flat_list(item)]
    return [result]


def _gated(grads: list[Any]) -> list[Any]:
    """Ties the gradients of one operation together: none is available before all are."""
    dense = [g for g in grads if isinstance(g, Tensor)]
    tied = iter(raw.IdentityN(dense)) if len(dense) > 1 else iter(dense)
    return [next(tied) if isinstance(g, Tensor) else g for g in grads]


def _checked(op: Operation, tensor: Tensor, grad: Gradient | None) -> Any:
    """A gradient takes over what is known of its tensor's shape; it must agree with it."""
    if not isinstance(grad, Tensor):
        return grad if isinstance(grad, IndexedSlices) else convert_to_tensor(grad)
    if tensor.dtype is dtypes.resource:
        return grad
    try:
        grad.set_shape(tensor.shape)
    except ValueError as error:
        raise ValueError(
            f"Incompatible shapes between op input and calculated input gradient. Forward operation: {op.name}. "
            f"Input: {tensor.name} {tensor.shape}. Gradient: {grad.shape}."
        ) from error
    return grad


def hessians(
    ys: TensorLike | Sequence[TensorLike],
    xs: TensorLike | Sequence[TensorLike],
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Any]:
    """The matrices of second derivatives of sum(ys) with respect to each x.

    Returns:
        For an x of shape S (fully known), a tensor of shape S + S.

    Raises:
        ValueError: the number of elements of an x is not known while the graph is built.
    """
    results = []
    kwargs: dict[str, Any] = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
    }
    x_list = _as_list(xs)
    for i, (x, first) in enumerate(zip(x_list, gradients(ys, x_list, name=name, **kwargs), strict=True)):
        shape = convert_to_tensor(x).shape
        size = shape.num_elements()
        if size is None:
            raise ValueError(
                f"hessians: the size of x {x!r} must be known while the graph is built, but its shape is {shape}"
            )
        flat = raw.Reshape(first, [size])
        rows = [gradients(element, x, name=f"{name}_{i}", **kwargs)[0] for element in raw.Unpack(flat, num=size)]
        filled = [raw.ZerosLike(convert_to_tensor(x)) if row is None else row for row in rows]
        results.append(raw.Reshape(raw.Pack(filled), [*(shape.dims_tuple or ()), *(shape.dims_tuple or ())]))
    return results
