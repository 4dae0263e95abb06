"""tf.profiler: how many parameters a graph has, and how many floating-point operations its operations take."""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from anabranch.core.values import PassedOn
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor

_ROOT: Final = "_TFProfRoot"
_Count = Callable[[Operation, int, int], int]


def _each(count: int) -> _Count:
    return lambda op, given, made: count * made


def _area(op: Operation) -> int:
    return math.prod(op.attrs["ksize"])


def _elements(tensor: Tensor) -> int:
    return tensor.shape.num_elements() or 0


#: by operation type: its numbers of floating-point operations as TensorFlow counts them; from the elements of the
#: first input and of the first output
_COUNTS: Final[dict[str, _Count]] = {
    **dict.fromkeys(("Reciprocal", "Square", "Log", "Neg", "AssignAdd", "AssignSub"), _each(1)),
    **dict.fromkeys(("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow"), _each(1)),
    **dict.fromkeys(("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"), _each(1)),
    **dict.fromkeys(("Rsqrt", "SquaredDifference"), _each(2)),
    "RsqrtGrad": _each(4),
    "Softmax": _each(5),
    "AddN": lambda op, given, made: (len(op.inputs) - 1) * made,
    "L2Loss": lambda op, given, made: 3 * given - 1,
    "BiasAdd": lambda op, given, made: given,
    "Mean": lambda op, given, made: given,
    **dict.fromkeys(("Sum", "ArgMax", "ArgMin", "BiasAddGrad"), lambda op, given, made: given - made),
    **dict.fromkeys(("AvgPool", "MaxPool"), lambda op, given, made: _area(op) * made),
    "MaxPoolGrad": lambda op, given, made: (_area(op) + 1) * _elements(op.inputs[1]),
    "AvgPoolGrad": lambda op, given, made: 2 * _area(op) * _elements(op.inputs[1]),
    "Dilation2D": lambda op, given, made: 2 * _elements(op.inputs[1]) // (op.inputs[1].shape[2].value or 1) * made,
}


def float_operations(op: Operation) -> int:
    """The floating-point operations of one run, as far as all shapes are known; 0 for types that are not counted."""
    shapes = [t.shape for t in (*op.inputs, *op.outputs)]
    if not op.outputs or not all(shape.is_fully_defined() for shape in shapes):
        return 0
    rule = op.op_def.flops_rule
    if rule is not None:
        given: list[Any] = [tuple(t.shape.as_list()) for t in op.inputs]
        made: list[Any] = [tuple(t.shape.as_list()) for t in op.outputs]
        return int(rule(given, made, op.attrs))
    count = _COUNTS.get(op.type)
    if count is None:
        return 0
    first = op.inputs[0].shape.num_elements() if op.inputs else 0
    return count(op, first or 0, op.outputs[0].shape.num_elements() or 0)


# ---------------------------------------------------------------------- options
class ProfileOptionBuilder:
    """Makes the options of `tf.profiler.profile`.

    Example:
        >>> builder = tf.profiler.ProfileOptionBuilder
        >>> options = builder(builder.float_operation()).with_empty_output().build()
        >>> options["select"], options["output"]
        (['float_ops'], 'none')
    """

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self._options = copy.deepcopy(options) if options is not None else _options(["params"], "params")

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Options that count the parameters of trainable variables, by name scope."""
        return {**_options(["params"], "name"), "account_type_regexes": ["_trainable_variables"]}

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Options that count floating-point operations, by name scope."""
        return {**_options(["float_ops"], "float_ops"), "min_float_ops": 1}

    @staticmethod
    def time_and_memory(
        min_micros: int = 1,
        min_bytes: int = 1,
        min_accelerator_micros: int = 0,
        min_cpu_micros: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> dict[str, Any]:
        """Options for times and sizes, which `profile` refuses: `RunOptions.trace_level` asks a step for them."""
        limits = {"min_micros": min_micros, "min_bytes": min_bytes, "min_peak_bytes": min_peak_bytes}
        limits |= {"min_accelerator_micros": min_accelerator_micros, "min_cpu_micros": min_cpu_micros}
        limits |= {"min_residual_bytes": min_residual_bytes, "min_output_bytes": min_output_bytes}
        return {**_options(["micros", "bytes"], "micros"), **limits}

    def build(self) -> dict[str, Any]:
        """The options."""
        return copy.deepcopy(self._options)

    def _with(self, **values: PassedOn) -> Self:
        self._options.update(values)
        return self

    def with_max_depth(self, max_depth: int) -> Self:
        """Shows so many levels of scopes."""
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self, min_bytes: int = 0, min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0
    ) -> Self:
        """Sizes, which `profile` does not know."""
        self._with(min_bytes=min_bytes, min_peak_bytes=min_peak_bytes)
        return self._with(min_residual_bytes=min_residual_bytes, min_output_bytes=min_output_bytes)

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> Self:
        """Times, which `profile` does not know."""
        self._with(min_micros=min_micros, min_cpu_micros=min_cpu_micros)
        return self._with(min_accelerator_micros=min_accelerator_micros)

    def with_min_parameters(self, min_params: int) -> Self:
        """Counts only what has so many parameters."""
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> Self:
        """Kept; every type is counted."""
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> Self:
        """Counts only operations that take so many."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: Sequence[str]) -> Self:
        """Counts only operations whose types match one of these regular expressions."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_node_names(
        self,
        start_name_regexes: Sequence[str] | None = None,
        show_name_regexes: Sequence[str] | None = None,
        hide_name_regexes: Sequence[str] | None = None,
        trim_name_regexes: Sequence[str] | None = None,
    ) -> Self:
        """Counts only operations with names that match `show_name_regexes`, and none of `hide_name_regexes`."""
        given = {"start": start_name_regexes, "show": show_name_regexes}
        given |= {"hide": hide_name_regexes, "trim": trim_name_regexes}
        return self._with(**{f"{k}_name_regexes": list(v) for k, v in given.items() if v is not None})

    def account_displayed_op_only(self, is_true: bool) -> Self:
        """Kept; what is not shown is not counted."""
        return self._with(account_displayed_op_only=is_true)

    def with_empty_output(self) -> Self:
        """Writes nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> Self:
        """Writes to the standard output."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> Self:
        """Writes to a file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_step(self, step: int) -> Self:
        """Kept; no step is measured."""
        return self._with(step=step)

    def order_by(self, attribute: str) -> Self:
        """Kept; scopes are ordered by name."""
        return self._with(order_by=attribute)

    def select(self, attributes: Sequence[str]) -> Self:
        """Writes these: "params", "float_ops"."""
        return self._with(select=list(attributes))


def _options(select: list[str], order_by: str) -> dict[str, Any]:
    limits = ("bytes", "peak_bytes", "residual_bytes", "output_bytes", "micros", "accelerator_micros", "cpu_micros")
    return {
        "max_depth": 10000,
        **{f"min_{what}": 0 for what in (*limits, "params", "float_ops", "occurrence")},
        "order_by": order_by,
        "account_type_regexes": [".*"],
        "start_name_regexes": [".*"],
        "trim_name_regexes": [],
        "show_name_regexes": [".*"],
        "hide_name_regexes": [],
        "account_displayed_op_only": False,
        "select": select,
        "step": -1,
        "output": "stdout",
    }


# ---------------------------------------------------------------------- the profile
@dataclass
class GraphNodeProto:
    """An operation or a name scope, with what it and all below it come to; a plain object with a message's names."""

    name: str
    float_ops: int = 0
    parameters: int = 0
    total_float_ops: int = 0
    total_parameters: int = 0
    children: list[GraphNodeProto] = field(default_factory=list)


@dataclass
class MultiGraphNodeProto:
    """An operation type, with what all operations of it come to; a plain object with a message's names."""

    name: str
    float_ops: int = 0
    parameters: int = 0
    total_float_ops: int = 0
    total_parameters: int = 0
    children: list[MultiGraphNodeProto] = field(default_factory=list)


def profile(
    graph: Graph | None = None,
    run_meta: object = None,
    op_log: object = None,
    cmd: str = "scope",
    options: dict[str, Any] | None = None,
) -> GraphNodeProto | MultiGraphNodeProto:
    """Counts the parameters and the floating-point operations of a graph.

    Args:
        graph: default: the default graph.
        run_meta, op_log: not used: nothing is measured here.
        cmd: "scope" or "graph" (by name scope), "op" (by operation type).
        options: of `ProfileOptionBuilder`; default: the parameters of trainable variables.

    Returns:
        The root, with `total_parameters`, `total_float_ops` and `children`; printed, too, unless the options say
        `with_empty_output`.

    Raises:
        ValueError: another `cmd`, or options that ask for times or sizes: `RunOptions(trace_level=...)` times a step.

    Example:
        >>> _ = tf.matmul(tf.ones([2, 3]), tf.ones([3, 4]))
        >>> builder = tf.profiler.ProfileOptionBuilder
        >>> options = builder(builder.float_operation()).with_empty_output().build()
        >>> tf.profiler.profile(options=options).total_float_ops
        48
    """
    graph = get_default_graph() if graph is None else graph
    options = ProfileOptionBuilder.trainable_variables_parameter() if options is None else options
    unknown = sorted(set(options["select"]) - {"params", "float_ops", "occurrence"})
    if unknown:
        raise ValueError(
            f"tf.profiler.profile counts params and float_ops, not {unknown[0]}; "
            "RunOptions(trace_level=RunOptions.FULL_TRACE) times a step"
        )
    if cmd not in ("scope", "graph", "op"):
        raise ValueError(f"tf.profiler.profile knows the commands scope, graph and op, not {cmd!r}")
    counted = _accounted(graph, options)
    root = _by_type(counted) if cmd == "op" else _by_scope(counted)
    _write(root, options)
    return root


def _accounted(graph: Graph, options: dict[str, Any]) -> list[tuple[Operation, int, int]]:
    """The operations that the options choose, each with its operations and its parameters."""
    trainable = {v.op: v.shape.num_elements() or 0 for v in graph.get_collection("trainable_variables")}
    wanted = [re.compile(regex) for regex in options["account_type_regexes"]]
    hidden = [re.compile(regex) for regex in options["hide_name_regexes"]]
    shown = [re.compile(regex) for regex in options["show_name_regexes"]]
    chosen = []
    for op in graph.get_operations():
        kinds = [op.type, *(["_trainable_variables"] if op in trainable else [])]
        if any(r.match(op.name) for r in hidden) or not any(r.match(op.name) for r in shown):
            continue
        if any(r.fullmatch(kind) for r in wanted for kind in kinds):
            chosen.append((op, float_operations(op), trainable.get(op, 0)))
    least = options["min_float_ops"], options["min_params"]
    return [entry for entry in chosen if entry[1] >= least[0] and entry[2] >= least[1]]


def _by_scope(counted: list[tuple[Operation, int, int]]) -> GraphNodeProto:
    nodes = {"": GraphNodeProto(_ROOT)}

    def node(name: str) -> GraphNodeProto:
        if name not in nodes:
            nodes[name] = GraphNodeProto(name)
            node(name.rpartition("/")[0]).children.append(nodes[name])
        return nodes[name]

    for op, operations, parameters in counted:
        mine = node(op.name)
        mine.float_ops, mine.parameters = operations, parameters
        scope = op.name
        while True:
            nodes[scope].total_float_ops += operations
            nodes[scope].total_parameters += parameters
            if not scope:
                break
            scope = scope.rpartition("/")[0]
    return nodes[""]


def _by_type(counted: list[tuple[Operation, int, int]]) -> MultiGraphNodeProto:
    root, nodes = MultiGraphNodeProto(_ROOT), dict[str, MultiGraphNodeProto]()
    for op, operations, parameters in counted:
        if op.type not in nodes:
            nodes[op.type] = MultiGraphNodeProto(op.type)
            root.children.append(nodes[op.type])
        nodes[op.type].float_ops += operations
        nodes[op.type].parameters += parameters
        for entry in (root, nodes[op.type]):
            entry.total_float_ops += operations
            entry.total_parameters += parameters
    return root


def _write(root: GraphNodeProto | MultiGraphNodeProto, options: dict[str, Any]) -> None:
    output: str = options["output"]
    if output == "none":
        return
    text = "\n".join(_lines(root, 0, options)) + "\n"
    kind, _, path = output.partition(":outfile=")
    if kind == "file":
        Path(path).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def _lines(node: GraphNodeProto | MultiGraphNodeProto, depth: int, options: dict[str, Any]) -> list[str]:
    facts = {"params": node.total_parameters, "float_ops": node.total_float_ops}
    counts = ", ".join(f"{facts[what]:,} {what}" for what in options["select"] if what in facts)
    below: list[Any] = sorted(node.children, key=lambda n: n.name) if depth < options["max_depth"] else []
    return [
        f"{'  ' * depth}{node.name} ({counts})",
        *(line for child in below for line in _lines(child, depth + 1, options)),
    ]
