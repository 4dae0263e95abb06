"""Conditionals for users: cond, case, switch_case, and static choices (§3.4, WP4.4)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import anabranch.autodiff.conditional  # the gradient of If  # noqa: F401
from anabranch.core import dtypes, nest
from anabranch.core.attrs import FuncAttr
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.graph.building import apply_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: the functions of branches, in order or with their numbers
BranchFunctions: TypeAlias = (
    Mapping[int, Callable[[], Any]] | Sequence[Callable[[], Any]] | Sequence[tuple[int, Callable[[], Any]]]
)
#: predicates, each with the function of its branch
Cases: TypeAlias = "Mapping[Any, Callable[[], Any]] | Sequence[tuple[TensorLike, Callable[[], Any]]]"


@overload
def cond(
    pred: TensorLike,
    true_fn: Callable[[], Tensor],
    false_fn: Callable[[], Tensor],
    strict: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def cond(
    pred: TensorLike,
    true_fn: Callable[[], Any] | None = ...,
    false_fn: Callable[[], Any] | None = ...,
    strict: bool = ...,
    name: str | None = ...,
    fn1: Callable[[], Any] | None = ...,
    fn2: Callable[[], Any] | None = ...,
) -> nest.Structure: ...
def cond(
    pred: TensorLike,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> nest.Structure:
    """`true_fn()` if `pred` is true, else `false_fn()`; only the operations of the branch taken run.

    What a branch takes from outside is computed in either case.

    Args:
        pred: boolean scalar tensor.
        true_fn, false_fn: build the branches; they return the same structure of tensors with the same dtypes.
        strict: keep one-element lists and tuples in the result instead of unpacking them, the two outermost ones.
        name: of the operation.
        fn1, fn2: deprecated names of the two branches.

    Returns:
        What the branches return, with a tensor for each of their results, of the shape that both have.

    Raises:
        TypeError: a branch is not callable, `pred` is a Python bool or no boolean tensor, or the branches return other
            dtypes, or other kinds of lists and tuples.
        ValueError: the branches return different structures, or one of them returns None.

    Example:
        >>> x = tf.placeholder(tf.float32, [])
        >>> y = tf.cond(x < 0.0, lambda: -x, lambda: x * 10.0)
        >>> sess.run(y, {x: -3.0}), sess.run(y, {x: 3.0})
        (np.float32(3.0), np.float32(30.0))
    """
    true_fn, false_fn = _branch("true_fn", true_fn, fn1), _branch("false_fn", false_fn, fn2)
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool; use a Python `if`, or tf.constant")
    if isinstance(pred, Tensor) and pred.dtype.base_dtype is not dtypes.bool:
        raise TypeError(f"pred must be a boolean tensor, and {pred.name} is of {pred.dtype.name}; use tf.cast")
    with get_default_graph().name_scope(name or "cond") as scope:
        pred_tensor = scalar_predicate(convert_to_tensor(pred, dtypes.bool, name="pred"))
        graph = get_default_graph()
        bodies = [_Body("cond_true", true_fn, graph, strict), _Body("cond_false", false_fn, graph, strict, False)]
        for label, body in zip(("true_fn", "false_fn"), bodies, strict=True):
            if body.structure is None:
                raise ValueError(f"{label} must have a return value.")
        _widen_indices(bodies)
        _check_branches("true_fn", bodies[0], "false_fn", bodies[1])
        op = _build_if(pred_tensor, bodies, scope)
        return bodies[0].pack(op)


def scalar_predicate(pred: Tensor) -> Tensor:
    """`pred`, which is to be a scalar: the step checks it where the graph does not tell.

    Raises:
        ValueError: it is known to be none.
    """
    if pred.shape.ndims is None:
        checked: Tensor = raw.EnsureShape(pred, shape=[])
        return checked
    pred.shape.assert_has_rank(0)
    return pred


def _branch(what: str, given: Callable[..., Any] | None, deprecated: Callable[..., Any] | None) -> Callable[[], Any]:
    if given is not None and deprecated is not None:
        raise TypeError(f"cond(): {what} and its deprecated name may not be set simultaneously.")
    function = given if given is not None else deprecated
    if not callable(function):
        raise TypeError(f"cond(): {what} must be callable, got {function!r}")
    return function


class _Body:
    """A branch being built: its function graph, and how its results are put together again.

    Args:
        truth: what stands for a result that is an operation.
    """

    def __init__(self, label: str, function: Callable[[], Any], outer: Graph, strict: bool, truth: bool = True) -> None:
        self.graph, self.strict, self.truth = FunctionGraph(label, outer), strict, truth
        with self.graph.as_default():
            result = function()
            self.structure = result = self._unpacked(result)
            self.flat = [] if result is None else nest.flatten(result)
            parts = [self._tensors(item) for item in self.flat]
        self.counts = [len(tensors) for tensors in parts]
        self.graph.outputs = [tensor for tensors in parts for tensor in tensors]

    def _tensors(self, item: TensorLike) -> list[Tensor]:
        if isinstance(item, Operation):
            with self.graph.control_dependencies([item]):
                return [raw.Identity(convert_to_tensor(self.truth))]
        return [self._own(t) for t in components(item)]

    def _own(self, tensor: Tensor) -> Tensor:
        captured = self.graph.capture(tensor)
        # an output that is a parameter would be the caller's own tensor; the branch passes it on as a value
        return raw.Identity(captured) if captured in self.graph.inputs else captured

    def pack(self, op: Operation) -> Any:
        if self.structure is None:
            return None
        values = iter(op.outputs)
        packed = [
            rebuilt(item, list(itertools.islice(values, count)))
            for item, count in zip(self.flat, self.counts, strict=True)
        ]
        return self._unpacked(nest.pack_sequence_as(self.structure, packed))

    def _unpacked(self, result: Structure) -> Any:
        is_single = not self.strict and isinstance(result, list | tuple) and len(result) == 1
        return result[0] if is_single else result


def _widen_indices(bodies: list[_Body]) -> None:
    """Makes the indices of IndexedSlices int64 where some branches have them in int32 and others in int64."""
    for position, same in enumerate(zip(*(body.flat for body in bodies), strict=False)):
        if not all(isinstance(item, IndexedSlices) for item in same):
            continue
        places = [(body.graph, sum(body.counts[:position]) + 1) for body in bodies]
        if len({graph.outputs[at].dtype for graph, at in places}) > 1:
            for graph, at in places:
                with graph.as_default():
                    graph.outputs[at] = raw.Cast(graph.outputs[at], DstT=dtypes.int64)


def _check_branches(one: str, first: _Body, other: str, second: _Body) -> None:
    if (first.structure is None) != (second.structure is None):
        raise ValueError(f"{one} and {other} must both return values, or both return None")
    if first.structure is not None:
        try:
            nest.assert_same_structure(first.structure, second.structure)
        except TypeError as error:
            raise TypeError(f"Incompatible return types of {one} and {other}: {error}") from None
        except ValueError as error:
            raise ValueError(f"Incompatible return values of {one} and {other}: {error}") from None
    for i, (a, b) in enumerate(zip(first.graph.outputs, second.graph.outputs, strict=False)):
        if a.dtype.base_dtype is not b.dtype.base_dtype:
            raise TypeError(
                f"Outputs of {one} and {other} must have the same type: output {i} is {a.dtype.name} ({a.name}, "
                f"created at {a.op.site}) and {b.dtype.name} ({b.name}, created at {b.op.site}); use tf.cast"
            )
    if len(first.graph.outputs) != len(second.graph.outputs):
        raise ValueError(f"{one} and {other} must return the same number of tensors")


def _build_if(pred: Tensor, bodies: list[_Body], scope: str) -> Operation:
    bound, functions = _common_attributes(bodies, scope)
    bound |= {"cond": pred, "then_branch": functions[0], "else_branch": functions[1]}
    return _build("If", bound, bodies)


def _common_attributes(bodies: list[_Body], scope: str) -> tuple[dict[str, Any], list[FuncAttr]]:
    """The arguments that all conditionals have, and their branches as functions of the graph."""
    graphs = [body.graph for body in bodies]
    inputs = _share_captures(graphs)
    prefix, outer = scope.rstrip("/").replace("/", "_"), get_default_graph()
    functions = [FuncAttr(outer.add_function(f"{prefix}_{g.name}", g)) for g in graphs]
    outputs = [g.outputs for g in graphs]
    bound = {
        "input": inputs,
        "Tout": [t.dtype.base_dtype for t in outputs[0]],
        "output_shapes": [functools.reduce(_joined, (t.shape for t in same)) for same in zip(*outputs, strict=True)],
    }
    return bound, functions


def _build(kind: str, bound: dict[str, Any], bodies: list[_Body]) -> Operation:
    graphs = [body.graph for body in bodies]
    stateful = any(op.op_def.stateful and op.type != "Placeholder" for g in graphs for op in g.get_operations())
    waits = [op for g in graphs for op in g.outer_control_inputs]
    with get_default_graph().control_dependencies(waits):
        return apply_op(op_def_of(kind if stateful else f"Stateless{kind}"), bound, kind)


def _share_captures(graphs: list[FunctionGraph]) -> list[Tensor]:
    """Gives both branches the same parameters: everything that either of them captured."""
    captured = list(dict.fromkeys(t for g in graphs for t in g.captures))
    for graph in graphs:
        for tensor in captured:
            graph.capture_as_parameter(tensor)
        by_outer = dict(zip(graph.captures, graph.captured_parameters, strict=True))
        graph.inputs = [by_outer[t] for t in captured]
    return captured


def _joined(a: TensorShape, b: TensorShape) -> TensorShape:
    """What holds of a value that has either shape."""
    if a.dims_tuple is None or b.dims_tuple is None or len(a.dims_tuple) != len(b.dims_tuple):
        return TensorShape(None)
    return TensorShape([x if x == y else None for x, y in zip(a.dims_tuple, b.dims_tuple, strict=True)])


# ---------------------------------------------------------------------- choice by number
def switch_case(
    branch_index: TensorLike,
    branch_fns: BranchFunctions,
    default: Callable[[], Any] | None = None,
    name: str = "switch_case",
) -> nest.Structure:
    """The result of the function of number `branch_index`; only the operations of that branch run.

    Args:
        branch_index: int32 scalar tensor.
        branch_fns: list of callables, list of (int, callable), or a dict of these, numbered from 0 without gaps. They
            return the same structure of tensors with the same dtypes.
        default: called for other numbers; None: the function of the highest number is.

    Raises:
        TypeError: `branch_fns` is none of these, a number is not an int or a function not callable, or dtypes differ.
        ValueError: no functions, numbers with gaps or twice, or results of different structures.
    """
    functions = _numbered(branch_fns)
    if default is not None:
        if not callable(default):
            raise TypeError(f"default must be callable, got {default!r}")
        functions = [*functions, default]
    with get_default_graph().name_scope(name) as scope:
        index = convert_to_tensor(branch_index, dtypes.int32, name="branch_index")
        if index.shape.ndims not in (None, 0):
            raise ValueError(f"branch_index must be a scalar, got shape {index.shape} ({index.name})")
        return _chosen(index, functions, scope)


def _chosen(index: Tensor, functions: Sequence[Callable[[], Any]], scope: str, strict: bool = True) -> Any:
    """The result of the function of number `index`; of the last one where there is none of that number."""
    graph = get_default_graph()
    bodies = [_Body(f"branch{i}", function, graph, strict) for i, function in enumerate(functions)]
    _widen_indices(bodies)
    for i, body in enumerate(bodies[1:], 1):
        _check_branches("branch 0", bodies[0], f"branch {i}", body)
    bound, branches = _common_attributes(bodies, scope)
    return bodies[0].pack(_build("Case", bound | {"branch_index": index, "branches": branches}, bodies))


def _numbered(branch_fns: BranchFunctions) -> list[Callable[[], Any]]:
    """The functions of `switch_case` in the order of their numbers."""
    if not isinstance(branch_fns, dict | list | tuple):
        raise TypeError(f"branch_fns must be a dict, list, or tuple, got {branch_fns!r}")
    items = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    if items and all(callable(item) for item in items):
        items = list(enumerate(items))
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not callable(item[1]):
            raise TypeError(f"Each entry in branch_fns must be a callable, or an (int, callable) pair, got {item!r}")
        if not isinstance(item[0], int):
            raise TypeError(f"the number of a branch must be a Python `int`, got {item[0]!r}")
    numbers = sorted(number for number, _ in items)
    if not numbers or numbers != list(range(len(numbers))):
        raise ValueError(f"branch indices must form contiguous numbers from 0 on, found {numbers}")
    return [function for _, function in sorted(items, key=lambda item: item[0])]


# ---------------------------------------------------------------------- case
def case(
    pred_fn_pairs: Cases,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> nest.Structure:
    """The result of the first function whose predicate is true, else of `default`.

    Args:
        pred_fn_pairs: list of (boolean scalar tensor, callable), or a dict of these.
        default: called when no predicate is true; None: the step fails then.
        exclusive: whether the step fails when more than one predicate is true.
        strict: keep one-element lists and tuples in the result instead of unpacking them.
        name: of the operation.

    Returns:
        What the functions return, with a tensor for each of their results.

    Raises:
        TypeError: the pairs are not pairs of a tensor and a callable.

    Raises (in the step):
        InvalidArgumentError: no predicate is true and there is no default, or several are with `exclusive`.

    Example:
        >>> x = tf.placeholder(tf.int32, [])
        >>> size = tf.case([(x < 10, lambda: tf.constant("small"))], default=lambda: tf.constant("large"))
        >>> sess.run(size, {x: 12})
        b'large'
    """
    pairs = _pairs(pred_fn_pairs, exclusive)
    with get_default_graph().name_scope(name) as scope:
        preds = [scalar_predicate(convert_to_tensor(p, dtypes.bool)) for p, _ in pairs]
        controls = _exclusive_check(preds) if exclusive else []
        if default is None:
            controls.append(_any_check(preds))
            pairs, default = pairs[:-1], pairs[-1][1]
        functions = [*(f for _, f in pairs), default]
        with get_default_graph().control_dependencies(controls):
            if len(functions) == 1:
                return default()
            if len(functions) == 2:
                return cond(preds[0], functions[0], default, strict=strict)
            return _chosen(_first_true(preds[: len(pairs)]), functions, scope, strict)


def _first_true(preds: Sequence[Tensor]) -> Tensor:
    """The position of the first true predicate; their number where there is none."""
    truths = raw.Cast(raw.Pack([*preds, convert_to_tensor(True)]), DstT=dtypes.int32)
    first: Tensor = raw.ArgMax(truths, 0, output_type=dtypes.int32)
    return first


def _pairs(pred_fn_pairs: Cases, exclusive: bool) -> list[tuple[Any, Callable[[], Any]]]:
    if isinstance(pred_fn_pairs, dict):
        items = list(pred_fn_pairs.items())
        pairs = items if exclusive else sorted(items, key=lambda item: getattr(item[0], "name", str(item[0])))
    elif isinstance(pred_fn_pairs, list | tuple):
        pairs = list(pred_fn_pairs)
    else:
        raise TypeError("pred_fn_pairs must be a list, tuple, or dict")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"Each entry in pred_fn_pairs must be a (predicate, callable) tuple, got {pair!r}")
    if not pairs:
        raise ValueError("case() needs at least one pair")
    return pairs


def _exclusive_check(preds: Sequence[Tensor]) -> list[Operation]:
    count = raw.Sum(raw.Cast(raw.Pack(list(preds)), DstT=dtypes.int32), 0)
    names = ", ".join(p.name for p in preds)
    message = f"Input error: exclusive=True, but more than one of the conditions ({names}) is true"
    return [raw.Assert(raw.LessEqual(count, 1), [convert_to_tensor(message)])]


def _any_check(preds: Sequence[Tensor]) -> Operation:
    names = ", ".join(p.name for p in preds)
    message = f"Input error: none of the conditions ({names}) is true, and there is no default"
    return raw.Assert(raw.Any(raw.Pack(list(preds)), 0), [convert_to_tensor(message)])  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- static choices
def smart_constant_value(pred: TensorLike) -> bool | None:
    """The truth of `pred` where it is known while the graph is built: a Python bool or int, or a constant tensor."""
    if isinstance(pred, bool):
        return pred
    if isinstance(pred, int) and pred in (0, 1):
        return bool(pred)
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        return None if value is None else bool(value)
    if hasattr(pred, "_as_graph_element") or hasattr(pred, "handle"):
        return None
    raise TypeError(f"`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: {pred!r}")


def smart_cond(
    pred: TensorLike, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None
) -> Any:
    """Like `cond`, but a predicate that is known while the graph is built chooses its branch at once."""
    known = smart_constant_value(pred)
    if known is None:
        return cond(pred, true_fn, false_fn, name=name)
    return true_fn() if known else false_fn()


def smart_case(
    pred_fn_pairs: Cases, default: Callable[[], Any] | None = None, exclusive: bool = False, name: str = "smart_case"
) -> nest.Structure:
    """Like `case`, but predicates that are known while the graph is built are resolved at once."""
    left: list[tuple[Any, Callable[[], Any]]] = []
    for pred, function in _pairs(pred_fn_pairs, exclusive):
        known = smart_constant_value(pred)
        if known and not left:
            return function()
        if known is None:
            left.append((pred, function))
        elif known:
            default = function
            break
    if not left:
        if default is None:
            raise ValueError("smart_case(): no predicate is true and there is no default")
        return default()
    return case(left, default, exclusive, name=name)
