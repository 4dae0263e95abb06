"""Ways to select operations and tensors: by names, by what is connected, by walks along the edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypeVar

from anabranch.frontend.graph_editor.elements import (
    ControlOutputs,
    Element,
    OperationsLike,
    TensorsLike,
    concatenate_unique,
    get_consuming_ops,
    get_generating_ops,
    is_iterable,
    make_list_of_op,
    make_list_of_t,
)
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor

_Item = TypeVar("_Item", Operation, Tensor)
#: what a walk begins with: operations, or tensors whose operations are meant
Seeds: TypeAlias = Element | Iterable[Element]
#: which are kept: those for which a function says so, or all
Filter: TypeAlias = Callable[[_Item], object] | Literal[True]
Regex: TypeAlias = str | re.Pattern[str]
#: a regular expression for names, operations, tensors
Selector: TypeAlias = Regex | Element | Iterable[Element] | Graph

_TENSORS_ONLY = "(?#ts)"
_OPERATIONS_ONLY = "(?#ops)"


def can_be_regex(obj: object) -> bool:
    """Whether something is a regular expression, or the text of one."""
    return isinstance(obj, str | re.Pattern)


def make_regex(obj: Regex) -> re.Pattern[str]:
    """A compiled regular expression.

    Raises:
        ValueError: `obj` is neither a text nor a regular expression.
    """
    if not isinstance(obj, str | re.Pattern):
        raise ValueError(f"Expected a string or a regex, got: {type(obj)}")
    return re.compile(obj)


# ---------------------------------------------------------------------- filters
def _input_tensors(ops: Iterable[Operation]) -> list[Tensor]:
    return list(dict.fromkeys(tensor for op in ops for tensor in op.inputs))


def _output_tensors(ops: Iterable[Operation]) -> list[Tensor]:
    return [tensor for op in ops for tensor in op.outputs]


def filter_ts(ops: OperationsLike, positive_filter: Filter[Tensor]) -> list[Tensor]:
    """The tensors that some operations take or give, as far as a function says so.

    Args:
        ops: operations.
        positive_filter: the function; True: all of them.

    Raises:
        TypeError: `ops` are no operations.
    """
    listed = make_list_of_op(ops)
    tensors = concatenate_unique(_input_tensors(listed), _output_tensors(listed))
    return tensors if positive_filter is True else [tensor for tensor in tensors if positive_filter(tensor)]


def filter_ts_from_regex(ops: OperationsLike, regex: Regex) -> list[Tensor]:
    r"""The tensors that some operations take or give whose names (``x:0``) a regular expression finds something in."""
    pattern = make_regex(regex)
    return filter_ts(ops, lambda tensor: pattern.search(tensor.name))


def filter_ops(ops: OperationsLike, positive_filter: Filter[Operation]) -> list[Operation]:
    """Those of some operations for which a function says so; True: all of them.

    Raises:
        TypeError: `ops` are no operations.
    """
    listed = make_list_of_op(ops)
    return listed if positive_filter is True else [op for op in listed if positive_filter(op)]


def filter_ops_from_regex(ops: OperationsLike, regex: Regex) -> list[Operation]:
    """Those of some operations whose names a regular expression finds something in."""
    pattern = make_regex(regex)
    return filter_ops(ops, lambda op: pattern.search(op.name))


def get_name_scope_ops(ops: OperationsLike, scope: str) -> list[Operation]:
    """Those of some operations that are in a name scope, or have its name."""
    name = scope.removesuffix("/")
    return filter_ops(ops, lambda op: op.name == name or op.name.startswith(f"{name}/"))


# ---------------------------------------------------------------------- what is connected
def check_cios(
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> tuple[bool, ControlOutputs | None]:
    """Which control edges count: into operations, and out of them.

    Args:
        control_inputs: whether those into operations do.
        control_outputs: those out of operations; None: they do not count.
        control_ios: both count.

    Raises:
        TypeError: what says which edges lead out is no `ControlOutputs`.
        ValueError: `control_outputs` and `control_ios` are both given.
    """
    for edges in (control_outputs, control_ios):
        if edges is not None and not isinstance(edges, ControlOutputs):
            raise TypeError(f"Expected a util.ControlOutputs, got: {type(edges)}")
    if control_ios is not None:
        if control_outputs is not None:
            raise ValueError("control_outputs should be None when using control_ios.")
        control_inputs, control_outputs = True, control_ios
    return control_inputs, None if control_outputs is None else control_outputs.update()


def get_ops_ios(
    ops: OperationsLike,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:
    """The operations next to some: which give what they take, and take what they give.

    Args:
        control_inputs, control_outputs, control_ios: see `check_cios`.
    """
    inward, outward = check_cios(control_inputs, control_outputs, control_ios)
    found: list[Operation] = []
    for op in make_list_of_op(ops):
        found.extend(tensor.op for tensor in op.inputs)
        found.extend(consumer for tensor in op.outputs for consumer in tensor.consumers())
        found.extend(() if outward is None else outward.get(op))
        found.extend(op.control_inputs if inward else ())
    return list(dict.fromkeys(found))


def compute_boundary_ts(ops: OperationsLike) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The tensors that enter some operations, leave them, and stay within.

    A tensor that operations within and without take both leaves and stays.

    Returns:
        `(outside_input_ts, outside_output_ts, inside_ts)`: tensors of other operations that they take; tensors of
        theirs that others take, or none; tensors of theirs that they take.

    Raises:
        TypeError: `ops` are no operations.
    """
    listed = make_list_of_op(ops)
    members = set(listed)
    taken = _input_tensors(listed)
    inside = [tensor for tensor in taken if tensor.op in members]
    kept = {tensor for tensor in inside if members.issuperset(tensor.consumers())}
    entering = [tensor for tensor in taken if tensor.op not in members]
    return entering, [tensor for tensor in _output_tensors(listed) if tensor not in kept], inside


def get_within_boundary_ops(
    ops: OperationsLike,
    seed_ops: OperationsLike,
    boundary_ops: OperationsLike = (),
    inclusive: bool = True,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:
    """The operations that can be reached from some along edges, whatever their direction, within a boundary.

    Args:
        ops: among which: operations, or a graph.
        seed_ops: where to begin.
        boundary_ops: what is not gone beyond.
        inclusive: whether the boundary belongs to the result, as far as it was reached.
        control_inputs, control_outputs, control_ios: see `check_cios`.

    Raises:
        TypeError: they are no operations.
        ValueError: a seed is in the boundary.
    """
    inward, outward = check_cios(control_inputs, control_outputs, control_ios)
    among = make_list_of_op(ops)
    seeds = make_list_of_op(seed_ops, allow_graph=False)
    boundary = set(make_list_of_op(boundary_ops))
    if not boundary.isdisjoint(seeds):
        raise ValueError("Boundary is intersecting with the seeds.")
    found, wave = set(seeds), seeds
    while wave:
        new = [op for op in get_ops_ios(wave, inward, outward) if op not in found]
        wave = [op for op in new if op not in boundary]
        found.update(new if inclusive else wave)
    return [op for op in among if op in found]


# ---------------------------------------------------------------------- walks
def _walked(
    seeds: list[Operation],
    inclusive: bool,
    within_ops: OperationsLike | None,
    within_ops_fn: Callable[[Operation], object] | None,
    near: Callable[[Operation], Iterable[Operation]],
) -> list[Operation]:
    """What is reached from some operations, in waves; `near` gives the operations next to one."""
    within = None if within_ops is None else set(make_list_of_op(within_ops, allow_graph=False))

    def allowed(op: Operation) -> bool:
        return (within is None or op in within) and (within_ops_fn is None or bool(within_ops_fn(op)))

    # an empty list restricts the walk, but not where it begins
    starts = seeds if within is not None and not within else [op for op in seeds if allowed(op)]
    found = dict.fromkeys(starts)
    wave = list(found)
    while wave:
        reached = dict.fromkeys(other for op in wave for other in near(op))
        wave = [op for op in reached if op not in found and allowed(op)]
        found.update(dict.fromkeys(wave))
    left_out = set() if inclusive else set(starts)
    return [op for op in found if op not in left_out]


def _seed_operations(seeds: Seeds, of_tensors: Callable[[TensorsLike], list[Operation]]) -> list[Operation]:
    listed: list[Element] = list(seeds) if is_iterable(seeds) else [seeds]  # type: ignore[arg-type,list-item]
    if listed and isinstance(listed[0], Tensor):
        return of_tensors(make_list_of_t(listed, allow_graph=False))
    return make_list_of_op(listed, allow_graph=False)


def get_forward_walk_ops(
    seed_ops: Seeds,
    inclusive: bool = True,
    within_ops: OperationsLike | None = None,
    within_ops_fn: Callable[[Operation], object] | None = None,
    stop_at_ts: TensorsLike = (),
    control_outputs: ControlOutputs | None = None,
) -> list[Operation]:
    """The operations that depend on some.

    Args:
        seed_ops: where to begin: operations, or tensors for what takes them.
        inclusive: whether these belong to the result.
        within_ops: what may be visited; default: everything.
        within_ops_fn: a function that says of an operation whether it may be visited.
        stop_at_ts: tensors that are not followed.
        control_outputs: control edges that are followed, too.

    Returns:
        The operations, the nearest first.

    Raises:
        TypeError: they are no operations.

    Example:
        >>> x = tf.constant(1.0, name="x")
        >>> y = tf.negative(x, name="y")
        >>> [op.name for op in tf.contrib.graph_editor.get_forward_walk_ops([x.op])]
        ['x', 'y']
    """
    _, outward = check_cios(False, control_outputs)
    stops = set(make_list_of_t(stop_at_ts))

    def after(op: Operation) -> list[Operation]:
        followers = [consumer for tensor in op.outputs if tensor not in stops for consumer in tensor.consumers()]
        return followers if outward is None else [*followers, *outward.get(op)]

    return _walked(_seed_operations(seed_ops, get_consuming_ops), inclusive, within_ops, within_ops_fn, after)


def get_backward_walk_ops(
    seed_ops: Seeds,
    inclusive: bool = True,
    within_ops: OperationsLike | None = None,
    within_ops_fn: Callable[[Operation], object] | None = None,
    stop_at_ts: TensorsLike = (),
    control_inputs: bool = False,
) -> list[Operation]:
    """The operations that some depend on.

    Args:
        seed_ops: where to begin: operations, or tensors for what computes them.
        inclusive, within_ops, within_ops_fn, stop_at_ts: as for `get_forward_walk_ops`.
        control_inputs: whether control edges are followed, too.

    Returns:
        The operations, the nearest first.

    Raises:
        TypeError: they are no operations.

    Example:
        >>> x = tf.constant(1.0, name="x")
        >>> y = tf.negative(x, name="y")
        >>> [op.name for op in tf.contrib.graph_editor.get_backward_walk_ops(y)]
        ['y', 'x']
    """
    stops = set(make_list_of_t(stop_at_ts))

    def before(op: Operation) -> list[Operation]:
        sources = [tensor.op for tensor in op.inputs if tensor not in stops]
        return [*sources, *op.control_inputs] if control_inputs else sources

    return _walked(_seed_operations(seed_ops, get_generating_ops), inclusive, within_ops, within_ops_fn, before)


def get_walks_intersection_ops(
    forward_seed_ops: Seeds,
    backward_seed_ops: Seeds,
    forward_inclusive: bool = True,
    backward_inclusive: bool = True,
    within_ops: OperationsLike | None = None,
    within_ops_fn: Callable[[Operation], object] | None = None,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:
    """The operations that a walk forward and a walk backward both visit: those on the paths between.

    Args:
        forward_seed_ops, forward_inclusive: of `get_forward_walk_ops`.
        backward_seed_ops, backward_inclusive: of `get_backward_walk_ops`.
        within_ops, within_ops_fn: of both.
        control_inputs, control_outputs, control_ios: see `check_cios`.
    """
    inward, outward = check_cios(control_inputs, control_outputs, control_ios)
    forward = get_forward_walk_ops(
        forward_seed_ops, forward_inclusive, within_ops, within_ops_fn, control_outputs=outward
    )
    backward = get_backward_walk_ops(
        backward_seed_ops, backward_inclusive, within_ops, within_ops_fn, control_inputs=inward
    )
    both = set(backward)
    return [op for op in forward if op in both]


def get_walks_union_ops(
    forward_seed_ops: Seeds,
    backward_seed_ops: Seeds,
    forward_inclusive: bool = True,
    backward_inclusive: bool = True,
    within_ops: OperationsLike | None = None,
    within_ops_fn: Callable[[Operation], object] | None = None,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:
    """The operations that a walk forward or a walk backward visits; the arguments of `get_walks_intersection_ops`."""
    inward, outward = check_cios(control_inputs, control_outputs, control_ios)
    forward = get_forward_walk_ops(
        forward_seed_ops, forward_inclusive, within_ops, within_ops_fn, control_outputs=outward
    )
    backward = get_backward_walk_ops(
        backward_seed_ops, backward_inclusive, within_ops, within_ops_fn, control_inputs=inward
    )
    return concatenate_unique(forward, backward)


# ---------------------------------------------------------------------- by names and lists
def select_ops(
    *args: Selector,
    graph: Graph | None = None,
    positive_filter: Callable[[Operation], object] | None = None,
    restrict_ops_regex: bool = False,
    restrict_ts_regex: bool = False,
) -> list[Operation]:
    """Operations by names, and from lists.

    Args:
        args: regular expressions for names, operations, lists of these; tensors are passed over, and so are regular
            expressions that begin with ``(?#ts)``.
        graph: where names are looked for.
        positive_filter: a function that says which are kept.
        restrict_ops_regex: whether only regular expressions that begin with ``(?#ops)`` count.
        restrict_ts_regex: of `select_ts`; nothing here.

    Raises:
        TypeError: an argument is something else.
        ValueError: there is a regular expression, and no graph.

    Example:
        >>> x = tf.constant(1.0, name="a/x")
        >>> y = tf.negative(x, name="a/y")
        >>> found = tf.contrib.graph_editor.select_ops("^a/", graph=tf.get_default_graph())
        >>> [op.name for op in found]
        ['a/x', 'a/y']
    """
    del restrict_ts_regex
    found: list[Operation] = []
    for arg in args:
        if isinstance(arg, str | re.Pattern):
            if _counts(arg, graph, _TENSORS_ONLY, _OPERATIONS_ONLY if restrict_ops_regex else ""):
                found.extend(filter_ops_from_regex(_checked_graph(graph), arg))
        else:
            found.extend(make_list_of_op(arg, ignore_ts=True))
    return [op for op in dict.fromkeys(found) if positive_filter is None or positive_filter(op)]


def select_ts(
    *args: Selector,
    graph: Graph | None = None,
    positive_filter: Callable[[Tensor], object] | None = None,
    restrict_ts_regex: bool = False,
    restrict_ops_regex: bool = False,
) -> list[Tensor]:
    """Tensors by names, and from lists.

    Args:
        args: regular expressions for names (``x:0``), tensors, lists of these; operations are passed over, and so are
            regular expressions that begin with ``(?#ops)``.
        graph: where names are looked for.
        positive_filter: a function that says which are kept.
        restrict_ts_regex: whether only regular expressions that begin with ``(?#ts)`` count.
        restrict_ops_regex: of `select_ops`; nothing here.

    Raises:
        TypeError: an argument is something else.
        ValueError: there is a regular expression, and no graph.
    """
    del restrict_ops_regex
    found: list[Tensor] = []
    for arg in args:
        if isinstance(arg, str | re.Pattern):
            if _counts(arg, graph, _OPERATIONS_ONLY, _TENSORS_ONLY if restrict_ts_regex else ""):
                found.extend(filter_ts_from_regex(_checked_graph(graph), arg))
        else:
            found.extend(make_list_of_t(arg, ignore_ops=True))  # type: ignore[arg-type]
    return [tensor for tensor in dict.fromkeys(found) if positive_filter is None or positive_filter(tensor)]


def select_ops_and_ts(
    *args: Selector,
    graph: Graph | None = None,
    positive_filter: Callable[[Element], object] | None = None,
) -> tuple[list[Operation], list[Tensor]]:
    """Operations and tensors, by names and from lists; regular expressions for tensors begin with ``(?#ts)``.

    Args:
        args, graph, positive_filter: as for `select_ops`.

    Raises:
        TypeError, ValueError: as `select_ops`.
    """
    ops = select_ops(*args, graph=graph, positive_filter=positive_filter)
    return ops, select_ts(*args, graph=graph, positive_filter=positive_filter, restrict_ts_regex=True)


def _checked_graph(graph: Graph | None) -> Graph:
    if graph is None:
        raise ValueError("Use the keyword argument 'graph' to use regex.")
    if not isinstance(graph, Graph):
        raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
    return graph


def _counts(regex: Regex, graph: Graph | None, not_with: str, only_with: str) -> bool:
    _checked_graph(graph)
    pattern = make_regex(regex).pattern
    return pattern.startswith(only_with) and not pattern.startswith(not_with)
