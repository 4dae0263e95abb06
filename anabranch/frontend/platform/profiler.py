"""tf.profiler: parameters, floating-point operations, times and sizes of a graph, by scope, type or line of code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from anabranch.frontend.platform.profile_measures import (
    OperationMeasure,
    StepMeasure,
    is_accelerator,
    measured,
    measures,
)
from anabranch.frontend.platform.profile_options import ProfileOptionBuilder, profile_options
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.proto.config_pb2 import RunMetadata
from anabranch.proto.tfprof_pb2 import (
    AdviceProto,
    CodeDef,
    GraphNodeProto,
    MultiGraphNodeProto,
    OpLogProto,
    ProfileProto,
)

_ROOT: Final = "_TFProfRoot"
_Entry: TypeAlias = "GraphNodeProto | MultiGraphNodeProto"
#: what is added up along scopes and types
_MEASURES: Final = (
    "float_ops",
    "parameters",
    "exec_micros",
    "cpu_exec_micros",
    "accelerator_exec_micros",
    "requested_bytes",
    "output_bytes",
)
#: by what options ask for, the number of an entry
_SELECTED: Final = {
    "params": "total_parameters",
    "float_ops": "total_float_ops",
    "micros": "total_exec_micros",
    "cpu_micros": "total_cpu_exec_micros",
    "accelerator_micros": "total_accelerator_exec_micros",
    "bytes": "total_requested_bytes",
    "peak_bytes": "total_peak_bytes",
    "residual_bytes": "total_residual_bytes",
    "output_bytes": "total_output_bytes",
}
_TIMES: Final = ("micros", "cpu_micros", "accelerator_micros")
_SIZES: Final = ("bytes", "peak_bytes", "residual_bytes", "output_bytes")
#: what is written of no entry by itself
_SILENT: Final = {"occurrence", "device", "op_types", "input_shapes", "tensor_value"}
_CHECKERS: Final = ("AcceleratorUtilizationChecker", "OperationChecker", "ExpensiveOperationChecker", "JobChecker")


class Profiler:
    """Collects the traces of several steps of a graph, and shows them.

    Args:
        graph: default: the default graph.
        op_log: further types of operations, and numbers of floating-point operations.

    Example:
        >>> x = tf.matmul(tf.random_normal([64, 64]), tf.ones([64, 64]))
        >>> profiler = tf.profiler.Profiler(sess.graph)
        >>> metadata = tf.RunMetadata()
        >>> _ = sess.run(x, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        >>> profiler.add_step(1, metadata)
        >>> options = tf.profiler.ProfileOptionBuilder(tf.profiler.ProfileOptionBuilder.time_and_memory())
        >>> profiler.profile_operations(options.with_empty_output().build()).total_exec_micros > 0
        True
    """

    def __init__(self, graph: Graph | None = None, op_log: OpLogProto | None = None) -> None:
        self._graph = get_default_graph() if graph is None else graph
        self._op_log = op_log
        self._steps: dict[int, dict[str, StepMeasure]] = {}

    def add_step(self, step: int, run_meta: RunMetadata) -> None:
        """Takes the trace of a step; another one of the same number is added to it."""
        held = self._steps.setdefault(step, {})
        for name, measure in measured(run_meta).items():
            if name not in held:
                held[name] = measure
                continue
            held[name].runs += measure.runs
            held[name].output_bytes += measure.output_bytes
            held[name].end = max(held[name].end, measure.end)
            for device, micros in measure.micros.items():
                held[name].micros[device] += micros

    def profile_name_scope(self, options: dict[str, Any]) -> GraphNodeProto:
        """By name scope.

        Raises:
            ValueError: the options select what there is not.
        """
        return _by_scope(*self._chosen(options))

    def profile_graph(self, options: dict[str, Any]) -> GraphNodeProto:
        """As `profile_name_scope`: each operation stands in its scope.

        Raises:
            ValueError: the options select what there is not.
        """
        return self.profile_name_scope(options)

    def profile_operations(self, options: dict[str, Any]) -> MultiGraphNodeProto:
        """By operation type: each type has the next one among its children, and totals of itself and of what follows.

        Raises:
            ValueError: the options select what there is not.
        """
        return _by_name(*self._chosen(options), lambda measure: measure.op.type, chained=True)

    def profile_python(self, options: dict[str, Any]) -> MultiGraphNodeProto:
        """By the line of the program that made an operation.

        Raises:
            ValueError: the options select what there is not.
        """
        return _by_name(*self._chosen(options), _line_of)

    def _chosen(self, options: dict[str, Any]) -> tuple[list[OperationMeasure], dict[str, Any]]:
        unknown = sorted(set(options["select"]) - {*_SELECTED, *_SILENT})
        if unknown:
            raise ValueError(
                f"tf.profiler selects {', '.join(sorted({*_SELECTED, *_SILENT}))}, not {unknown[0]!r}; choose among "
                "them with ProfileOptionBuilder.select"
            )
        return list(_accounted(measures(self._graph, self._op_log, self._steps), options)), options

    def advise(self, options: Mapping[str, Any] | None = None) -> AdviceProto:
        """What is worth a look: the most expensive types and operations, and how busy accelerators are.

        Args:
            options: by the name of a checker, its options; default: all checkers.

        Raises:
            ValueError: there is no such checker.
        """
        unknown = sorted(set(options or ()) - set(_CHECKERS))
        if unknown:
            raise ValueError(f"there is no checker {unknown[0]!r}; there are {', '.join(_CHECKERS)}")
        advice = AdviceProto()
        everything = list(measures(self._graph, self._op_log, self._steps))
        for name in options or _CHECKERS:
            reports = advice.checkers[name].reports
            if name == "ExpensiveOperationChecker":
                reports.extend(_expensive(everything))
            elif name == "AcceleratorUtilizationChecker":
                reports.extend(self._utilisation())
        return advice

    def _utilisation(self) -> Iterable[str]:
        """For each accelerator, the part of the time from its first operation to its last in which it computed."""
        for device in sorted({d for step in self._steps.values() for m in step.values() for d in m.micros}):
            of_device = [m for step in self._steps.values() for m in step.values() if device in m.micros]
            length = max(m.end for m in of_device) - min(m.start for m in of_device)
            if is_accelerator(device) and length > 0:
                yield f"device: {device} utilization: {min(1.0, sum(m.micros[device] for m in of_device) / length):.2f}"

    def serialize_to_string(self) -> bytes:
        """All that is known, as a `ProfileProto` in bytes."""
        proto = ProfileProto(has_trace=True, steps=sorted(self._steps))
        texts: dict[str, int] = {}
        ids = {op: number for number, op in enumerate(self._graph.get_operations())}
        for measure in measures(self._graph, self._op_log, self._steps):
            op = measure.op
            node = proto.nodes[ids[op]]
            node.name, node.op, node.id, node.float_ops = op.name, op.type, ids[op], measure.float_ops
            node.canonical_device = op.device
            node.op_types.extend(measure.kinds)
            node.inputs.update({place: ids[t.op] for place, t in enumerate(op.inputs)})
            _trace(node.trace, op.site, texts)
            for step, ran in measure.steps.items():
                execution = node.execs[step]
                execution.run_count, execution.all_start_micros = ran.runs, ran.start
                execution.latest_end_micros = ran.end
                execution.devices.extend(sorted(ran.micros))
                for device, micros in ran.micros.items():
                    times = execution.accelerator_execs if is_accelerator(device) else execution.cpu_execs
                    times[device].times.add(int64_values=[ran.start, micros])
                execution.memory_execs.add(requested_bytes=ran.output_bytes, output_bytes=ran.output_bytes)
        proto.id_to_string.update({number: text for text, number in texts.items()})
        return proto.SerializeToString()


def profile(
    graph: Graph | None = None,
    run_meta: RunMetadata | None = None,
    op_log: OpLogProto | None = None,
    cmd: str = "scope",
    options: dict[str, Any] | None = None,
) -> GraphNodeProto | MultiGraphNodeProto:
    """Counts the parameters and the floating-point operations of a graph, and adds up the times of a step.

    Args:
        graph: default: the default graph.
        run_meta: what a step with `RunOptions(trace_level=RunOptions.FULL_TRACE)` left; default: no times.
        op_log: further types of operations, and numbers of floating-point operations.
        cmd: "scope" or "graph" (by name scope), "op" (by operation type), "code" (by line of the program).
        options: of `ProfileOptionBuilder`, or a dictionary of one's own; what it does not say is not limited. Default:
            the parameters of trainable variables.

    Returns:
        The root, with `total_parameters`, `total_float_ops`, `total_exec_micros` and `children`; printed, too, unless
        the options say `with_empty_output`.

    Raises:
        ValueError: another `cmd`, or options that select what there is not.

    Example:
        >>> _ = tf.matmul(tf.ones([2, 3]), tf.ones([3, 4]))
        >>> builder = tf.profiler.ProfileOptionBuilder
        >>> options = builder(builder.float_operation()).with_empty_output().build()
        >>> tf.profiler.profile(options=options).total_float_ops
        48
    """
    options = ProfileOptionBuilder.trainable_variables_parameter() if options is None else options
    options = {**profile_options(["params"], "name"), **options}
    profiler = Profiler(graph, op_log)
    views: dict[str, Callable[[dict[str, Any]], GraphNodeProto | MultiGraphNodeProto]] = {
        "scope": profiler.profile_name_scope,
        "graph": profiler.profile_graph,
        "op": profiler.profile_operations,
        "code": profiler.profile_python,
    }
    if cmd not in views:
        raise ValueError(f"tf.profiler.profile knows the commands {', '.join(views)}, not {cmd!r}")
    if run_meta is not None:
        profiler.add_step(0, run_meta)
    return views[cmd](options)


def advise(
    graph: Graph | None = None, run_meta: RunMetadata | None = None, options: Mapping[str, Any] | None = None
) -> AdviceProto:
    """What is worth a look in a step: see `Profiler.advise`.

    Args:
        graph: default: the default graph.
        run_meta: what a step with `RunOptions(trace_level=RunOptions.FULL_TRACE)` left.
        options: by the name of a checker, its options; default: all checkers.

    Raises:
        ValueError: there is no such checker.
    """
    profiler = Profiler(graph)
    if run_meta is not None:
        profiler.add_step(0, run_meta)
    return profiler.advise(options)


def write_op_log(
    graph: Graph,
    log_dir: str,
    op_log: OpLogProto | None = None,
    run_meta: RunMetadata | None = None,
    add_trace: bool = True,
) -> None:
    """Writes what is counted of a graph to the file `tfprof_log` in a folder, for TensorFlow's profiler.

    Args:
        log_dir: the folder, which is made if need be.
        op_log: further entries.
        run_meta: accepted; shapes are inferred from the graph.
        add_trace: whether the lines of the program that made the operations are written, too.
    """
    del run_meta
    log, texts = OpLogProto(), dict[str, int]()
    for measure in measures(graph, op_log, {}):
        types = measure.kinds[1:]
        if measure.float_ops or types or add_trace:
            entry = log.log_entries.add(name=measure.op.name, float_ops=measure.float_ops, types=types)
            if add_trace:
                _trace(entry.code_def, measure.op.site, texts)
    log.id_to_string.update({number: text for text, number in texts.items()})
    os.makedirs(log_dir, exist_ok=True)
    Path(log_dir, "tfprof_log").write_bytes(log.SerializeToString())


def _trace(code: CodeDef, site: CreationSite | None, texts: dict[str, int]) -> None:
    """Notes the line that made an operation; texts are numbered from 1."""
    if site is not None:
        numbers = [texts.setdefault(text, len(texts) + 1) for text in (site.filename, site.function)]
        code.traces.add(lineno=site.line, file_id=numbers[0], function_id=numbers[1])


def _line_of(measure: OperationMeasure) -> str:
    site = measure.op.site
    return "(unknown)" if site is None else f"{os.path.basename(site.filename)}:{site.line}:{site.function}"


# ---------------------------------------------------------------------- choosing
def _accounted(everything: Iterable[OperationMeasure], options: dict[str, Any]) -> Iterable[OperationMeasure]:
    """The operations that the options choose."""
    wanted = [re.compile(regex) for regex in options["account_type_regexes"]]
    hidden = [re.compile(regex) for regex in options["hide_name_regexes"]]
    shown = [re.compile(regex) for regex in options["show_name_regexes"]]
    for measure in everything:
        name = measure.op.name
        if any(r.match(name) for r in hidden) or not any(r.match(name) for r in shown):
            continue
        enough = measure.float_ops >= options["min_float_ops"] and measure.parameters >= options["min_params"]
        if enough and any(r.fullmatch(kind) for r in wanted for kind in measure.kinds):
            yield measure


def _numbers(measure: OperationMeasure, step: int) -> tuple[dict[str, int], int]:
    """An operation's numbers, and how often it ran: in a step, or in the mean of all that it ran in."""
    chosen = [m for number, m in measure.steps.items() if step in (-1, number)]
    count = max(1, len(chosen))
    cpu = sum(m.micros_on(accelerator=False) for m in chosen) // count
    accelerator = sum(m.micros_on(accelerator=True) for m in chosen) // count
    size = sum(m.output_bytes for m in chosen) // count
    values = (measure.float_ops, measure.parameters, cpu + accelerator, cpu, accelerator, size, size)
    return dict(zip(_MEASURES, values, strict=True)), sum(m.runs for m in chosen)


def _add(entry: _Entry, numbers: Mapping[str, int], prefix: str) -> None:
    for what, number in numbers.items():
        setattr(entry, prefix + what, getattr(entry, prefix + what) + number)


# ---------------------------------------------------------------------- views
def _by_scope(chosen: list[OperationMeasure], options: dict[str, Any]) -> GraphNodeProto:
    entries = {"": GraphNodeProto(name=_ROOT)}
    below: dict[str, list[str]] = {"": []}

    def entry(name: str) -> GraphNodeProto:
        if name not in entries:
            entries[name], below[name] = GraphNodeProto(name=name), []
            scope = name.rpartition("/")[0]
            entry(scope)
            below[scope].append(name)
        return entries[name]

    for measure in chosen:
        numbers, runs = _numbers(measure, options["step"])
        mine = entry(measure.op.name)
        mine.run_count = runs
        mine.devices.extend(sorted({d for m in measure.steps.values() for d in m.micros}))
        for tensor in measure.op.outputs:
            dims = tensor.shape.dims_tuple
            shape = mine.shapes.add(unknown_rank=dims is None)
            for size in dims or ():
                shape.dim.add(size=-1 if size is None else size)
        _add(mine, numbers, "")
        scope = measure.op.name
        while True:
            _add(entries[scope], numbers, "total_")
            entries[scope].total_run_count += runs
            entries[scope].total_definition_count += 1
            if not scope:
                break
            scope = scope.rpartition("/")[0]

    def built(name: str, depth: int) -> GraphNodeProto:
        shown = [
            entries[child]
            for child in below[name]
            if depth < options["max_depth"] and _is_shown(entries[child], options)
        ]
        for child in _ordered(shown, options):
            entries[name].children.append(built(child.name, depth + 1))
        return entries[name]

    root = built("", 0)
    _write(root, options)
    return root


def _by_name(
    chosen: list[OperationMeasure],
    options: dict[str, Any],
    name_of: Callable[[OperationMeasure], str],
    chained: bool = False,
) -> MultiGraphNodeProto:
    root, entries = MultiGraphNodeProto(name=_ROOT), dict[str, MultiGraphNodeProto]()
    for measure in chosen:
        numbers, runs = _numbers(measure, options["step"])
        name = name_of(measure)
        entry = entries.setdefault(name, MultiGraphNodeProto(name=name))
        node = entry.graph_nodes.add(name=measure.op.name, run_count=runs, total_run_count=runs)
        for prefix in ("", "total_"):
            _add(node, numbers, prefix)
            _add(entry, numbers, prefix)
        _add(root, numbers, "total_")
    shown = [e for e in entries.values() if len(e.graph_nodes) >= options["min_occurrence"] and _is_shown(e, options)]
    ordered = _ordered(shown, options)
    root.children.extend(_chained(ordered[: options["max_depth"]]) if chained else ordered)
    _write(root, options)
    return root


def _chained(entries: list[MultiGraphNodeProto]) -> list[MultiGraphNodeProto]:
    """The first entry, with the second below it, and so on; totals add up from the last, as TensorFlow's do."""
    below: list[MultiGraphNodeProto] = []
    for entry in reversed(entries):
        for last in below:
            entry.children.append(last)
            _add(entry, {what: getattr(last, f"total_{what}") for what in _MEASURES}, "total_")
        below = [entry]
    return below


def _along(root: MultiGraphNodeProto) -> Iterator[MultiGraphNodeProto]:
    """The entries of a chain, or of a flat list."""
    for entry in root.children:
        yield entry
        yield from _along(entry)


def _is_shown(entry: _Entry, options: dict[str, Any]) -> bool:
    """Whether an entry has what the options ask for of times and sizes."""
    times = all(getattr(entry, _SELECTED[what]) >= options[f"min_{what}"] for what in _TIMES)
    sizes = all(getattr(entry, _SELECTED[what]) >= options[f"min_{what}"] for what in _SIZES)
    # a kernel has a time, and the island around it the sizes: where a time is asked for, it decides
    return times and (sizes or options["min_micros"] > 0)


def _ordered(entries: list[Any], options: dict[str, Any]) -> list[Any]:
    what = _SELECTED.get(options["order_by"])
    by_name = sorted(entries, key=lambda entry: str(entry.name))
    return by_name if what is None else sorted(by_name, key=lambda entry: -getattr(entry, what))


def _write(root: _Entry, options: dict[str, Any]) -> None:
    output: str = options["output"]
    if output == "none":
        return
    text = "\n".join(_lines(root, 0, options)) + "\n"
    kind, _, path = output.partition(":outfile=")
    if kind == "file":
        Path(path).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def _lines(root: _Entry, depth: int, options: dict[str, Any]) -> Iterator[str]:
    yield f"{'  ' * depth}{root.name} ({_facts(root, options, 'total_')})"
    if isinstance(root, MultiGraphNodeProto):
        for entry in _along(root):
            yield f"  {entry.name} ({_facts(entry, options, '')})"
    elif depth < options["max_depth"]:
        for child in root.children:
            yield from _lines(child, depth + 1, options)


def _facts(entry: _Entry, options: dict[str, Any], prefix: str) -> str:
    """The numbers that options select: of an entry and all below it, or of itself."""
    chosen = {what: prefix + _SELECTED[what].removeprefix("total_") for what in options["select"] if what in _SELECTED}
    facts = [f"{getattr(entry, attribute):,} {what}" for what, attribute in chosen.items()]
    if "occurrence" in options["select"] and isinstance(entry, MultiGraphNodeProto) and entry.graph_nodes:
        facts.append(f"{len(entry.graph_nodes):,} occurrence")
    return ", ".join(facts)


# ---------------------------------------------------------------------- advice
_MOST: Final = 3


def _expensive(everything: list[OperationMeasure]) -> Iterable[str]:
    """The types and the operations that take the most time."""
    options = {**ProfileOptionBuilder.time_and_memory(0, 0), "output": "none"}
    root = _by_name(everything, options, lambda measure: measure.op.type)
    whole = root.total_exec_micros
    if not whole:
        return
    for rank, entry in enumerate(root.children[:_MOST], 1):
        yield f"top {rank} operation type: {_costs(entry, whole)}"
    nodes = sorted((n for e in root.children for n in e.graph_nodes), key=lambda n: -n.total_exec_micros)
    for rank, node in enumerate(nodes[:_MOST], 1):
        yield f"top {rank} graph node: {_costs(node, whole)}"


def _costs(entry: _Entry, whole: int) -> str:
    return (
        f"{entry.name}, cpu: {entry.total_cpu_exec_micros}us, accelerator: {entry.total_accelerator_exec_micros}us, "
        f"total: {entry.total_exec_micros}us ({100 * entry.total_exec_micros / whole:.2f}%)"
    )
