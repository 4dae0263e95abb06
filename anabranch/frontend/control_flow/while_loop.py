"""Loops for users: while_loop (§3.4, WP4.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch.autodiff.loops  # the gradient of While  # noqa: F401
from anabranch.core import dtypes, nest
from anabranch.core.attrs import FuncAttr
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape, covers
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.frontend.control_flow.conditionals import scalar_predicate
from anabranch.frontend.control_flow.loop_invariants import read_before, read_within
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.building import apply_op
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Structure,
    shape_invariants: Structure | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: TensorLike | None = None,
    return_same_structure: bool = False,
) -> nest.Structure:
    """Repeats `body` as long as `cond` is true.

    Args:
        cond: called with the loop variables; returns a boolean scalar tensor.
        body: called with the loop variables; returns their next values, in the same structure.
        loop_vars: a list or tuple, nested as one likes, of tensors, `TensorArray`s and sparse tensors.
        shape_invariants: structure of shapes like `loop_vars`: what holds of each variable's shape in every iteration.
            Default: the shape with which it enters.
        parallel_iterations: how many iterations may overlap; a compiled loop decides for itself.
        back_prop: whether gradients flow through the loop.
        swap_memory: accepted; what the gradient needs of the iterations stays on the device.
        name: of the operation.
        maximum_iterations: scalar int32; the loop stops after so many iterations whatever `cond` says.
        return_same_structure: whether a loop with a single tensor returns it in the structure of `loop_vars`.

    Returns:
        The loop variables after the last iteration, in the structure of `loop_vars`. If they are one tensor in all (or
        one `TensorArray`), the only element of `loop_vars` itself, unless `return_same_structure`; also where
        `maximum_iterations` is given and the body returned that element by itself.

    Raises:
        TypeError: `cond` or `body` is not callable, or the body changes a variable's dtype.
        ValueError: no loop variables; the body returns another structure, or a value whose shape does not keep to its
            invariant.

    Example:
        >>> i, total = tf.while_loop(lambda i, total: i < 4, lambda i, total: (i + 1, total + i), (0, 0))
        >>> sess.run([i, total])
        [np.int32(4), np.int32(6)]
    """
    if not callable(cond):
        raise TypeError("cond must be callable.")
    if not callable(body):
        raise TypeError("body must be callable.")
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    if not loop_vars:
        raise ValueError("No loop variables provided")
    with get_default_graph().name_scope(name or "while") as scope:
        loop = _LoopBuilder(scope, loop_vars, shape_invariants, maximum_iterations)
        loop.trace(cond, body)
        results = loop.build(parallel_iterations)
        if not back_prop:
            results = nest.map_structure(_without_gradient, results)
    return results[0] if loop.is_unpacked and not return_same_structure else results


def _without_gradient(value: TensorLike) -> Any:
    return rebuilt(value, [raw.StopGradient(t) for t in components(value)])


# ---------------------------------------------------------------------- loop variables
def _component_shapes(value: TensorLike, invariant: Structure) -> list[TensorShape]:
    tensors = components(value)
    if isinstance(value, TensorArray):
        return [TensorShape([])]
    if isinstance(value, SparseTensor):
        rank = value.dense_shape.shape if invariant is None else _invariant(value.dense_shape, invariant)
        if rank.dims_tuple is None:
            rank = TensorShape([None])
        count = rank.dims_tuple[0] if rank.dims_tuple else None
        return [TensorShape([None, count]), TensorShape([None]), rank]
    if isinstance(value, RaggedTensor):
        return _ragged_shapes(value, invariant)
    if isinstance(value, IndexedSlices):
        shape = value.values.shape if invariant is None else TensorShape(invariant)
        rest = [] if value.dense_shape is None else [value.dense_shape.shape]
        return [shape, TensorShape(shape.dims_tuple[:1] if shape.dims_tuple else None), *rest]
    if invariant is None:
        return [tensors[0].shape]
    return [_invariant(tensors[0], invariant)]


def _ragged_shapes(value: RaggedTensor, invariant: Structure) -> list[TensorShape]:
    """Of the values and the splits: the number of rows and the shape of inner values stay, their numbers may not."""
    shape = value.shape if invariant is None else TensorShape(getattr(invariant, "shape", invariant))
    inner = TensorShape(None) if shape.ndims is None else shape[value.ragged_rank + 1 :]
    rows = None if shape.ndims is None else shape.as_list()[0]
    outer = TensorShape([None if rows is None else rows + 1])
    return [TensorShape([None]).concatenate(inner), outer, *[TensorShape([None])] * (value.ragged_rank - 1)]


def _invariant(tensor: Tensor, invariant: Structure) -> TensorShape:
    """The shape that a user says a tensor keeps in the loop."""
    shape = TensorShape(getattr(invariant, "shape", invariant))
    if not covers(shape, tensor.shape):
        raise ValueError(
            f"The shape invariant specified for {tensor.name} is not compatible with the initial shape of the loop "
            f"variable. It enters the loop with shape {tensor.shape}, but the specified shape invariant is {shape}"
            "; leave open what may differ, as in tf.TensorShape([None])."
        )
    return shape


class _LoopBuilder:
    """One loop being built."""

    def __init__(
        self, scope: str, loop_vars: Structure, shape_invariants: Structure, maximum_iterations: TensorLike
    ) -> None:
        self.outer = get_default_graph()
        self.scope = scope.rstrip("/").replace("/", "_")
        self.structure = loop_vars
        leaves = [_converted(v) for v in nest.flatten(loop_vars)]
        self.leaves = leaves
        invariants = _flat_invariants(shape_invariants, loop_vars, len(leaves))
        self.inputs = [self._entering(t) for v in leaves for t in components(v)]
        self.shapes = [s for v, i in zip(leaves, invariants, strict=True) for s in _component_shapes(v, i)]
        self.limit = None
        if maximum_iterations is not None:
            self.limit = convert_to_tensor(maximum_iterations, dtypes.int32, name="maximum_iterations")
            if self.limit.shape.ndims not in (None, 0):
                raise ValueError(f"maximum_iterations must be a scalar, saw shape: {self.limit.shape}")
            self.inputs.append(convert_to_tensor(0, dtypes.int32, name="iteration_counter"))
            self.shapes.append(TensorShape([]))

    def _entering(self, tensor: Tensor) -> Tensor:
        captured = self.outer.capture(tensor)
        if captured.graph is not self.outer:
            raise ValueError(
                f"loop variable {tensor.name} (created at {tensor.op.site}) belongs to another graph than the loop; "
                "build both in one `with graph.as_default()` block"
            )
        return captured

    # ---- tracing
    def trace(self, cond: Callable[..., Any], body: Callable[..., Any]) -> None:
        """Builds the condition and the body."""
        self.condition, self.body = self._graph("cond"), self._graph("body")
        with self.condition.as_default():
            self.condition.outputs = [self._truth(cond)]
        with self.body.as_default():
            results = body(*self._arguments(self.body))
            self.results = self._flat_results(results)
            following = [self._own(t) for v in self.results for t in components(v)]
            if self.limit is not None:
                following.append(raw.AddV2(self.body.inputs[len(following)], 1))
            self._check(following)
            self.body.outputs = following

    def _graph(self, label: str) -> FunctionGraph:
        graph = FunctionGraph(f"{self.scope}_{label}", self.outer)
        for tensor, shape in zip(self.inputs, self.shapes, strict=True):
            parameter = graph.add_parameter(
                tensor.dtype.base_dtype, shape, tensor.op.name.rsplit("/", 1)[-1].lstrip("_") or "x"
            )
            if tensor.dtype in (dtypes.variant, dtypes.resource):
                parameter.set_attribute("handle_of", tensor.get_attribute("handle_of", tensor))
        return graph

    def _arguments(self, graph: FunctionGraph) -> Any:
        at = iter(graph.inputs)
        values = [rebuilt(v, [next(at) for _ in components(v)]) for v in self.leaves]
        packed = nest.pack_sequence_as(self.structure, values)
        return packed.values() if isinstance(packed, dict) else packed

    def _truth(self, cond: Callable[..., Any]) -> Tensor:
        truth = convert_to_tensor(cond(*self._arguments(self.condition)))
        if truth.dtype.base_dtype is not dtypes.bool:
            raise TypeError(f"cond must return a boolean scalar tensor, got {truth.dtype.name} ({truth.name})")
        if truth.shape.ndims not in (None, 0):
            raise ValueError(f"cond must return a boolean scalar tensor, got shape {truth.shape} ({truth.name})")
        truth = scalar_predicate(truth)
        if self.limit is not None:
            counter = self.condition.inputs[len(self.inputs) - 1]
            truth = raw.LogicalAnd(raw.Less(counter, self.limit), truth)
        return self.condition.capture(truth)

    def _flat_results(self, results: Structure) -> list[Any]:
        if isinstance(results, Operation) or results is None:
            raise ValueError(f"body must return the next values of the loop variables, got {results!r}")
        top = self.structure
        self.returned_bare = len(top) == 1 and self._is_bare(results)
        if self.returned_bare:
            results = [results]
        self.returned_as = type(results)
        if isinstance(results, list | tuple) and isinstance(top, list | tuple) and not hasattr(top, "_fields"):
            results = (
                type(top)(results) if type(results) is not type(top) and not hasattr(results, "_fields") else results
            )
        try:
            nest.assert_same_structure(
                list(top) if isinstance(top, tuple | list) else top,
                list(results) if isinstance(results, tuple | list) else results,
                check_types=False,
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The two structures don't have the same nested structure: the body must return values "
                f"in the structure of loop_vars: {error}"
            ) from None
        return [_converted(v, like) for v, like in zip(nest.flatten(results), self.leaves, strict=True)]

    def _is_bare(self, results: Structure) -> bool:
        """Whether the body returned the only loop variable by itself; a structured one only under a limit."""
        if not nest.is_nested(results):
            return True
        (only,) = self.structure.values() if isinstance(self.structure, dict) else self.structure
        bare = nest.is_nested(only) and _same(only, results) and not _same(self.structure, results)
        return bare and self.limit is not None

    @property
    def is_unpacked(self) -> bool:
        """Whether the loop's result is its only variable by itself."""
        if not isinstance(self.structure, list | tuple):
            return False
        has_one = sum(len(components(v)) for v in self.leaves) == 1
        return has_one if self.limit is None else len(self.structure) == 1 and (has_one or self.returned_bare)

    def _own(self, tensor: Tensor) -> Tensor:
        return self.body.capture(tensor)

    def _check(self, following: list[Tensor]) -> None:
        if len(following) != len(self.inputs):
            raise ValueError("the body must return loop variables of the same kinds as it was given")
        for entered, shape, tensor in zip(self.inputs, self.shapes, following, strict=True):
            if entered.dtype.base_dtype is not tensor.dtype.base_dtype:
                raise TypeError(
                    f"Loop variable {entered.name} enters the loop with type {entered.dtype.name}, but has type "
                    f"{tensor.dtype.name} after one iteration ({tensor.name}, created at {tensor.op.site}); use tf.cast"
                )
            if not covers(shape, tensor.shape):
                raise ValueError(
                    f"The shape for {entered.name} is not an invariant for the loop. It enters the loop with shape "
                    f"{shape}, but has shape {tensor.shape} after one iteration. Provide shape invariants using either "
                    "the `shape_invariants` argument of tf.while_loop or set_shape() on the loop variables."
                )

    # ---- the operation
    def build(self, parallel_iterations: int) -> Any:
        """Adds the loop and returns its results."""
        condition, body, outer = self.condition, self.body, self.outer
        waits = [op for g in (condition, body) for op in g.outer_control_inputs]
        with outer.control_dependencies(waits):
            replaced = read_before((condition, body))
        read_within((condition, body))
        captured = list(dict.fromkeys([*condition.captures, *body.captures]))
        count = len(self.inputs)
        for graph in (condition, body):
            for tensor in captured:
                graph.capture_as_parameter(tensor)
            by_outer = dict(zip(graph.captures, graph.captured_parameters, strict=True))
            graph.inputs = [*graph.inputs[:count], *(by_outer[t] for t in captured)]
        body.outputs = [*body.outputs, *body.inputs[count:]]
        stateful = any(
            op.op_def.stateful and op.type != "Placeholder" and op not in replaced
            for g in (condition, body)
            for op in g.get_operations()
        )
        bound = {
            "input": [*self.inputs, *captured],
            "cond": FuncAttr(outer.add_function(condition.name, condition)),
            "body": FuncAttr(outer.add_function(body.name, body)),
            "output_shapes": [*self.shapes, *(t.shape for t in captured)],
            "parallel_iterations": parallel_iterations,
        }
        with outer.control_dependencies(waits):
            op = apply_op(op_def_of("While" if stateful else "StatelessWhile"), bound, "While")
        return self._packed(op)

    def _packed(self, op: Operation) -> Any:
        at = iter(op.outputs)
        values = []
        for like, result in zip(self.leaves, self.results, strict=True):
            tensors = [next(at) for _ in components(like)]
            values.append(rebuilt(result if isinstance(like, TensorArray) else like, tensors))
        packed = nest.pack_sequence_as(self.structure, values)
        given = self.returned_as
        if type(packed) is given or not (issubclass(given, list | tuple) and isinstance(packed, list | tuple)):
            return packed
        # the values in what the body gave them in: a list, a tuple, a tuple with names
        return given(*packed) if hasattr(given, "_fields") else given(packed)


def _same(structure: Structure, other: Structure) -> bool:
    try:
        nest.assert_same_structure(structure, other, check_types=False)
    except (TypeError, ValueError):
        return False
    return True


def _converted(value: TensorLike, like: TensorLike | None = None) -> Any:
    if isinstance(value, TensorArray | SparseTensor | IndexedSlices | RaggedTensor):
        return value
    wanted = like.dtype if isinstance(like, Tensor) and not isinstance(value, Tensor) else None
    try:
        return convert_to_tensor(value, wanted)
    except (TypeError, ValueError):
        return convert_to_tensor(value)


def _flat_invariants(shape_invariants: Structure, loop_vars: Structure, count: int) -> list[Any]:
    if shape_invariants is None:
        return [None] * count
    flat: list[Any] = []

    def visit(structure: Structure, shapes: Structure) -> None:
        if not nest.is_nested(structure):
            flat.append(TensorShape(getattr(shapes, "shape", shapes)) if shapes is not None else None)
            return
        keys = sorted(structure) if isinstance(structure, dict) else range(len(structure))
        if not hasattr(shapes, "__len__") or len(shapes) != len(structure):
            raise ValueError("shape_invariants must have the structure of loop_vars, with one shape per variable")
        for key in keys:
            visit(structure[key], shapes[key])

    visit(loop_vars, shape_invariants)
    return flat
