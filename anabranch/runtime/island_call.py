"""Running one island in a step: gather its arguments, call its executable, take its results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.resources import ResourceHandle
from anabranch.errors import OpError
from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.host_context import uninitialized
from anabranch.runtime.jax_errors import as_op_error
from anabranch.runtime.random_counters import RandomCounters
from anabranch.xla.executable import Executable, failed_check
from anabranch.xla.islands import Island
from anabranch.xla.lowering import NeedsHostError

Values = list[Any]


class IslandCall:
    """An island bound to the variables of a task and to the slots in which a step keeps its values.

    Variables are locked in one global order (by name), writers for the whole dispatch; see `VariableState`.
    """

    def __init__(
        self, island: Island, slots: dict[Any, int], containers: Containers, run_seed: int, counters: RandomCounters
    ) -> None:
        self.executable = executable = Executable(island, run_seed)
        self.island = island
        self._inputs = [slots[t] for t in executable.dynamic]
        self._open = [self._inputs[i] for i in executable.open_inputs]
        self._lists = [i for i, t in enumerate(executable.dynamic) if t.dtype is dtypes.variant]
        self._static = [slots[t] for t in executable.static]
        self._outputs = [slots[t] for t in island.outputs]
        self._constants = executable.constants
        self._written = [containers.variable(h) for h in island.writes]
        self._counters = counters.group(island.random) if executable.uses_random else None
        argument_order = [*executable.read_only, *executable.donated]
        self._bind_variables(argument_order, set(executable.read_only), containers)
        by_handle = dict(zip(argument_order, self._arguments, strict=True))
        self._open_variables = [by_handle[h] for h in argument_order if not _fixed_shape(island, h)]
        self._simple_key = not self._static and not self._open_variables

    def _bind_variables(
        self, argument_order: Sequence[ResourceHandle], read_only: set[ResourceHandle], containers: Containers
    ) -> None:
        self._arguments = [containers.variable(h) for h in argument_order]
        every = {(s.handle.container, s.handle.name): s for s in (*self._arguments, *self._written)}
        pinned = {id(containers.variable(h)) for h in read_only}
        #: every variable touched, in locking order, with whether it is only read
        self._locking = [(every[key], id(every[key]) in pinned) for key in sorted(every)]
        self._donated_from = len(read_only)

    def __call__(self, values: Values) -> None:
        """Runs the island on the values of a step and stores its outputs there.

        Raises:
            FailedPreconditionError: a variable that it reads has no value.
            OpError: a check failed (no variable is changed then), or the device failed.
        """
        args = [values[i] for i in self._inputs]
        for position in self._lists:
            if args[position].on_host:
                raise NeedsHostError(self._taker_of(position), "a list whose elements have different shapes")
        args += self._constants
        if not self._locking:
            results = self._dispatch(values, args, [])
        else:
            results = self._with_variables(values, args)
        for slot, result in zip(self._outputs, results, strict=False):
            values[slot] = result

    def outputs_in(self, values: Values) -> list[Any]:
        """The island's outputs among the values of a step."""
        return [values[slot] for slot in self._outputs]

    def _with_variables(self, values: Values, args: list[Any]) -> Any:
        held: list[VariableState] = []
        pinned: list[VariableState] = []
        try:
            for state, only_read in self._locking:
                state.lock.acquire()
                if only_read:
                    state.pins += 1
                    pinned.append(state)
                    state.lock.release()
                else:
                    held.append(state)
            results = self._dispatch(values, args, self._arguments)
            at = len(self._outputs)
            for state in self._written:
                state.value = results[at]
                at += 1
            return results
        finally:
            for state in held:
                state.lock.release()
            for state in pinned:
                with state.lock:
                    state.pins -= 1

    def _dispatch(self, values: Values, args: list[Any], variables: list[VariableState]) -> Any:
        for position, state in enumerate(variables):
            value = state.value
            if value is None:
                raise uninitialized(self._reader_of(state.handle), state.handle)
            if state.pins and position >= self._donated_from:
                value = value.copy()
            args.append(value)
        if self._counters is not None:
            args.append(self._counters.advance())
        executable = self.executable
        if self._simple_key:
            key: Hashable = tuple([values[i].shape for i in self._open])
            variant = executable.variant(key, ())
        else:
            variant = self._variant(values)
        try:
            results = executable.call(variant, args)
            if len(results):
                # the program may still read fed arrays, which belong to the caller, and the next writer of a variable
                # would take the result's buffer away from whoever waits for it later
                results[0].block_until_ready()
        except OpError:
            raise
        except jax.errors.JaxRuntimeError as error:
            raise as_op_error(error, self.island.operations[-1], self.island.name) from error
        if variant.checks:
            self._raise_failed(variant.checks, results, variables)
        return results

    def _variant(self, values: Values) -> Any:
        static = [np.asarray(values[i]) for i in self._static]
        key = (
            tuple([np.shape(values[i]) for i in self._open]),
            tuple([(v.shape, v.tobytes()) for v in static]),
            tuple([None if s.value is None else s.value.shape for s in self._open_variables]),
        )
        return self.executable.variant(key, static)

    def _raise_failed(self, checks: Any, results: Any, variables: list[VariableState]) -> None:
        at = len(self._outputs) + len(self._written)
        if not np.asarray(results[at]).any():
            return
        # the arguments were donated, so the (guarded, hence unchanged) results take their place
        donated = {id(s) for s in variables[self._donated_from :]}
        for state, value in zip(self._written, results[len(self._outputs) :], strict=False):
            if id(state) in donated:
                state.value = value
        raise failed_check(checks, results[at], results[at + 1 :])

    def _taker_of(self, position: int) -> Any:
        """The first operation that takes an input."""
        tensor, alias = self.executable.dynamic[position], self.island.alias
        return next(op for op in self.island.operations if any(alias.get(t, t) is tensor for t in op.inputs))

    def _reader_of(self, handle: ResourceHandle) -> Any:
        for op in self.island.operations:
            if any(self.island.known.get(self.island.alias.get(t, t)) == handle for t in op.inputs):
                return op
        return self.island.operations[-1]


def _fixed_shape(island: Island, handle: ResourceHandle) -> bool:
    """Whether the graph fixes the shape of a variable, so that it need not be part of the compilation key."""
    for tensor, value in island.known.items():
        if isinstance(value, ResourceHandle) and value == handle:
            shape = tensor.op.attrs.get("shape")
            return shape is not None and shape.is_fully_defined()
    return False
