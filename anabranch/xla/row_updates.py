"""Islands that do nothing but change few elements of variables: their kernels change them where they lie, in NumPy.

How many rows a sparse update changes differs in every step where ids were made distinct, or were dealt out to the parts
of a table. XLA compiles a program for each number, and a call of one takes 108 µs of processor time for 16 rows of 32
numbers and Adagrad, in threads that wait for each other; NumPy takes 30 to 40, if it need not copy the table. And where
several servers share cores, a call of XLA's for a scalar takes 85 µs, since each finds other caches, and NumPy's 40.

So it writes into the memory of the variables' values, which an executable would be given (and overwrite) as well. The
same holds here as there: all variables are locked, and of one that is pinned a copy is changed, which becomes the value
(`runtime.island_call`). Nothing is changed before all kernels have run: where a check fails, no variable is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.host_memory import array_at
from anabranch.core.kernel_context import KernelContext, RowsUpdate
from anabranch.core.quiet_arithmetic import quietly
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.graph.constants import ShapeCheck, is_open
from anabranch.graph.kernel_binding import BoundKernel, out_of_memory, reported
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.xla.islands import Island

#: elements that an update takes, and that it may write as a whole, in all: with more XLA's threads are as quick
MAX_ELEMENTS: Final = 1 << 15
#: elements that an update takes whose number is the same in all steps
FEW_ELEMENTS: Final = 1 << 8
#: the same of so many operations at most that do no more with a row than one function of NumPy's does: they take half
#: of what a call of XLA's takes, where servers share cores
SCATTERED_ELEMENTS: Final = 1 << 12
_MOST_SCATTERS: Final = 2
#: elements of several gradients that are computed with together: NumPy begins its functions in the time of so many
JOINED_ELEMENTS: Final = 1 << 13
#: the same as `MAX_ELEMENTS` where sizes are known to differ: each would need a program, or a copy of the table
MAX_OF_MANY_SIZES: Final = 1 << 20


class RowUpdates:
    """See the module docstring. A call must hold the locks of all variables that are written.

    Args:
        island: `can_change_rows` is true of it.
        dynamic: the tensors whose values a call gets.
        handles: the variables whose values it gets.
    """

    def __init__(self, island: Island, dynamic: Sequence[StepTensor], handles: Sequence[ResourceHandle]) -> None:
        memories = {handle: _ValueMemory() for handle in handles}
        self._memories = list(memories.values())
        at = {tensor: position for position, tensor in enumerate(dynamic)}
        self._updates = [_VariableUpdate(op, at, memories) for op in island.operations if op.inputs]
        #: elements that a call may write in variables as wholes
        self._whole = 0

    def takes(self, inputs: Sequence[TensorValue], many_sizes: bool = False) -> bool:
        """Whether inputs of these sizes are better left to NumPy.

        Args:
            many_sizes: whether there have been too many sizes for a program for each.
        """
        most = MAX_OF_MANY_SIZES if many_sizes else MAX_ELEMENTS
        return self._whole <= most and sum([value.size for value in inputs]) <= most

    def __call__(self, inputs: Sequence[TensorValue], values: Sequence[jax.Array]) -> None:
        """Changes the values of the variables.

        Args:
            inputs: those of the dynamic tensors.
            values: those of the variables, in the host's memory, which nobody else reads meanwhile.

        Raises:
            OpError: of an operation, whose check failed, or whose inputs do not go together: nothing is changed.
        """
        for memory, value in zip(self._memories, values, strict=True):
            memory.lie_in(value)
        arrays = [value if isinstance(value, np.ndarray) else np.asarray(value) for value in inputs]
        quietly(self._run, arrays)

    def _run(self, arrays: Sequence[HostArray]) -> None:
        try:
            for update in self._updates:
                update.compute(arrays)
            self._compute_rows()
            self._whole = max(self._whole, sum(update.context.whole for update in self._updates))
            for update in self._updates:
                update.context.apply()
        finally:
            for update in self._updates:
                update.context.forget()

    def _compute_rows(self) -> None:
        """Computes the new rows that kernels have put off: few rows of several variables by one call of each function.

        Of a small update what takes time are the calls of NumPy's functions, not the numbers.
        """
        alike: dict[Hashable, list[tuple[StepNode, RowsUpdate]]] = {}
        for update in self._updates:
            put_off = update.context.rows
            if put_off is not None:
                alike.setdefault(put_off.kind, []).append((update.op, put_off))
        for several in alike.values():
            updates = [put_off for _, put_off in several]
            joins = len(updates) > 1 and sum(put_off.rows["grad"].size for put_off in updates) <= JOINED_ELEMENTS
            for group in [updates] if joins else [[one] for one in updates]:
                try:
                    _compute_joined(group)
                except MemoryError as error:
                    raise out_of_memory(several[0][0], error) from error


def _compute_joined(updates: Sequence[RowsUpdate]) -> None:
    first = updates[0]
    if len(updates) == 1:
        first.store(first.compute(first.rows))
        return
    news = first.compute({name: np.concatenate([one.rows[name] for one in updates]) for name in first.rows})
    begin = 0
    for update in updates:
        end = begin + len(next(iter(update.rows.values())))
        update.store({name: new[begin:end] for name, new in news.items()})
        begin = end


def can_change_rows(island: Island, platform: str, small: bool) -> bool:
    """Whether an island does nothing but change variables, of which each belongs to one of its operations.

    Only where the shape of an input differs from step to step: for one that stays the same a program is compiled once.

    Args:
        small: whether this is so too where all shapes are known, and the inputs have few elements.
    """
    if platform != "cpu" or island.outputs or island.random or island.static or island.constants or not island.writes:
        return False
    sizes = [t.shape.num_elements() for t in island.inputs]
    if None not in sizes:
        changing = [op.op_def.changes_rows for op in island.operations if op.inputs]
        is_plain = len(changing) <= _MOST_SCATTERS and all(changing)
        if not small or sum(size or 0 for size in sizes) > (SCATTERED_ELEMENTS if is_plain else FEW_ELEMENTS):
            return False
    touched: list[ResourceHandle] = []
    for op in island.operations:
        if not op.inputs and not op.outputs and not op.op_def.stateful:
            continue  # it only waits
        rule = op.op_def.compiled_rule
        if op.outputs or not op.op_def.takes_numpy or rule is None or rule.asks_for("rng"):
            return False
        handles = [t.known for t in op.inputs if t.is_known and isinstance(t.known, ResourceHandle)]
        touched += handles
        if not handles or any(not handle.shape.is_fully_defined() for handle in handles):
            return False
        if any(t.dtype.is_quantized for t in op.inputs):
            return False
    # what one operation reads must not be what another one is about to write
    return len(set(touched)) == len(touched) and set(touched) == set(island.writes) == set(island.reads)


class _ValueMemory:
    """The memory of a variable's value, as an array that can be written."""

    __slots__ = ("_value", "array")

    def __init__(self) -> None:
        self._value: Callable[[], jax.Array | None] = _no_value
        self.array: HostArray = np.empty(0)

    def lie_in(self, value: jax.Array) -> None:
        """From now on it is that of this value, of which it keeps nothing alive."""
        # to ask a value where it lies takes 15 µs where other processes have used the caches, and most are changed
        # again and again
        if self._value() is value:
            return
        # what is computed still would be written over
        value.block_until_ready()
        self.array = array_at(value.unsafe_buffer_pointer(), value.shape, value.dtype)
        self._value = weakref.ref(value)


def _no_value() -> None:
    return None


class _VariableUpdate:
    """An operation that changes variables, bound to what a call gets."""

    __slots__ = ("_check_shapes", "_kernel", "_known", "_sources", "context", "op")

    def __init__(
        self, op: StepNode, at: Mapping[StepTensor, int], memories: Mapping[ResourceHandle, _ValueMemory]
    ) -> None:
        self.op = op
        self.context = _RowContext(op, memories)
        rule = op.op_def.compiled_rule
        assert rule is not None
        self._kernel = BoundKernel(op, rule, np, self.context)
        self._check_shapes = ShapeCheck(op) if is_open(op) else None
        #: the values of inputs that are known; of the others, their positions and where they are among a call's
        self._known = [t.known if t.is_known else None for t in op.inputs]
        self._sources = [(position, at[t]) for position, t in enumerate(op.inputs) if not t.is_known]

    def compute(self, arrays: Sequence[HostArray]) -> None:
        """Runs the kernel, which changes nothing yet."""
        inputs = self._known.copy()
        for position, source in self._sources:
            inputs[position] = arrays[source]
        reported(self.op, inputs, self._run, inputs)

    def _run(self, inputs: list[Any]) -> None:
        if self._check_shapes is not None:
            self._check_shapes(inputs)
        kernel = self._kernel
        # what profiles are made of: see `runtime/kernel_profile.py`
        with jax.profiler.TraceAnnotation(self.op.name, hlo_op=self.op.name):
            kernel.on_arguments(*(inputs if kernel.is_flat else kernel.grouped(inputs)))


class _RowContext(KernelContext):
    """The context of a kernel whose variables nobody else touches; it keeps what is to be changed.

    Attributes:
        whole: how many elements are written in variables as wholes.
        rows: new rows that the kernel has put off.
    """

    __slots__ = ("_changes", "_memories", "_written", "rows", "whole")
    op: StepNode
    #: no program is made that would have to change nothing where a check fails
    guard: Final = None

    def __init__(self, op: StepNode, memories: Mapping[ResourceHandle, _ValueMemory]) -> None:
        super().__init__(op)
        handles = [t.known for t in op.inputs if t.is_known and isinstance(t.known, ResourceHandle)]
        # by their identity, as the kernel gets these very objects: they are hashed by all that they name
        self._memories = {id(handle): memories[handle] for handle in handles}
        self._written: dict[int, Any] = {}
        self._changes: list[Callable[[], None]] = []
        self.whole = 0
        self.rows: RowsUpdate | None = None

    def read(self, handle: ResourceHandle) -> Any:
        written = self._written.get(id(handle))
        return self._memories[id(handle)].array if written is None else written

    def write(self, handle: ResourceHandle, value: TensorValue, guarded: bool = False) -> None:
        array = np.asarray(value)
        if array.shape != self._memories[id(handle)].array.shape:
            handle.check_fits(array.shape)
        self._written[id(handle)] = array
        self.whole += array.size

    def puts_off(self, change: Callable[[], None]) -> bool:
        self._changes.append(change)
        return True

    def puts_off_rows(self, update: RowsUpdate) -> bool:
        self.rows = update
        return True

    def apply(self) -> None:
        """Changes the variables."""
        for number, value in self._written.items():
            np.copyto(self._memories[number].array, value)
        for change in self._changes:
            change()

    def forget(self) -> None:
        """Drops what was to be changed."""
        self._written.clear()
        self._changes.clear()
        self.whole, self.rows = 0, None
