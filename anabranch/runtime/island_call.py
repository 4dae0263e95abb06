"""Running one island in a step: gather its arguments, call its executable, take its results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.devices import Device
from anabranch.core.resources import ResourceHandle
from anabranch.errors import OpError
from anabranch.graph.loop_bodies import bodies_of, contains_loop
from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.devices import explicit_xla_device
from anabranch.runtime.host_context import uninitialized
from anabranch.runtime.jax_errors import as_op_error
from anabranch.runtime.random_counters import RandomCounters
from anabranch.xla.executable import Executable, Variant, VariantKey, failed_check
from anabranch.xla.islands import Island
from anabranch.xla.jax_settings import wide_types
from anabranch.xla.lowering import NeedsHostError
from anabranch.xla.state import state_of
from anabranch.xla.watched_loops import watching

Values = list[Any]

#: where a step with a deadline, and each iteration of its loops, keeps its `StepWaiting` among its values
WATCH: Final = -2


class IslandCall:
    """An island bound to the variables of a task and to the slots in which a step keeps its values.

    All its variables are locked, in one global order (by name), while their values are taken, so that an island sees
    those of one moment; those that it writes stay locked until it has run. See `VariableState`.
    """

    def __init__(
        self,
        island: Island,
        slots: dict[Any, int],
        containers: Containers,
        counters: RandomCounters,
        device: Device | None = None,
    ) -> None:
        self.executable = executable = Executable(island, explicit_xla_device(device))
        self.island = island
        self._inputs = [slots[t] for t in executable.dynamic]
        self._open = [self._inputs[i] for i in executable.open_inputs]
        self._lists = [i for i, t in enumerate(executable.dynamic) if t.dtype is dtypes.variant]
        self._static = [slots[t] for t in executable.static]
        self._outputs = [slots[t] for t in island.outputs]
        self._has_constants = bool(executable.constants)
        self._written = [containers.variable(h) for h in island.writes]
        self._counters = counters.group(island.random) if executable.uses_random else None
        argument_order = [*executable.read_only, *executable.donated]
        self._bind_variables(argument_order, set(executable.read_only), containers)
        first = len(self._inputs) + len(executable.constants)
        #: the arguments that are values of variables whose shapes may change
        self._open_variables = [first + i for i, h in enumerate(argument_order) if not _fixed_shape(island, h)]
        self._simple_key = not self._static and not self._open_variables
        self._has_loops = any(map(contains_loop, island.operations))

    def _bind_variables(
        self, argument_order: Sequence[ResourceHandle], read_only: set[ResourceHandle], containers: Containers
    ) -> None:
        self._arguments = [containers.variable(h) for h in argument_order]
        every = {(s.handle.container, s.handle.name): s for s in (*self._arguments, *self._written)}
        #: every variable touched, in locking order
        self._locking = [every[key] for key in sorted(every)]
        self._changing = [s for s in self._locking if s in self._written]
        self._pinned = [s for s in self._locking if s not in self._written]
        self._donated_from = len(read_only)

    def __call__(self, values: Values) -> None:
        """Runs the island on the values of a step and stores its outputs there.

        Raises:
            FailedPreconditionError: a variable that it reads has no value.
            OpError: a check failed (no variable is changed then), the device failed, or a loop of the step was stopped.
        """
        args = [values[i] for i in self._inputs]
        for position in self._lists:
            if getattr(args[position], "on_host", True):
                raise NeedsHostError(
                    self._taker_of(position), "a list whose elements have different shapes, or a dataset"
                )
        with wide_types():
            if self._has_constants:
                args += self.executable.constant_arguments()
            if not self._locking:
                results = self._dispatch(values, args)
            else:
                results = self._with_variables(values, args)
        for slot, result in zip(self._outputs, results, strict=False):
            values[slot] = result

    def outputs_in(self, values: Values) -> list[Any]:
        """The island's outputs among the values of a step."""
        return [values[slot] for slot in self._outputs]

    def _with_variables(self, values: Values, args: list[Any]) -> Any:
        self._take_values(args)
        try:
            results = self._dispatch(values, args)
            at = len(self._outputs)
            for state in self._written:
                state.value = results[at]
                at += 1
            return results
        finally:
            for state in self._changing:
                state.lock.release()
            for state in self._pinned:
                with state.lock:
                    state.pins -= 1

    def _take_values(self, args: list[Any]) -> None:
        """Adds the variables' values to the arguments; leaves those that are written locked, and the others pinned."""
        locked: list[VariableState] = []
        there = self.executable.device
        try:
            for state in self._locking:
                state.lock.acquire()
                locked.append(state)
            for position, state in enumerate(self._arguments):
                value = state.value
                if value is None:
                    raise self._without_value(state.handle)
                if there is not None and value.device is not there and not state.pins:
                    state.value = value = jax.device_put(value, there)  # a variable lives where it is used
                args.append(value.copy() if state.pins and position >= self._donated_from else value)
        except BaseException:
            for state in locked:
                state.lock.release()
            raise
        for state in self._pinned:
            state.pins += 1
            state.lock.release()

    def _dispatch(self, values: Values, args: list[Any]) -> Any:
        if self._counters is not None:
            args.append(self._counters.advance())
        if self._has_loops and values[WATCH] is not None:
            return self._dispatch_watched(values, args)
        if self._simple_key:
            key: Hashable = tuple([values[i].shape for i in self._open])
            variant = self.executable.variant(key, ())
        else:
            variant = self._variant(values, args)
        results = self._call(variant, args)
        if variant.checks:
            self._raise_failed(variant.checks, results)
        return results

    def _dispatch_watched(self, values: Values, args: list[Any]) -> Any:
        watch = values[WATCH]
        variant = self._variant(values, args, watched=True)
        with watching(watch) as number:
            results = self._call(variant, [*args, number])
        try:
            self._raise_failed(variant.checks, results)
        except OpError as error:
            raise watch.stopped or error from None
        return results

    def _call(self, variant: Variant, args: list[Any]) -> Any:
        executable = self.executable
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
        return results

    def _variant(self, values: Values, args: list[Any], watched: bool = False) -> Variant:
        static = [np.asarray(values[i]) for i in self._static]
        key = VariantKey(
            tuple([np.shape(values[i]) for i in self._open]),
            tuple([(v.shape, v.tobytes()) for v in static]),
            tuple([args[i].shape for i in self._open_variables]),
        )
        return self.executable.variant(key, static, watched)

    def _raise_failed(self, checks: Any, results: Any) -> None:
        at = len(self._outputs) + len(self._written)
        if not np.asarray(results[at]).any():
            return
        # the arguments were donated, so the (guarded, hence unchanged) results take their place
        donated = {id(s) for s in self._arguments[self._donated_from :]}
        for state, value in zip(self._written, results[len(self._outputs) :], strict=False):
            if id(state) in donated:
                state.value = value
        raise failed_check(checks, results[at], results[at + 1 :])

    def _taker_of(self, position: int) -> Any:
        """The first operation that takes an input."""
        tensor, alias = self.executable.dynamic[position], self.island.alias
        return next(op for op in self.island.operations if any(alias.get(t, t) is tensor for t in op.inputs))

    def _without_value(self, handle: ResourceHandle) -> Exception:
        """What a variable without a value means: an error, unless a conditional may not need it, as the host finds."""
        alias, known = self.island.alias, self.island.known
        for op in self.island.operations:
            if handle in state_of(op, lambda t: known.get(alias.get(t, t)))[0]:
                if bodies_of(op):
                    return NeedsHostError(op, f"the {handle} has no value yet, which the branch taken may not need")
                return uninitialized(op, handle)
        return uninitialized(self.island.operations[-1], handle)


def _fixed_shape(island: Island, handle: ResourceHandle) -> bool:
    """Whether the graph fixes the shape of a variable, so that it need not be part of the compilation key."""
    for tensor, value in island.known.items():
        if isinstance(value, ResourceHandle) and value == handle:
            shape = tensor.op.attrs.get("shape")
            return shape is not None and shape.is_fully_defined()
    return False
