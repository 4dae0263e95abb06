"""An island as one program of JAX's: its operations are traced from its arguments to its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.kernel_context import Check
from anabranch.core.quantised_arrays import as_integers
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.ops.lists.values import TensorList
from anabranch.xla.islands import Island
from anabranch.xla.kernel_choice import KernelChoice, KernelTarget
from anabranch.xla.library_updates import library_updates
from anabranch.xla.lowering import TraceState, trace_operations
from anabranch.xla.read_order import unordered_reads
from anabranch.xla.state import known_handle, state_of
from anabranch.xla.watched_loops import WatchedLoops


class IslandProgram:
    """What the programs of an island have in common; `Executable` tells of their arguments and results.

    Args:
        dynamic: the inputs that are arguments.
        handles: the variables that are, in their order.
        target: what kernels are chosen for.
        platform: what XLA compiles for.
    """

    def __init__(
        self,
        island: Island,
        dynamic: Sequence[StepTensor],
        handles: Sequence[ResourceHandle],
        target: KernelTarget,
        platform: str,
    ) -> None:
        self._island, self._dynamic, self._handles = island, dynamic, handles
        self._target, self._platform = target, platform
        self._parts = _before_and_after_writes(island)
        self._positions = {op: i for i, op in enumerate(island.random)}
        self._used = frozenset(t for op in island.operations for t in op.inputs).union(island.outputs)

    def trace(
        self,
        args: Sequence[Any],
        fixed: dict[StepTensor, Any],
        checks: list[Check],
        notes: dict[str, None],
        kernels: dict[str, KernelChoice],
        watched: WatchedLoops | None,
    ) -> tuple[Any, ...]:
        """Traces the island; what changes variables twice where there are checks, so that it can depend on all of them.

        The operations of the first trace that matter (those the checks are computed from) are the same as in the
        second, and XLA merges them.
        """
        before_writes, state = self.begin(args, self.known_with(fixed))
        state.notes, state.choices, state.watched, state.target = notes, kernels, watched, self._target
        state.library = library_updates(self._island, self._platform)
        # measured on processors only
        state.read_first = unordered_reads(self._island.operations) if self._platform == "cpu" else {}
        before, after = self._parts
        trace_operations(before, before_writes, state)
        values, final = self._continue(after, before_writes, state, None)
        checks[:] = final.checks
        if checks and self._island.writes:
            guard = jnp.all(jnp.stack([c.ok for c in checks]))
            values, final = self._continue(after, before_writes, state, guard)
            # a check that depends on a change sees the old value in the second trace, where it may hold
            final.checks = checks
        return self._results(args, values, final)

    def known_with(self, fixed: Mapping[StepTensor, Any]) -> dict[StepTensor, Any]:
        """The values that are the same in all calls of a variant, as programs take them."""
        return {t: as_integers(value) for t, value in {**self._island.known, **fixed}.items()}

    def begin(self, args: Sequence[Any], known: Mapping[StepTensor, Any]) -> tuple[dict[StepTensor, Any], TraceState]:
        """The values and the state with which the island's operations begin."""
        tensors = [*self._dynamic, *self._island.constants]
        values = dict(known)
        values.update(zip(tensors, args, strict=False))
        variables = dict(zip(self._handles, args[len(tensors) : len(tensors) + len(self._handles)], strict=True))
        counters = args[-1] if self._island.random else None

        def counter_of(op: StepNode) -> Any:
            position = self._positions.get(op)
            return np.uint32(0) if position is None or counters is None else counters[position]

        run_seed = 0 if counters is None else counters[-1]
        return values, TraceState(variables, counter_of, run_seed, used=self._used)

    def _continue(
        self, operations: list[StepNode], env: dict[StepTensor, Any], state: TraceState, guard: TensorValue
    ) -> tuple[dict[StepTensor, Any], TraceState]:
        """Traces the rest of the island from a state that stays as it is."""
        # copies: the rest may be traced twice from this state
        values = dict(env)
        later = replace(
            state, variables=dict(state.variables), written=set(state.written), checks=list(state.checks), guard=guard
        )
        trace_operations(operations, values, later)
        return values, later

    def _results(self, args: Sequence[Any], values: dict[StepTensor, Any], state: TraceState) -> tuple[Any, ...]:
        new_values = [jnp.asarray(state.variables[h]) for h in self._island.writes]
        # a buffer of which two owners know could be donated by one while the other reads it
        taken = {id(v) for v in (*args, *new_values)}
        outputs = [_own_buffer(values[t], taken) for t in self._island.outputs]
        if not state.checks:
            return (*outputs, *new_values)
        failed = jnp.stack([jnp.logical_not(c.ok) for c in state.checks])
        shown = [jnp.asarray(v) for c in state.checks for v in c.values]
        return (*outputs, *new_values, failed, *shown)


def _before_and_after_writes(island: Island) -> tuple[list[StepNode], list[StepNode]]:
    """The operations that no write of the island leads to, and the others: writes, and what depends on them."""
    after: set[StepNode] = set()
    written: set[ResourceHandle] = set()
    for op in island.operations:
        reads, writes = state_of(op, known_handle)
        # step order is the order of accesses (D11): what comes to a variable after a write sees the new value
        if writes or not written.isdisjoint(reads) or any(t.op in after for t in op.inputs):
            after.add(op)
            written.update(writes)
    return [op for op in island.operations if op not in after], [op for op in island.operations if op in after]


def _own_buffer(value: TensorValue, taken: set[int]) -> Any:
    """A result that no argument, variable or other result shares a buffer with."""
    if isinstance(value, TensorList):
        return value if value.elements is None else jax.tree.map(lambda v: _own_buffer(v, taken), value)
    if id(value) in taken:
        return jnp.copy(value)
    if not isinstance(value, np.ndarray):
        taken.add(id(value))
    return value
