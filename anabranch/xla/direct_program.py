"""An island's kernels that run one after the other on NumPy's arrays, for inputs of one shape (docs/decisions/0046).

A variant of an island fixes all shapes, and the values of static inputs. What follows from these alone is found out in
the first call: whether shapes go together, which kernel serves an operation, when a value is read for the last time,
and what the operations give that compute with shapes. Later calls run what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

import jax
import numpy as np

from anabranch.core.host_memory import ALIGNED_FROM, is_sole, small_pages
from anabranch.core.quantised_arrays import as_integers, as_records
from anabranch.core.values import TensorValue
from anabranch.graph.kernel_binding import reported
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.xla.direct_chains import Chain, ChainedKernel, bound_chain, in_chains
from anabranch.xla.direct_kernels import DirectSizes, lasting, on_host
from anabranch.xla.islands import Island
from anabranch.xla.kernel_choice import KernelTarget
from anabranch.xla.lowering import DirectKernel, TraceState

#: bytes of a value that is kept for later calls
_MOST_SETTLED: Final = 1 << 12

Values = dict[StepTensor, Any]
#: (arguments on the host, values that all calls have) -> the values and the state with which the operations begin
Begin = Callable[[list[Any], Mapping[StepTensor, Any]], tuple[Values, TraceState]]


class _ReadsAndGives(Protocol):
    """Something that reads tensors, and gives others."""

    @property
    def inputs(self) -> Sequence[StepTensor]: ...
    @property
    def outputs(self) -> Sequence[StepTensor]: ...


_R = TypeVar("_R", bound=_ReadsAndGives)


@dataclass(slots=True, eq=False)
class _BoundOperation:
    """One operation in each call of a program, or a chain of them that one kernel computes.

    Attributes:
        op: the first of them.
        inputs, outputs: what the kernel reads, and gives.
        ending: the tensors that nothing needs once it has run.
        spare: position -> a large input that it is the last to read, and may write over if nobody else knows it.
    """

    op: StepNode
    inputs: Sequence[StepTensor]
    outputs: Sequence[StepTensor]
    kernel: DirectKernel | ChainedKernel
    ending: Sequence[StepTensor]
    spare: Mapping[int, StepTensor]

    def run(self, values: Values, state: TraceState) -> None:
        """Runs the kernel on `values`, and puts its results there."""
        if self.spare:
            state.spare = {at: values[t] for at, t in self.spare.items() if is_sole(values, t)}
        self._keep(values, state)
        if self.spare:
            state.spare = {}
        for tensor in self.ending:
            del values[tensor]

    def _keep(self, values: Values, state: TraceState) -> None:
        inputs = [values[t] for t in self.inputs]
        shown = inputs[: len(self.op.inputs)]
        for tensor, value in zip(self.outputs, reported(self.op, shown, self.kernel, inputs, state), strict=True):
            values.setdefault(tensor, value)


class DirectProgram:
    """What an island computes for inputs of one shape, by its operations' kernels. Several threads may call it.

    Args:
        begin: gives what the operations begin with, in a dictionary of the call's own.
        known: the values that all calls have.
        most: elements that the kernels may compute in all, as `DirectSizes` counts.
        device: where the results go.
    """

    def __init__(
        self,
        island: Island,
        begin: Begin,
        known: Mapping[StepTensor, Any],
        most: int,
        target: KernelTarget | None,
        device: jax.Device | None,
    ) -> None:
        self._island, self._begin, self._most = island, begin, most
        self._target, self._device = target, device
        self._known = {t: as_records(value, t.dtype) if t.dtype.is_quantized else value for t, value in known.items()}
        self._quantised = any(t.dtype.is_quantized for t in (*island.inputs, *island.constants))
        #: what the first call left to be run, and how much it computed; None before it has ended
        self._left: list[_BoundOperation] | None = None
        self._elements = 0
        #: what later calls run, once there is one
        self._calls: list[_BoundOperation] | None = None

    def __call__(self, *args: TensorValue) -> tuple[list[Any], int]:
        """The island's results, as device arrays that share memory with nothing; and how many elements were computed.

        The elements are those of the first call; later ones compute no more.

        Raises:
            OpError: as the operations; a check that fails is raised at once.
            BetterCompiledError: too much is computed.
        """
        left, settled = self._left, None
        values, state = self._begin([on_host(value) for value in args], self._known)
        state.direct = sizes = DirectSizes(self._most)
        state.target = self._target
        if self._quantised:
            for tensor, value in values.items():
                if tensor.dtype.is_quantized:
                    values[tensor] = as_records(value, tensor.dtype)
        with small_pages(), np.errstate(all="ignore"):
            if left is None:
                settled, left = self._first_calls(values, state)
            else:
                if self._calls is None:
                    self._calls = self._later_calls(left)
                for one in self._calls:
                    one.run(values, state)
            results = [as_integers(lasting(values, t, t.dtype.as_numpy_dtype)) for t in self._island.outputs]
            # what is written is no result of an operation, and is copied once however few of its rows change
            written = [lasting(state.variables, h) for h in self._island.writes]
        if settled is not None:
            self._elements = self._most - sizes.left + sum(map(np.size, written))
            # before what needs it
            self._known = self._known | settled
            self._left = left
        on_device: list[Any] = jax.device_put(results + written, self._device)
        return on_device, self._elements

    def _first_calls(self, values: Values, state: TraceState) -> tuple[Values, list[_BoundOperation]]:
        """Runs everything once; returns the values that follow from shapes alone, and what is left to be run."""
        chains = in_chains(self._island.operations, self._island.outputs)
        ending = _last_read([op for chain in chains for op in chain], self._island.outputs)
        settled: Values = {}
        left: list[_BoundOperation] = []
        for chain in chains:
            together = bound_chain(chain, values, state)
            if together is not None:
                call = _together(chain, together, ending)
                call.run(values, state)
                left.append(call)
                continue
            for op in chain:
                kernel, spare = _bound(op, values, state), _spare(op, ending[op], values)
                call = _BoundOperation(op, op.inputs, op.outputs, kernel, ending[op], spare)
                call.run(values, state)
                if not self._is_settled(op, settled):
                    left.append(call)
                    continue
                results = {t: values[t] for t in op.outputs if t in values}
                if all(map(_is_small, results.values())):
                    settled |= results
                else:
                    left.append(call)
                del results  # nobody else may know a value that is to be written over
        return settled, left

    def _later_calls(self, left: list[_BoundOperation]) -> list[_BoundOperation]:
        """What is left after the first call, when it is to be run: much is called once."""
        ending = _last_read(left, [*self._island.outputs, *self._known])
        return [replace(call, ending=ending[call]) for call in left]

    def _is_settled(self, op: StepNode, settled: Collection[StepTensor]) -> bool:
        """Whether an operation gives the same in all calls: it computes with shapes, or with what is settled."""
        definition = op.op_def
        if definition.stateful or definition.random or definition.calls_functions:
            return False
        if definition.reads or definition.writes:
            return False
        return definition.shape_valued or all(t in self._known or t in settled for t in op.inputs)


def _bound(op: StepNode, values: Values, state: TraceState) -> DirectKernel:
    inputs = [values[t] for t in op.inputs]
    return reported(op, inputs, DirectKernel, op, inputs, state)


def _together(chain: Chain, kernel: ChainedKernel, ending: Mapping[StepNode, Iterable[StepTensor]]) -> _BoundOperation:
    known = {*kernel.inputs, *kernel.outputs}
    ended = [t for op in chain for t in ending[op] if t in known]
    return _BoundOperation(chain[0], kernel.inputs, kernel.outputs, kernel, ended, {})


def _last_read(operations: Collection[_R], kept: Iterable[StepTensor]) -> dict[_R, list[StepTensor]]:
    """For each operation the tensors that nothing needs once it has run."""
    needed, released = set(kept), {}
    for op in reversed(list(operations)):
        ending = [t for t in dict.fromkeys((*op.inputs, *op.outputs)) if t not in needed]
        needed.update(ending)
        released[op] = ending
    return released


def _spare(op: StepNode, ending: Iterable[StepTensor], values: Values) -> dict[int, StepTensor]:
    """The large inputs that an operation is the last to read, by their positions."""
    once = [t for t in ending if t in values and op.inputs.count(t) == 1]
    return {op.inputs.index(t): t for t in once if getattr(values[t], "nbytes", 0) >= ALIGNED_FROM}


def _is_small(value: TensorValue) -> bool:
    return isinstance(value, np.ndarray) and value.nbytes <= _MOST_SETTLED
