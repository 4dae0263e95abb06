"""Islands: which operations of a step become one XLA executable, and which run on the host between them (design D7).

Every operation gets a *level*: the number of times the longest path that leads to it changes between compiled and
host operations, or is cut. The compiled operations of one level form an island. This is right because

* levels never fall along an edge, and rise along every edge between a compiled and a host operation; so a path that
  leaves an island (through a host operation, or a cut) arrives at a higher level and cannot return to it;
* running the levels in ascending order, and a level's operations in step order, respects every edge.

Besides data and control edges, operations on one variable are ordered: a write comes after the reads and writes that
precede it in step order, and before those that follow (design D11). These orderings raise levels like edges do.

A *cut* is an edge between two compiled operations over which the value itself must be known when the later one is
compiled (`OpDef.static`), while the earlier one can only be computed on the device. The value then leaves the first
island and enters the second as part of its compilation key.

An operation on tensors whose *size the data decides* (what `where`, `unique` or `boolean_mask` let through) would be
compiled anew in nearly every step. It runs on the host if it has a kernel that can.

Example: in ``x = tf.matmul(a, b); s = tf.strings.as_string(x); y = tf.exp(x)`` matmul and exp share level 0, the
string conversion is host work of level 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.resources import ResourceHandle
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.prune import PLACEHOLDERS, operations_of_body
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.state import bodies_of, draws_random, state_of

#: constants larger than this are arguments of the executable instead of literals in its code
MAX_LITERAL_BYTES = 1 << 16

#: a value computed on the way to a shape may be traced through only if it has at most this many elements
MAX_KEY_ELEMENTS = 16


@dataclass(slots=True)
class Island:
    """One group of compiled operations.

    Attributes:
        operations: in execution order.
        inputs: tensors from outside whose values may differ in every step.
        static: those of `inputs` whose values are part of the compilation key.
        outputs: tensors that somebody outside needs.
        reads: variables whose value the island needs.
        writes: variables that it changes.
        random: operations that draw random numbers, in order.
        known: values that never change, as far as the island uses them.
        constants: large known values, passed as arguments.
    """

    operations: list[Operation]
    level: int
    inputs: list[Tensor] = field(default_factory=list)
    static: frozenset[Tensor] = frozenset()
    outputs: list[Tensor] = field(default_factory=list)
    reads: list[ResourceHandle] = field(default_factory=list)
    writes: list[ResourceHandle] = field(default_factory=list)
    random: list[Operation] = field(default_factory=list)
    known: dict[Tensor, Any] = field(default_factory=dict)
    constants: list[Tensor] = field(default_factory=list)
    alias: dict[Tensor, Tensor] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Names the island by its last operation."""
        return f"island[{len(self.operations)} ops, .. {self.operations[-1].name}]"


@dataclass(slots=True)
class HostCall:
    """One operation that runs on the host between islands."""

    operation: Operation
    level: int
    inputs: list[Tensor]
    known: dict[Tensor, Any]


PlanItem = Island | HostCall


def plan_items(step: StepGraph, on_host: frozenset[Operation] = frozenset()) -> list[PlanItem]:
    """Groups the operations of a step into islands and host calls, in the order in which they run.

    Args:
        on_host: operations that must not be compiled although they could be.
    """
    return _Analysis(step, on_host).items()


def runs_on_host(op: Operation) -> bool:
    """Whether an operation is host work: it has no compiled kernel, handles strings, or calls a body that is.

    Constant texts are not: a kernel that takes them as static inputs (an assertion's message) is compiled with them.
    """
    if op.op_def.compiled_rule is None:
        return True
    if op.type == "Const":
        return False
    if any(_host_dtype(t) for t in op._outputs):
        return True
    texts = {i for i, t in enumerate(op._inputs) if _host_dtype(t)}
    if texts and not (texts <= op.op_def.static_positions(op) and all(op._inputs[i].op.type == "Const" for i in texts)):
        return True
    return any(not is_compilable(body) for body in bodies_of(op))


def _host_dtype(tensor: Tensor) -> bool:
    return tensor._dtype is dtypes.string


def is_compilable(body: Any) -> bool:
    """Whether every operation of a function graph can be part of an island."""
    return not any(runs_on_host(op) for op in operations_of_body(body))


# ---------------------------------------------------------------------- levels
class _VariableHistory:
    """The operations on each variable so far, in step order: the last write, and the reads since then."""

    def __init__(self) -> None:
        self._last_write: dict[ResourceHandle, Operation] = {}
        self._reads: dict[ResourceHandle, list[Operation]] = {}

    def before(self, reads: list[ResourceHandle], writes: list[ResourceHandle]) -> list[Operation]:
        """What an operation with these reads and writes must come after."""
        found = [self._last_write[h] for h in (*reads, *writes) if h in self._last_write]
        found.extend(earlier for h in writes for earlier in self._reads.get(h, ()))
        return found

    def add(self, op: Operation, reads: list[ResourceHandle], writes: list[ResourceHandle]) -> None:
        """Adds the next operation."""
        for handle in writes:
            self._last_write[handle] = op
            self._reads[handle] = []
        for handle in reads:
            self._reads.setdefault(handle, []).append(op)


class _Analysis:
    """The levels, cuts and boundaries of one step."""

    def __init__(self, step: StepGraph, on_host: frozenset[Operation]) -> None:
        self.step = step
        self.fed = set(step.feeds)
        self.host = {op for op in step.operations if op in on_host or runs_on_host(op)}
        self._keep_changing_sizes_on_host()
        self.static: set[Tensor] = set()
        self.cuts: set[Tensor] = set()
        self.level: dict[Operation, int] = {}
        self.state = {op: state_of(op, self._handle) for op in step.operations}

    def items(self) -> list[PlanItem]:
        self._find_static()
        self._assign_levels()
        return self._build()

    def _handle(self, tensor: Tensor) -> Any:
        return self.step.known[self.step.resolve(tensor)]

    def _is_given(self, tensor: Tensor) -> bool:
        return tensor in self.step.known or tensor in self.fed

    # ---- which sizes change from step to step
    def _keep_changing_sizes_on_host(self) -> None:
        changing: set[Tensor] = set()
        for op in self.step.operations:
            concerned = any(tensor in changing for tensor in self.step.inputs_of(op))
            if concerned and (op.op_def.host_rule is not None or op.op_def.portable) and not op.op_def.shape_valued:
                self.host.add(op)
            if concerned or (op in self.host and _decides_sizes(op)):
                changing.update(t for t in op._outputs if not t.shape.is_fully_defined() and t not in self.fed)

    # ---- which values must be known when an island is compiled
    def _find_static(self) -> None:
        for op in reversed(self.step.operations):
            if op not in self.host and op.op_def.host_rule is not None and self._would_compile_each_step(op):
                self.host.add(op)
            if op in self.host:
                continue
            for tensor in self._static_inputs(op):
                self._need_value(tensor)

    def _would_compile_each_step(self, op: Operation) -> bool:
        """Whether data decides the static inputs of an operation: then its host kernel serves it better."""
        inputs = self.step.inputs_of(op)
        found: dict[Tensor, bool] = {}
        return not all(self._follows_from_shapes(inputs[i], found) for i in op.op_def.static_positions(op))

    def _follows_from_shapes(self, tensor: Tensor, found: dict[Tensor, bool]) -> bool:
        if self._is_given(tensor):
            return tensor not in self.fed
        op = tensor.op
        if op.op_def.few_values:
            return True
        if op in self.host or not op.op_def.portable or op.op_def.stateful:
            return False
        if tensor not in found:
            sources = () if op.op_def.shape_valued else self.step.inputs_of(op)
            found[tensor] = all(self._follows_from_shapes(t, found) for t in sources)
        return found[tensor]

    def _static_inputs(self, op: Operation) -> list[Tensor]:
        inputs = self.step.inputs_of(op)
        found: list[Tensor] = []
        found.extend(inputs[i] for i in op.op_def.static_positions(op))
        wanted = [out for out in op.outputs if out in self.static and out not in self.cuts]
        if wanted and not op.op_def.shape_valued:
            found.extend(inputs)
        for body in bodies_of(op):
            outer = inputs[len(inputs) - len(body.inputs) :]
            found.extend(t for t, inner in zip(outer, body.inputs, strict=True) if inner in static_parameters(body))
        return found

    def _need_value(self, tensor: Tensor) -> None:
        if tensor in self.step.known:
            return
        self.static.add(tensor)
        op = tensor.op
        if tensor in self.fed or op in self.host:
            return
        if not self._follows_from_small_values(op):
            self.cuts.add(tensor)

    def _follows_from_small_values(self, op: Operation) -> bool:
        """Whether an operation can be computed while tracing without making its inputs' values part of the key
        that differ from step to step: only shapes and a few integers may decide what is compiled.
        """
        if op.op_def.shape_valued:
            return True
        if not op.op_def.portable or op.op_def.stateful:
            return False
        return all(t in self.step.known or _is_small_integer(t) for t in self.step.inputs_of(op))

    # ---- levels
    def _assign_levels(self) -> None:
        history = _VariableHistory()
        for op in self.step.operations:
            reads, writes = self.state[op]
            level = self._level_by_edges(op)
            for earlier in history.before(reads, writes):
                level = max(level, self._after(earlier, op))
            self.level[op] = level
            history.add(op, reads, writes)

    def _level_by_edges(self, op: Operation) -> int:
        level = 0
        for tensor in self.step.inputs_of(op):
            if not self._is_given(tensor):
                cut = tensor in self.cuts and self._uses_value(op, tensor)
                level = max(level, self._after(tensor.op, op) + cut)
        for control in op._control_inputs:
            if control in self.level:
                level = max(level, self._after(control, op))
        return level

    def _after(self, earlier: Operation, later: Operation) -> int:
        """The lowest level of `later` that an edge from `earlier` allows."""
        return self.level[earlier] + ((earlier in self.host) != (later in self.host))

    def _uses_value(self, op: Operation, tensor: Tensor) -> bool:
        return op not in self.host and tensor in self._static_inputs(op)

    # ---- building the items
    def _build(self) -> list[PlanItem]:
        islands: dict[int, Island] = {}
        items: list[tuple[int, int, int, PlanItem]] = []
        for position, op in enumerate(self.step.operations):
            level = self.level[op]
            if op in self.host:
                inputs = self.step.inputs_of(op)
                known = {t: self.step.known[t] for t in inputs if t in self.step.known}
                # a placeholder that runs was not fed, which is to be found out before anything has happened
                place = -1 if op.type in PLACEHOLDERS else level
                items.append((place, 1, position, HostCall(op, level, inputs, known)))
            elif level in islands:
                islands[level].operations.append(op)
            else:
                islands[level] = Island([op], level)
                items.append((level, 0, position, islands[level]))
        for island in islands.values():
            self._complete(island)
        self._find_outputs(islands)
        return [item for _, _, _, item in sorted(items, key=lambda entry: entry[:3])]

    def _complete(self, island: Island) -> None:
        members = set(island.operations)
        inputs: dict[Tensor, None] = {}
        reads: dict[ResourceHandle, None] = {}
        writes: dict[ResourceHandle, None] = {}
        for op in island.operations:
            for tensor in self.step.inputs_of(op):
                if tensor in self.step.known:
                    island.known[tensor] = self.step.known[tensor]
                elif tensor in self.fed or tensor.op not in members:
                    inputs[tensor] = None
            op_reads, op_writes = self.state[op]
            # what the island itself wrote before need not come from outside
            reads.update((handle, None) for handle in op_reads if handle not in writes)
            writes.update(dict.fromkeys(op_writes))
            if op.op_def.random or any(draws_random(body) for body in bodies_of(op)):
                island.random.append(op)
        island.inputs, island.reads, island.writes = list(inputs), list(reads), list(writes)
        island.static = frozenset(t for t in inputs if t in self.static)
        island.constants = [
            t for t, v in island.known.items() if isinstance(v, np.ndarray) and v.nbytes > MAX_LITERAL_BYTES
        ]
        island.alias = self.step.alias

    def _find_outputs(self, islands: dict[int, Island]) -> None:
        """An island's outputs: what is fetched of it, and what operations outside it take."""
        needed: dict[int, dict[Tensor, None]] = {level: {} for level in islands}
        fetched = [self.step.resolve(t) for t in self.step.fetches]
        uses: list[tuple[Tensor, Operation | None]] = [(t, None) for t in fetched]
        uses.extend((t, op) for op in self.step.operations for t in self.step.inputs_of(op))
        for tensor, user in uses:
            if self._is_given(tensor) or tensor.op in self.host:
                continue
            level = self.level[tensor.op]
            if user is None or user in self.host or self.level[user] != level:
                needed[level][tensor] = None
        for level, island in islands.items():
            island.outputs = list(needed[level])


def _decides_sizes(op: Operation) -> bool:
    """Whether the values of the inputs decide the shape of an output."""
    op_def = op.op_def
    return op_def.compiled_rule is None and not op_def.stateful and op.type != "PyFuncStateless"


def _is_small_integer(tensor: Tensor) -> bool:
    size = tensor.shape.num_elements()
    return (tensor.dtype.is_integer or tensor.dtype.is_bool) and size is not None and size <= MAX_KEY_ELEMENTS


def static_parameters(body: Any) -> frozenset[Tensor]:
    """The parameters of a function graph whose values must be known when it is compiled."""
    operations = operations_of_body(body)
    key = (body.version, body.structure_version, len(body.outputs))
    cached: tuple[Any, frozenset[Tensor]] | None = body.static_parameters
    if cached is not None and cached[0] == key:
        return cached[1]
    step = StepGraph(operations, list(body.outputs), [], list(body.inputs))
    analysis = _Analysis.__new__(_Analysis)
    analysis.step, analysis.fed, analysis.host = step, set(body.inputs), set()
    analysis.static, analysis.cuts = set(), set()
    analysis._find_static()
    found = frozenset(t for t in body.inputs if t in analysis.static)
    body.static_parameters = (key, found)
    return found
