"""Running one island in a step: gather its arguments, call its executable, take its results.

**An exception may enter at any bytecode**: the handler of a signal raises on the main thread, another thread throws one
(`PyThreadState_SetAsyncExc`). It must not find buffers given away whose successors are not stored, several variables of
one island of different steps, or a lock that stays locked. CPython looks for exceptions of this kind between bytecodes,
never inside a call of a function that is written in C and calls only such functions. So what belongs together is one
call, of iterators made before, which compute when they are drawn from:

- locking a variable and noting that it is locked (`held`), pinning it and noting that (`pinned`);
- undoing all that is noted, in `finally`, whose first bytecodes make no call but this. An iterator that was drawn from
  is at its end, so that undoing what is undone already does nothing;
- running the executable, which takes the donated buffers, and storing the results in all variables (`_stored`).

The last holds only if the executable is called without Python code in between. JAX does so from the second call on, and
never for programs that call back (watched loops, kernels of libraries, which nothing may interrupt even where nothing
is written). All other calls are made by a worker thread, which owns the locks then and to which no signal comes; the
thread of the step waits for it (`_NotInOneCallError`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import call
from time import perf_counter
from typing import Any, Final

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.devices import Device
from anabranch.core.kernel_context import Check
from anabranch.core.kernels import has_alternates
from anabranch.core.quantised_arrays import as_integers, as_records
from anabranch.core.resources import ResourceHandle
from anabranch.errors import OpError
from anabranch.graph.loop_bodies import bodies_of, contains_loop
from anabranch.kernels.native_calls import failed_operation
from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.contention import Contention
from anabranch.runtime.devices import explicit_xla_device
from anabranch.runtime.item_call import ItemCall
from anabranch.runtime.jax_errors import as_op_error, is_of_the_device
from anabranch.runtime.pace import takes_short_turns_here
from anabranch.runtime.published_values import PublishedValue
from anabranch.runtime.row_changes import uninitialized
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.step_frame import FrameWaiting, StepFrame
from anabranch.runtime.turns import Turns
from anabranch.runtime.worker_threads import runs_here, worker_threads
from anabranch.xla.executable import EAGER_VARIANTS, Executable, failed_check
from anabranch.xla.islands import Island
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.lowering import NeedsHostError
from anabranch.xla.one_thread import own_clients
from anabranch.xla.row_updates import RowUpdates, can_change_rows
from anabranch.xla.state import known_handle, state_of
from anabranch.xla.variants import Variant, VariantKey
from anabranch.xla.watched_loops import watching

#: takes everything from an iterator, in one call
drain: Final[Callable[[Any], None]] = deque[Any](maxlen=0).extend
acquire: Final[Callable[[Any], bool]] = type(threading.Lock()).acquire
release: Final[Callable[[Any], None]] = type(threading.Lock()).release
is_locked: Final[Callable[[Any], bool]] = type(threading.Lock()).locked
pin: Final[Callable[[list[None], None], None]] = list.append
unpin: Final[Callable[[list[None], None], None]] = list.remove


#: outputs of at most so many bytes are copied from an accelerator whether somebody fetches them or not
_FETCHED_AHEAD: Final = 1 << 14


class _NotInOneCallError(Exception):
    """The variant's program cannot be called without Python code in between."""


class IslandCall(ItemCall):
    """An island bound to the variables of a task and to the slots in which a step keeps its values.

    All its variables are locked, in one global order (by name), while their values are taken, so that an island sees
    those of one moment; those that it writes stay locked until it has run. See `VariableState`.

    Attributes:
        open_slots: those of inputs whose shapes may differ from step to step.
    """

    def __init__(
        self,
        island: Island,
        slots: dict[Any, int],
        environment: SessionEnvironment,
        device: Device | None = None,
    ) -> None:
        containers = environment.containers
        device_type = "" if device is None else device.device_type
        self.executable = executable = Executable(island, explicit_xla_device(device), device_type)
        self.island = island
        self._is_far = self.executable.platform != "cpu"
        self.op, self.operations = island.operations[-1], island.operations
        self.kind, self.device = "Island", island.device
        self._inputs = [slots[t] for t in executable.dynamic]
        self.open_slots = [self._inputs[i] for i in executable.open_inputs]
        self._lists = [i for i, t in enumerate(executable.dynamic) if t.dtype is dtypes.variant]
        self._quantised = [i for i, t in enumerate(executable.dynamic) if t.dtype.is_quantized]
        self._quantised_outputs = [(slots[t], t.dtype) for t in island.outputs if t.dtype.is_quantized]
        self._static = [slots[t] for t in executable.static]
        self._outputs = [slots[t] for t in island.outputs]
        self._has_constants = bool(executable.constants)
        self._containers = containers
        self._written = [containers.variable(h) for h in island.writes]
        self._counters = (
            environment.counters.group([op.origin for op in island.random]) if executable.uses_random else None
        )
        argument_order = [*executable.read_only, *executable.kept, *executable.donated]
        self._bind_variables(argument_order, len(argument_order) - len(executable.donated), containers)
        first = len(self._inputs) + len(executable.constants)
        #: the arguments that are values of variables whose shapes may change
        fixed = _of_fixed_shape(island)
        self._open_variables = [first + i for i, h in enumerate(argument_order) if h not in fixed]
        self._simple_key = not self._static and not self._open_variables
        #: whether a program may call back from its kernels even where it writes nothing
        self._may_call_back = any(has_alternates(op.type, op.attrs, settled=False) for op in island.operations)
        self._has_loops = any(map(contains_loop, island.operations))
        # where threads of the program's run the same, which call compiled programs, the last places must be the same
        changes_rows = can_change_rows(island, self.executable.platform, small=environment.is_remote)
        changes_rows &= self.executable.device is None
        #: what takes the place of all programs where few rows are changed
        self._rows = RowUpdates(island, executable.dynamic, argument_order) if changes_rows else None
        #: how long it waits for others that write the same, and whose turn it is, of which one variable tells enough;
        #: None where there are no threads of a program's
        self._contention: Contention | None = None
        self._turns: Turns | None = None
        if self._written and not environment.is_remote:
            self._contention = Contention()
            self._turns = next(s.turns for s in self._written if s.lock is self._written_locks[0])
        #: the first sizes of what it takes on threads of the program's
        self._row_sizes: set[tuple[tuple[int, ...], ...]] = set()

    def _bind_variables(
        self, argument_order: Sequence[ResourceHandle], donated_from: int, containers: Containers
    ) -> None:
        self._arguments = [containers.variable(h) for h in argument_order]
        self._donated_from = donated_from
        every = {(s.handle.container, s.handle.name): s for s in (*self._arguments, *self._written)}
        #: every variable touched, in locking order
        touched = [every[key] for key in sorted(every)]
        # two islands that took common locks in different orders could wait for each other for ever
        self._locks = [s.lock for s in touched]
        # sets, here and below: an island may have thousands of variables
        written = set(map(id, self._written))
        self._writes = [id(s) in written for s in touched]
        self._reads = [not writes for writes in self._writes]
        self._written_locks = list(compress(self._locks, self._writes))
        self._read_locks = list(compress(self._locks, self._reads))
        # where nobody may change what it reads meanwhile, its locks are kept, and nothing is pinned
        self._pins = [] if self.island.keeps_locks else [s.pins for s in compress(touched, self._reads)]
        donated = set(map(id, self._arguments[self._donated_from :]))
        stores = [partial(setattr, s, "value") for s in self._written]
        #: what takes each new value while a check may still fail: its variable, or None where the old one stays. A
        #: donated buffer is gone by then, so that its variable has to take the result (the old value if a check fails)
        self._stores_checked = [
            store if id(state) in donated else None for state, store in zip(self._written, stores, strict=True)
        ]
        self._stores_late = [
            store for state, store in zip(self._written, stores, strict=True) if id(state) not in donated
        ]

    def is_quick(self) -> bool:
        """Whether its program is compiled, ends by itself, and nobody has locked its variables.

        Of programs for several shapes one is enough: `is_quick_with` tells once the inputs are there.
        """
        # a lock may still be taken before this thread comes to it, by an island that ends without this thread
        if not self._simple_key or self._has_loops or any(map(is_locked, self._locks)):
            return False
        if self._rows is not None and self._is_safe_here():
            return True
        return self.executable.has_ready_variant(None if self.open_slots else ())

    def is_quick_with(self, frame: StepFrame) -> bool:
        """The same, of the program for inputs of these shapes."""
        values, rows = frame.values, self._rows
        if rows is not None and self._is_safe_here() and rows.takes([values[i] for i in self._inputs]):
            return not any(map(is_locked, self._locks))
        if not self.is_quick():
            return False
        if rows is None and not self.open_slots:
            return True
        return self.executable.has_ready_variant(tuple([values[i].shape for i in self.open_slots]))

    def waits_long(self) -> bool:
        """Whether threads have waited long for the variables that it writes."""
        return self._contention is not None and self._contention.is_long

    def changes_at_once(self) -> bool:
        """Whether all that it writes is stored in one call, even if it has checks."""
        return len(self._stores_late) in (0, len(self._written))

    def release(self) -> None:
        self.executable.clear()

    @property
    def sources(self) -> list[str]:
        return [t.op.name for t in self.island.inputs]

    def __call__(self, frame: StepFrame) -> None:
        """Runs the island on the values of a step and stores its outputs there.

        Raises:
            FailedPreconditionError: a variable that it reads has no value.
            OpError: a check failed (no variable is changed then), the device failed, or a loop of the step was stopped.
            NeedsPartsError: parts of it are to run in its place, from now on.
        """
        in_wide_types(self._run, frame)

    def _run(self, frame: StepFrame) -> None:
        values = frame.values
        args = [values[slot] for slot in self._inputs]
        for position in self._lists:
            # a program takes a list as arrays of the device; a list that stays on the host, or a dataset, is none
            if getattr(args[position], "on_host", True):
                raise NeedsHostError(
                    self._consumer_of(position), "a list whose elements have different shapes, or a dataset"
                )
        for position in self._quantised:
            args[position] = as_integers(args[position])
        if self._has_constants:
            args += self.executable.constant_arguments()
        if self._contention is not None:
            self._contention.ran()
        # once for both attempts below, so that the second one draws the same random numbers
        tail = () if self._counters is None else (self._counters.advance(),)
        try:
            if not self._locks:
                results = self._dispatch(frame, [*args, *tail])
            elif self._hands_rows_over(args):
                results = worker_threads.call(lambda: self._apart(frame, args, tail, 0))
            else:
                results = self._with_variables(frame, args, tail)
        except _NotInOneCallError:
            client = own_clients.here
            results = worker_threads.call(lambda: self._apart(frame, args, tail, client))
        # the outputs come first; flags and what the checks' messages show may follow them, so that the lengths differ
        for position, slot in enumerate(self._outputs):
            values[slot] = results[position]
        for slot, dtype in self._quantised_outputs:
            values[slot] = as_records(np.asarray(values[slot]), dtype)

    def _hands_rows_over(self, args: list[Any]) -> bool:
        """Whether a thread of ours is to change rows, since a program for each number of rows would take far longer.

        A thread of the program's runs programs while these are as few as those that are compiled at once.
        """
        if self._rows is None or self._is_safe_here():
            return False
        if not self._rows_differ:
            self._row_sizes.add(tuple([np.shape(value) for value in args]))
        return self._rows_differ and self._rows.takes(args, many_sizes=True)

    @property
    def _rows_differ(self) -> bool:
        """Whether threads of the program's have had more numbers of rows than programs are made for."""
        return len(self._row_sizes) > EAGER_VARIANTS

    def _apart(self, frame: StepFrame, args: list[Any], tail: tuple[Any, ...], client: int) -> Any:
        """On a thread of ours: no exception comes from outside there, so that it may take several calls.

        Args:
            client: the calling thread's, of those of one thread.
        """
        own_clients.here = client
        try:
            return in_wide_types(self._with_variables, frame, args, tail, True)
        finally:
            own_clients.here = 0

    def _with_variables(self, frame: StepFrame, inputs: list[Any], tail: tuple[Any, ...], apart: bool = False) -> Any:
        held: list[bool] = []
        turns, began = self._turns, 0.0
        # almost always nobody else is there, and nothing is asked
        if turns is not None and (turns.thread or turns.runs):
            began = perf_counter()
            turns.come()
        if not self._pins:
            # it is made before there is anything to undo, and reads `held` when it is drawn from
            undo: Iterator[Any] = map(release, compress(self._locks, held))
            try:
                held.extend(map(acquire, self._locks))
                if turns is not None:
                    self._has_turn(turns, began)
                args = [*inputs, *self._take_values(), *tail]
                withdrawn = self._withdraw() if self._containers.board is not None else ()
                results = self._dispatch(frame, args, apart)
                for state, published in withdrawn:
                    published.show(state.value)
                if turns is not None:
                    turns.runs = False
            finally:
                drain(undo)
            if turns is not None and (turns.thread or turns.waiting):
                turns.go()
            return results
        pinned: list[None] = []
        # variables that are only read are pinned and unlocked before the program runs: nobody waits for a reader (0012)
        release_read = map(release, compress(self._read_locks, compress(held, self._reads)))
        release_written = map(release, compress(self._written_locks, compress(held, self._writes)))
        undo = chain(map(unpin, self._pins, pinned), release_read, release_written)
        try:
            held.extend(map(acquire, self._locks))
            if turns is not None:
                self._has_turn(turns, began)
            args = [*inputs, *self._take_values(), *tail]
            pinned.extend(map(pin, self._pins, repeat(None)))
            drain(release_read)
            withdrawn = self._withdraw() if self._containers.board is not None else ()
            results = self._dispatch(frame, args, apart)
            for state, published in withdrawn:
                published.show(state.value)
            if turns is not None:
                turns.runs = False
        finally:
            drain(undo)
        if turns is not None and (turns.thread or turns.waiting):
            turns.go()
        return results

    def _has_turn(self, turns: Turns, began: float) -> None:
        """The variables are locked, for which this thread has waited since then (0.0: it has not)."""
        turns.runs = True
        if began and self._contention is not None:
            self._contention.waited(perf_counter() - began)

    def _withdraw(self) -> list[tuple[VariableState, PublishedValue]]:
        """The variables that are about to change where other processes saw their values, which these do no more; and
        where that is.

        An exception that comes before they are shown anew leaves them withdrawn, which is always true.
        """
        withdrawn = [(state, state.published) for state in self._written if state.published is not None]
        for _, published in withdrawn:
            published.withdraw()
        return withdrawn

    def _take_values(self) -> list[Any]:
        """The values of the variables that are arguments; all are locked."""
        device, donated_from = self.executable.device, self._donated_from
        args = []
        for position, state in enumerate(self._arguments):
            value = state.value
            if value is None:
                raise self._without_value(state.handle)
            if device is not None and not self.executable.holds(value) and not state.pins:
                value = jax.device_put(value, device)  # a variable lives where it is used
                state.change(value)
            # who has pinned the value may still read the buffer that this island would give away
            args.append(value.copy() if state.pins and position >= donated_from else value)
        return args

    def _dispatch(self, frame: StepFrame, args: list[Any], apart: bool = False) -> Any:
        if self._has_loops and frame.waiting is not None:
            return self._dispatch_watched(frame, frame.waiting, args, apart)
        values = frame.values
        # what a thread of the program's has handed over to have a program made is none of this
        if self._rows is not None and self._is_safe_here() and (not apart or self._rows_differ):
            count = len(self._inputs)
            if self._rows.takes(args[:count], self._rows_differ):
                self._change_rows(self._rows, args[:count], args[count:])
                return []
        if self._simple_key:
            key: Hashable = tuple([values[i].shape for i in self.open_slots]) if self.open_slots else ()
            variant = self.executable.variant(key, ())
        else:
            variant = self._variant(values, args)
        results = self._call(variant, args, apart)
        if variant.checks:
            self._finish_checked(variant.checks, results)
        return results

    def _change_rows(self, rows: RowUpdates, inputs: list[Any], values: list[Any]) -> None:
        """Changes rows of the variables, which are locked, in their memory, or in copies of what is pinned.

        Where an exception could come from outside, it might leave some of them changed.
        """
        rows(inputs, values)
        for state, value in zip(self._arguments, values, strict=True):
            if state.value is not value:
                state.change(value)

    @staticmethod
    def _is_safe_here() -> bool:
        """Whether no exception comes to this thread from outside."""
        return takes_short_turns_here() or runs_here()

    def _dispatch_watched(self, frame: StepFrame, waiting: FrameWaiting, args: list[Any], apart: bool) -> Any:
        variant = self._variant(frame.values, args, watched=True)
        with watching(waiting) as number:
            results = self._call(variant, [*args, number], apart)
        try:
            self._finish_checked(variant.checks, results)
        except OpError as error:
            raise waiting.stopped or error from None
        return results

    def _call(self, variant: Variant, args: list[Any], apart: bool) -> Any:
        """Runs a variant; returns its results but for what it stored, the outputs first."""
        is_ready = variant.compiled and not variant.calls_back
        if not (is_ready or apart) and (self._locks or self._may_call_back):
            raise _NotInOneCallError  # an exception that comes while JAX traces may be lost to another one
        try:
            if not self._written:
                results = self.executable.call(variant, args)
            else:
                results = self._stored(variant, args, apart)
            if self._is_far:
                self._begin_fetching(results, variant)
            waited = results[0] if len(results) else self._written[0].value if self._written else None
            if waited is not None:
                # the program may still read fed arrays, which belong to the caller, and the next writer of a variable
                # would take the result's buffer away from whoever waits for it later
                waited.block_until_ready()
        except OpError:
            raise
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            # XLA's errors come as ValueErrors too, when results are taken from a call that has failed
            failed = failed_operation(str(error))
            if isinstance(error, ValueError) and not (failed or is_of_the_device(error)):
                raise
            named = (op for op in self.island.operations if op.name == failed)
            op = next(named, self.island.operations[-1])
            raise as_op_error(error, op, self.island.name, self._without_lost_values()) from error
        return results

    def _without_lost_values(self) -> list[str]:
        """Takes the values that a failed program was given, or was to give, from its variables; returns their names."""
        lost = [state for state in self._written if state.value is not None and not _is_there(state.value)]
        for state in lost:
            state.change(None)
        return [state.handle.name for state in lost]

    def _begin_fetching(self, results: Sequence[Any], variant: Variant) -> None:
        """Has what the host will read copied there once it is computed: small outputs, and the checks' flags."""
        read: Iterator[Any] = islice(results, len(self._outputs))
        if variant.checks:
            first = len(self._outputs) + len(self._stores_late)
            read = chain(read, islice(results, first, first + 1))
        for result in read:
            if isinstance(result, jax.Array) and result.nbytes <= _FETCHED_AHEAD:
                result.copy_to_host_async()

    def _stored(self, variant: Variant, args: list[Any], apart: bool) -> list[Any]:
        """Runs a variant and stores what it writes, in one call; returns its other results."""
        results = self.executable.results(variant, args)
        if results is None:
            if not apart:
                raise _NotInOneCallError
            results = iter(self.executable.call(variant, args))
        others: list[Any] = []
        stores = map(setattr, self._written, repeat("value"), results)
        if variant.checks:
            consumers = [store or others.append for store in self._stores_checked]
            # one consumer for each result, in the order of `Executable`: outputs, new values, flags, what is shown.
            # What is not stored yet lands in `others` before the flags, where `_finish_checked` looks for it
            outputs = repeat(others.append, len(self._outputs))
            drain(map(call, chain(outputs, consumers, repeat(others.append)), results))
        elif self._outputs:
            drain(chain(map(others.append, islice(results, len(self._outputs))), stores))
        else:
            drain(stores)
        return others

    def _variant(self, values: list[Any], args: list[Any], watched: bool = False) -> Variant:
        static = [np.asarray(values[i]) for i in self._static]
        # static values are compiled into the program, so that their contents belong to the key; dtypes are the graph's
        key = VariantKey(
            tuple([np.shape(values[i]) for i in self.open_slots]),
            tuple([(v.shape, v.tobytes()) for v in static]),
            tuple([args[i].shape for i in self._open_variables]),
        )
        return self.executable.variant(key, static, watched)

    def _finish_checked(self, checks: Sequence[Check], results: list[Any]) -> None:
        """Raises what failed, or stores what waited for it.

        A donated variable has taken its result at once: if a check failed, that is the old value. Kernels that ran
        directly have raised what failed, and give no flags.
        """
        first = len(self._outputs)
        at = first + len(self._stores_late)
        if len(results) > at and np.asarray(results[at]).any():
            raise failed_check(checks, results[at], results[at + 1 :])
        drain(map(call, self._stores_late, results[first:at]))

    def _consumer_of(self, position: int) -> Any:
        """The first operation that takes an input."""
        tensor = self.executable.dynamic[position]
        return next(op for op in self.island.operations if tensor in op.inputs)

    def _without_value(self, handle: ResourceHandle) -> Exception:
        """What a variable without a value means: an error, unless a conditional may not need it, as the host finds."""
        for op in self.island.operations:
            if handle in state_of(op, known_handle)[0]:
                if bodies_of(op):
                    return NeedsHostError(op, f"the {handle} has no value yet, which the branch taken may not need")
                return uninitialized(op, handle)
        return uninitialized(self.island.operations[-1], handle)


def _is_there(value: jax.Array) -> bool:
    """Whether an array has not been given away, and is not the result of a program that failed."""
    try:
        return not value.is_deleted() and value.block_until_ready() is not None
    except (jax.errors.JaxRuntimeError, ValueError):
        return False


def _of_fixed_shape(island: Island) -> set[ResourceHandle]:
    """The variables whose shapes the graph fixes, so that they need not be part of the compilation key."""
    known = (value for value in island.known.values() if isinstance(value, ResourceHandle))
    return {value for value in known if value.shape.is_fully_defined()}
