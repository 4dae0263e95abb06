"""Operations of an island that one kernel computes together, where kernels run one after the other (0095)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.kernel_chains import ChainKernel, chain_kernel, chains_ending_with
from anabranch.core.kernels import KernelCase
from anabranch.graph.constants import check_shapes, is_open
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.xla.direct_kernels import BetterCompiledError
from anabranch.xla.lowering import TraceState, case_of, is_as_said

Chain = tuple[StepNode, ...]


def in_chains(operations: Collection[StepNode], kept: Iterable[StepTensor]) -> list[Chain]:
    """The operations in an order in which those stand together that a kernel may compute together; others alone.

    What is in a chain only computes, so that it may as well do so when the last of the chain does.

    Args:
        kept: tensors that somebody else needs.
    """
    reads = Counter(tensor for op in operations for tensor in op.inputs)
    reads.update(kept)
    inside = set(operations)
    chains: dict[StepNode, Chain] = {}
    earlier: set[StepNode] = set()
    for op in operations:
        for op_types in chains_ending_with(op.type):
            members = _members(op, op_types, reads)
            if len(members) == len(op_types) and inside.issuperset(members) and earlier.isdisjoint(members):
                chains[op] = members
                earlier.update(members[:-1])
                break
    return [chains.get(op, (op,)) for op in operations if op not in earlier]


def _members(last: StepNode, op_types: Sequence[str], reads: Mapping[StepTensor, int]) -> Chain:
    """The operations of these types that lead to the last one, as far as there are."""
    members = [last]
    for op_type in reversed(op_types[:-1]):
        link = members[0].inputs[0]
        if link.op.type != op_type or link.value_index or reads[link] != 1:
            break
        members.insert(0, link.op)
    return tuple(members)


class ChainedKernel:
    """A kernel that computes a chain, bound as `DirectKernel` is.

    Attributes:
        inputs: what it reads, flat.
        outputs: what it gives.
    """

    __slots__ = ("_counts", "_is_checked", "_kernel", "_members", "_name", "inputs", "outputs")

    def __init__(self, members: Chain, kernel: ChainKernel) -> None:
        self._members, self._kernel = members, kernel
        self._name = members[kernel.main].name
        taken = [list(op.inputs[1:] if at else op.inputs) for at, op in enumerate(members)]
        self._counts = [len(tensors) for tensors in taken]
        self.inputs: list[StepTensor] = [tensor for tensors in taken for tensor in tensors]
        self.outputs = [t for op in members[:-1] for t in op.outputs[1:]] + list(members[-1].outputs)
        self._is_checked = False

    def __call__(self, inputs: Sequence[HostArray], state: TraceState) -> list[Any]:
        """The results, flat."""
        grouped, at = [], 0
        for count in self._counts:
            grouped.append(inputs[at : at + count])
            at += count
        # what profiles are made of: see `runtime/kernel_profile.py`
        with jax.profiler.TraceAnnotation(self._name, hlo_op=self._name):
            results = [value for part in self._kernel.function(grouped, self._members) for value in part]
        if not self._is_checked:
            if any(not is_as_said(value, out) for value, out in zip(results, self.outputs, strict=True)):
                raise BetterCompiledError  # as in `DirectKernel`
            self._is_checked = True
        return results


def bound_chain(members: Chain, values: Mapping[StepTensor, Any], state: TraceState) -> ChainedKernel | None:
    """The kernel that computes a chain on these values; None: each operation has its own.

    Raises:
        BetterCompiledError: too much is computed.
    """
    if state.target is None or len(members) == 1:
        return None
    cases: list[KernelCase] = []
    counted = []
    between: Any = None
    for op in members:
        inputs = [between if at == 0 and cases else values[t] for at, t in enumerate(op.inputs)]
        try:
            shape = check_shapes(op, inputs)[0] if is_open(op) else op.outputs[0].shape
        except ValueError:
            return None  # the operation itself says so
        case = case_of(op, inputs, state.target)
        if case is None or not shape.is_fully_defined():
            return None
        cases.append(case)
        counted.append((op, inputs, [shape]))
        # it has the shape and the type of what the next one takes, and is never read
        between = np.broadcast_to(np.zeros((), op.outputs[0].dtype.as_numpy_dtype), tuple(shape.sizes()))
    kernel = chain_kernel(cases)
    if kernel is None:
        return None
    assert state.direct is not None
    for op, inputs, shapes in counted:
        state.direct.count(op, inputs, shapes, list)
    return ChainedKernel(members, kernel)
