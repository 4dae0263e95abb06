"""Islands: which operations of a step become one XLA executable, and which run on the host between them (design D7).

Every operation gets a *level*: the number of times the longest path that leads to it changes between compiled and host
operations or between devices, or is cut (`xla.levels`). The compiled operations that agree in six things form an
island: level, device, frame (loop), condition under which they are alive (`xla.deadness`), the set of operations before
them that may wait, and whether another device waits for a result of theirs. So nothing waits, dies or repeats because
it is grouped with something else, and no other device waits for what it does not need. This is right because

* levels never fall on the way along any path that comes back to the same iteration, be it through loops and their back
  edges (`xla.levels` has the argument), and rise along every edge between a compiled and a host operation or between
  devices; so a path that leaves an island through a host operation, another device or a cut arrives at a higher level;
* frames change, and iterations end, at primitives of control flow only, which are host work;
* along an edge between two compiled operations of one level, the condition and the set of those that may wait can only
  gain members, and from what no other device waits for nothing leads to what one waits for. (Where an ordering of
  variables leads to an operation that is alive when the earlier one is not, the level rises.) So a path that leaves an
  island of the same level comes to an island that differs in one of the three for good, and cannot return;
* running the levels in ascending order, the islands of a level with those first that other devices wait for, then in
  the order of the sizes of both sets, and a level's host operations in step order, respects every edge but the back
  edges of loops.

Besides data and control edges, operations on one variable are ordered (`xla.variable_order`). These orderings raise
levels like edges do.

A *cut* is an edge between two compiled operations over which the value itself must be known when the later one is
compiled (`OpDef.static`), while the earlier one can only be computed on the device. The value then leaves the first
island and enters the second as part of its compilation key.

An operation on tensors whose *size the data decides* (what `where`, `unique` or `boolean_mask` let through) would be
compiled anew in nearly every step. It runs on the host if it has a kernel that can (`xla.changing_sizes`).

A variable is read where its value is first needed, if the step has no primitives of control flow. Its read would have
level 0, while what takes the value may wait for the next batch of a pipeline: in an island of its own the read would
copy the variable, which the island of the training step overwrites. So reads, and what is computed of them, of what is
fed and of constants alone, join the one island that takes them, if all else that comes after them is of higher levels.

Example: in ``x = tf.matmul(a, b); s = tf.strings.as_string(x); y = tf.exp(x)`` matmul and exp share level 0, the
string conversion is host work of level 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.op_def import OpDef
from anabranch.core.resources import ResourceHandle
from anabranch.core.roles import Role
from anabranch.graph.loop_bodies import bodies_of, nesting, remembered
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import Frames, find_frames
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.changing_sizes import ChangingSizes, has_host_form, is_small_integer, may_be_shape
from anabranch.xla.deadness import find_conditions
from anabranch.xla.levels import find_levels
from anabranch.xla.prepared_on_host import prepared_on_host
from anabranch.xla.quick_islands import quick_on_host
from anabranch.xla.shapes_on_host import shapes_on_host
from anabranch.xla.state import draws_random, known_handle, state_of
from anabranch.xla.update_phases import GRADIENTS, LOOKUPS, UpdatePhases
from anabranch.xla.variable_order import variable_order

#: constants larger than this are arguments of the executable instead of literals in its code
MAX_LITERAL_BYTES = 1 << 16

#: conditionals and loops nested deeper run one by one: each takes a part of Python's stack while it is compiled
MAX_NESTING = 24


@dataclass(slots=True)
class Island:
    """One group of compiled operations.

    Attributes:
        operations: in execution order.
        device: the full name of the device; empty: the default device.
        inputs: tensors from outside whose values may differ in every step.
        static: those of `inputs` whose values are part of the compilation key.
        outputs: tensors that somebody outside needs.
        reads: variables whose value the island needs.
        writes: variables that it changes.
        random: operations that draw random numbers, in order.
        known: values that never change, as far as the island uses them.
        constants: large known values, passed as arguments.
        keeps_locks: whether nobody may change what it only reads until it has run (`xla.update_phases`).
        kept: variables whose old values it leaves as they are, since others read them while it writes.
        is_alone: whether it runs on the thread that calls it alone, since others run it beside that.
        has_own_clients: whether each of these threads has a program of its own (`xla.one_thread`).
    """

    operations: list[StepNode]
    level: int
    device: str = ""
    inputs: list[StepTensor] = field(default_factory=list)
    static: frozenset[StepTensor] = frozenset()
    outputs: list[StepTensor] = field(default_factory=list)
    reads: list[ResourceHandle] = field(default_factory=list)
    writes: list[ResourceHandle] = field(default_factory=list)
    random: list[StepNode] = field(default_factory=list)
    known: dict[StepTensor, Any] = field(default_factory=dict)
    constants: list[StepTensor] = field(default_factory=list)
    keeps_locks: bool = False
    kept: Collection[ResourceHandle] = ()
    is_alone: bool = False
    has_own_clients: bool = False

    @property
    def name(self) -> str:
        """Names the island by its last operation."""
        return f"island[{len(self.operations)} ops, .. {self.operations[-1].name}]"


@dataclass(slots=True)
class HostCall:
    """One operation that runs on the host between islands."""

    operation: StepNode
    level: int

    @property
    def operations(self) -> list[StepNode]:
        """The operation alone, as an island's are."""
        return [self.operation]

    @property
    def inputs(self) -> list[StepTensor]:
        """The tensors that it takes."""
        return self.operation.inputs

    @property
    def outputs(self) -> list[StepTensor]:
        """The tensors that it gives."""
        return self.operation.outputs

    @property
    def device(self) -> str:
        """The full name of the device; empty: the default device."""
        return self.operation.placed_on


PlanItem = Island | HostCall


@dataclass(slots=True)
class Grouping:
    """What runs in a step, and in which order.

    Attributes:
        items: in an order that respects all edges but the back edges of loops.
        waits: the tensors and the operations that each operation waits for, and that make it dead.
        order: operations that it waits for besides, whether they are alive or not.
        frames: the loops in which the operations stand.
    """

    items: list[PlanItem]
    waits: dict[StepNode, tuple[list[StepTensor], list[StepNode]]]
    order: dict[StepNode, list[StepNode]]
    frames: Frames


def group(step: StepGraph, on_host: frozenset[str] = frozenset()) -> Grouping:
    """Groups the operations of a step into islands and host calls.

    Args:
        on_host: names of operations that must not be compiled although they could be.
    """
    analysis = _IslandAnalysis(step, on_host)
    items = analysis.items()
    dynamic = analysis.dependencies.dynamic
    islands = [item for item in items if isinstance(item, Island)]
    quick = quick_on_host(step, [island.operations for island in islands], analysis.host, dynamic)
    if quick and not functional_host_work(step, on_host | quick):  # a loop must not lose what it is compiled for
        # from the beginning: levels, and who waits for whom, depend on where every operation runs
        on_host |= quick
        analysis = _IslandAnalysis(step, on_host)
        items = analysis.items()
    if not dynamic and not step.transfers:
        islands = [item for item in items if isinstance(item, Island)]
        prepared = prepared_on_host(
            step, [island.operations for island in islands], analysis.host, analysis.dependencies
        )
        if prepared and not functional_host_work(step, on_host | prepared):
            other = _IslandAnalysis(step, on_host | prepared)
            others = other.items()
            if sum(isinstance(item, Island) for item in others) < len(islands):
                analysis, items = other, others
    return Grouping(items, analysis.waits, analysis.order, analysis.frames)


def group_in_phases(step: StepGraph, phases: UpdatePhases, alone: bool) -> Grouping:
    """Groups the operations of what was one island into one for each phase, in the order of these.

    Args:
        alone: whether each runs on the thread that calls it alone.
    """
    analysis = _IslandAnalysis(step, frozenset(), phases.of)
    items = analysis.items()
    for island in items:
        assert isinstance(island, Island)
        island.kept = phases.pinned
        island.keeps_locks = island.level == LOOKUPS
        island.is_alone, island.has_own_clients = alone, alone and island.level == GRADIENTS
    return Grouping(items, analysis.waits, analysis.order, analysis.frames)


def order_of(step: StepGraph) -> dict[StepNode, list[StepNode]]:
    """For each operation of a step, those that come before it to a variable of theirs."""
    analysis = _IslandAnalysis(step, frozenset())
    states = {op: state_of(op, known_handle) for op in step.operations}
    return variable_order(step, states, find_frames(analysis.dependencies))


def functional_host_work(step: StepGraph, on_host: frozenset[str] = frozenset()) -> set[StepNode]:
    """The conditionals and loops of a step that are not compiled: they are to be lowered before it is grouped."""
    if not any(op.op_def.is_functional for op in step.operations):
        return set()
    analysis = _IslandAnalysis(step, on_host)
    analysis._find_static()
    return {op for op in analysis.host if op.op_def.is_functional}


def _is_host_work(op: StepNode, on_host: frozenset[str]) -> bool:
    return op.name in on_host or runs_on_host(op) or _passes_handle(op) or _takes_unknown_handle(op)


def runs_on_host(op: StepNode) -> bool:
    """Whether an operation is host work: it has no compiled kernel, handles strings or quantised numbers, or calls
    a body that is.

    So is one that gets handles or lists of tensors in arrays of objects.

    Constant strings are not: a kernel that takes them as static inputs (an assertion's message) is compiled with them.
    """
    if op.op_def.compiled_rule is None:
        return True
    if op.type == "Const":
        return False
    if any(_host_dtype(t, op.op_def) for t in op.outputs) or op.op_def.object_positions(op):
        return True
    strings = {i for i, t in enumerate(op.inputs) if _host_dtype(t, op.op_def)}
    if strings and not (
        strings <= op.op_def.static_positions(op) and all(op.inputs[i].op.type == "Const" for i in strings)
    ):
        return True
    return nesting(op) > MAX_NESTING or any(not is_compilable(body) for body in bodies_of(op))


def _passes_handle(op: StepNode) -> bool:
    """Whether an operation passes on a handle that is not known while planning: that of a queue, say.

    Loops and conditionals give back the handles that they take.
    """
    return any(t.dtype is dtypes.resource for t in op.outputs) and not op.op_def.is_functional


def _takes_unknown_handle(op: StepNode) -> bool:
    """Whether a conditional, a loop or a list takes a handle that only the step knows: that of a queue, say."""
    return (op.op_def.is_functional or (op.op_def.knows_objects and op.op_def.host_rule is not None)) and any(
        t.dtype is dtypes.resource and known_handle(t) is None for t in op.inputs
    )


def _host_dtype(tensor: StepTensor, op_def: OpDef) -> bool:
    """Whether no accelerator knows the dtype: strings, and quantised numbers where kernels do not know them either."""
    return tensor.dtype is dtypes.string or (tensor.dtype.is_quantized and not op_def.takes_quantised)


@remembered
def is_compilable(body: StepFunction) -> bool:
    """Whether every operation of a function graph can be part of an island."""
    # loops carry quantised tensors as the host has them
    return not any(runs_on_host(op) or op.op_def.takes_quantised for op in body.operations)


# ---------------------------------------------------------------------- levels
class _IslandAnalysis:
    """The levels, cuts and boundaries of one step.

    Args:
        phases: take the place of levels in what was one island, where nothing is host work.
    """

    def __init__(self, step: StepGraph, on_host: frozenset[str], phases: Mapping[StepNode, int] | None = None) -> None:
        self.step = step
        self.members = set(step.operations)
        self.phases = phases
        self.host = {op for op in step.operations if phases is None and _is_host_work(op, on_host)}
        self.dependencies = Dependencies(step)
        if phases is None:
            self.host |= ChangingSizes(step, self.host).on_host()
        self.static: set[StepTensor] = set()
        self.cuts: set[StepTensor] = set()

    def items(self) -> list[PlanItem]:
        self._find_static()
        self.state = {op: state_of(op, known_handle) for op in self.step.operations}
        self.waits = {op: self.dependencies.of(op) for op in self.step.operations}
        self.frames = find_frames(self.dependencies)
        self.order = variable_order(self.step, self.state, self.frames)
        self.condition = find_conditions(self.dependencies, self.frames)
        # before the levels, which rise where host and compiled work meet, and before who waits: both are parts of an
        # island's key
        if self.phases is None:
            self._pass_on_host()
            self.host |= shapes_on_host(self.step, self.host, self.static)
            # what the host computes comes into an island from outside
            self.cuts = {tensor for tensor in self.cuts if tensor.op not in self.host}
        self._find_waiting()
        self._find_awaited()
        self.levels = find_levels(
            self.step.operations, {op: self._edges(op) for op in self.step.operations}, self.frames
        )
        self.level = self.levels.of if self.phases is None else dict(self.phases)
        if not self.dependencies.dynamic and self.phases is None:
            self._read_late()
        return self._build()

    def _taken(self, op: StepNode) -> list[StepTensor]:
        """The inputs of an operation; a Recv takes what was sent."""
        transfer = self.step.transfers.get(op)
        return op.inputs if transfer is None else [transfer.tensor]

    # ---- which values must be known when an island is compiled
    def _find_static(self) -> None:
        # from users to sources: a value that has to be known makes those known that it is computed from
        for op in reversed(self.step.operations):
            if self.phases is None and has_host_form(op) and self._would_compile_each_step(op):
                self.host.add(op)
            if op in self.host:
                continue
            for tensor in self._static_inputs(op):
                self._need_value(tensor)

    def _would_compile_each_step(self, op: StepNode) -> bool:
        """Whether data decides the static inputs of an operation: then its host kernel serves it better."""
        inputs = op.inputs
        answers: dict[StepTensor, bool] = {}
        return not all(self._follows_from_shapes(inputs[i], answers) for i in op.op_def.static_positions(op))

    def _follows_from_shapes(self, tensor: StepTensor, answers: dict[StepTensor, bool]) -> bool:
        op = tensor.op
        if tensor.is_known or op not in self.members:
            return tensor.is_known
        if op in self.step.transfers:
            return self._follows_from_shapes(self._taken(op)[0], answers)
        if op.op_def.few_values:
            return True
        if op in self.host or not op.op_def.portable or op.op_def.stateful:
            return False
        if tensor not in answers:
            sources = () if op.op_def.shape_valued else op.inputs
            answers[tensor] = all(self._follows_from_shapes(t, answers) for t in sources)
        return answers[tensor]

    def _static_inputs(self, op: StepNode) -> list[StepTensor]:
        inputs = op.inputs
        static: list[StepTensor] = []
        static.extend(inputs[i] for i in op.op_def.static_positions(op))
        known_outputs = [out for out in op.outputs if out in self.static and out not in self.cuts]
        # it runs while the island is traced, and so needs the values of its inputs then; of shapes the trace knows
        # anyhow
        if known_outputs and not op.op_def.shape_valued:
            static.extend(inputs)
        for body in bodies_of(op):
            outer = inputs[len(inputs) - len(body.inputs) :]
            static.extend(t for t, inner in zip(outer, body.inputs, strict=True) if inner in static_parameters(body))
        return static

    def _need_value(self, tensor: StepTensor) -> None:
        if tensor.is_known:
            return
        self.static.add(tensor)
        op = tensor.op
        # it comes into the island from outside, as a part of the key: nothing has to be cut
        if op not in self.members or op in self.host:
            return
        if not self._follows_from_small_values(op):
            self.cuts.add(tensor)

    def _follows_from_small_values(self, op: StepNode) -> bool:
        """Whether an operation can be computed while tracing without making its inputs' values part of the key
        that differ from step to step: only shapes and a few integers may decide what is compiled.
        """
        if op.op_def.shape_valued:
            return True
        if not op.op_def.portable or op.op_def.stateful:
            return False
        return all(t.is_known or is_small_integer(t) or (op.op_def.keeps_all and may_be_shape(t)) for t in op.inputs)

    # ---- what need not be compiled
    def _pass_on_host(self) -> None:
        """What only passes host values on stays there: most of what stands between primitives does nothing else.

        In a step without primitives that holds of what only waits.
        """
        dynamic = self.dependencies.dynamic
        for op in self.step.operations:
            op_def = op.op_def
            if dynamic and op_def.role is Role.CONSTANT:
                self.host.add(op)
            elif op_def.passes_on and (dynamic or not op.outputs) and op not in self.host:
                tensors, controls = self.waits[op]
                if all(source in self.host for source in (*(t.op for t in tensors), *controls)):
                    self.host.add(op)

    # ---- who may wait
    def _find_waiting(self) -> None:
        """For each operation, the set of those before it that may wait, as the bits of a number."""
        self.waiting = dict.fromkeys(self.step.operations, 0)
        waiters = [op for op in self.step.operations if op.op_def.asynchronous or op.op_def.blocking]
        if not waiters:
            return
        own = {op: 1 << i for i, op in enumerate(waiters)}
        changed = True
        # what comes along a back edge is known only after a pass; sets only grow, so that it ends: each loop in a loop
        # costs one pass more
        while changed:
            changed = False
            for op in self.step.operations:
                before = self.waiting[op]
                for source in self._sources(op):
                    before |= self.waiting[source] | own.get(source, 0)
                changed = changed or before != self.waiting[op]
                self.waiting[op] = before

    def _sources(self, op: StepNode) -> list[StepNode]:
        """The operations that `op` comes after, in this iteration or the one before."""
        tensors, controls = self.waits[op]
        back = [t.op for t in op.inputs if is_back_edge(op, t)]
        return [*(t.op for t in tensors), *controls, *self.order.get(op, ()), *back]

    def _find_awaited(self) -> None:
        """The operations whose results another device waits for, in however many steps."""
        self.awaited: set[StepNode] = {transfer.send for transfer in self.step.transfers.values()}
        if not self.awaited:
            return
        # from the Sends backwards: what an operation waits for stands before it
        for op in reversed(self.step.operations):
            if op in self.awaited:
                tensors, controls = self.waits[op]
                self.awaited.update((*(t.op for t in tensors), *controls, *self.order.get(op, ())))

    # ---- levels
    def _edges(self, op: StepNode) -> list[tuple[StepNode, int]]:
        """What an operation comes after, and by how many levels at least."""
        tensors, controls = self.waits[op]
        edges: list[tuple[StepNode, int]] = []
        for tensor in tensors:
            cut = tensor in self.cuts and self._uses_value(op, tensor)
            edges.append((tensor.op, self._changes(tensor.op, op) + cut))
        edges.extend((earlier, self._changes(earlier, op)) for earlier in controls)
        for earlier in self.order.get(op, ()):
            # an ordering passes no deadness on: the condition may lose a member here, which within a level it must not
            # (see the module docstring)
            survives = not self.condition[earlier] <= self.condition[op]
            edges.append((earlier, self._changes(earlier, op) + survives))
        return edges

    def _changes(self, earlier: StepNode, later: StepNode) -> bool:
        return (earlier in self.host) != (later in self.host) or earlier.placed_on != later.placed_on

    def _uses_value(self, op: StepNode, tensor: StepTensor) -> bool:
        return op not in self.host and tensor in self._static_inputs(op)

    # ---- reads
    def _read_late(self) -> None:
        """Puts the reads of variables, and what is computed of them, of what is fed and of constants alone, into the
        island of those that take them.

        See the module docstring. What comes after a read, such as what overwrites the variable, comes after it still.
        """
        takers: dict[StepNode, list[StepNode]] = {}
        followers: dict[StepNode, list[StepNode]] = {}
        for op in self.step.operations:
            tensors, controls = self.waits[op]
            for tensor in tensors:
                takers.setdefault(tensor.op, []).append(op)
            for earlier in (*controls, *self.order.get(op, ())):
                followers.setdefault(earlier, []).append(op)
        early = self._computed_early()
        # from the last: where an operation goes depends on where those go that take its results
        for op in reversed(early):
            compiled = [taker for taker in takers.get(op, ()) if taker not in self.host]
            if len({self._key(taker) for taker in compiled}) != 1:
                continue
            target = compiled[0]
            level, waiting = self.level[op], self.waiting[op]
            # what needs no variable is computed while the others wait
            if level >= self.level[target] or (waiting != self.waiting[target] and not early[op]):
                continue
            self.level[op], self.waiting[op] = self.level[target], self.waiting[target]
            others = [*takers[op], *followers.get(op, ())]
            strangers = [other for other in others if other in self.host or self._key(other) != self._key(op)]
            if self._key(op) != self._key(target) or any(self.level[s] <= self.level[op] for s in strangers):
                self.level[op], self.waiting[op] = level, waiting

    def _computed_early(self) -> dict[StepNode, bool]:
        """The compiled operations that read variables, and those that take what these give, what is fed and constants
        alone, in step order; and whether they need a variable.
        """
        found: dict[StepNode, bool] = {}
        for op in self.step.operations:
            reads = op.op_def.only_reads
            computes = bool(op.inputs) and not (op.op_def.stateful or op.op_def.random or bodies_of(op))
            if op in self.host or not (reads or computes) or not self.cuts.isdisjoint(op.outputs):
                continue
            tensors, _ = self.waits[op]
            if all(tensor.op in found for tensor in tensors):
                found[op] = reads or any(found[tensor.op] for tensor in tensors)
        return found

    # ---- building the items
    def _key(self, op: StepNode) -> Hashable:
        """What the operations of an island have in common; see the module docstring."""
        # nothing is promised of its level, so that nothing may share an island with it
        if op in self.levels.tangled:
            return op
        frame = self.frames.of[op].position
        return self.level[op], op.placed_on, frame, op in self.awaited, self.condition[op], self.waiting[op]

    def _place(self, op: StepNode) -> tuple[int, ...]:
        """Where an operation comes among the items."""
        # a placeholder that runs was not fed, which is to be found out before anything has happened
        level = -1 if op.op_def.role is Role.PLACEHOLDER else self.level[op]
        # the order that the module docstring argues for: islands first, and among these those that others wait for
        if op in self.host:
            return level, 1, 0, 0, 0
        return level, 0, op not in self.awaited, self.waiting[op].bit_count(), len(self.condition[op])

    def _build(self) -> list[PlanItem]:
        islands: dict[Hashable, Island] = {}
        items: list[tuple[tuple[int, ...], int, PlanItem]] = []
        for position, op in enumerate(self.step.operations):
            key = self._key(op)
            if op in self.host:
                items.append((self._place(op), position, HostCall(op, self.level[op])))
            elif key in islands:
                islands[key].operations.append(op)
            else:
                islands[key] = Island([op], self.level[op], op.placed_on)
                items.append((self._place(op), position, islands[key]))
        for island in islands.values():
            self._complete(island)
        self._find_outputs(islands)
        return [item for _, _, item in sorted(items, key=lambda entry: entry[:2])]

    def _complete(self, island: Island) -> None:
        members = set(island.operations)
        inputs: dict[StepTensor, None] = {}
        reads: dict[ResourceHandle, None] = {}
        writes: dict[ResourceHandle, None] = {}
        for op in island.operations:
            for tensor in op.inputs:
                if tensor.is_known:
                    island.known[tensor] = tensor.known
                elif tensor.op not in members:
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

    def _find_outputs(self, islands: dict[Hashable, Island]) -> None:
        """An island's outputs: what is fetched of it, and what operations outside it take."""
        home = {op: key for key, island in islands.items() for op in island.operations}
        needed: dict[Hashable, dict[StepTensor, None]] = {key: {} for key in islands}
        uses: list[tuple[StepTensor, StepNode | None]] = [(t, None) for t in self.step.fetches]
        uses.extend((t, op) for op in self.step.operations for t in op.inputs)
        for tensor, user in uses:
            if tensor.is_known or tensor.op not in home:
                continue
            key = home[tensor.op]
            if user is None or user in self.host or home[user] != key:
                needed[key][tensor] = None
        for key, island in islands.items():
            island.outputs = list(needed[key])


@remembered
def static_parameters(body: StepFunction) -> frozenset[StepTensor]:
    """The parameters of a function graph whose values must be known when it is compiled."""
    analysis = _IslandAnalysis(StepGraph(body.operations, body.outputs, [], body.inputs), frozenset())
    # only the bodies of compiled operations are asked about, and these are compiled whole
    analysis.host = set()
    analysis._find_static()
    return frozenset(t for t in body.inputs if t in analysis.static)
