"""Updates and casts of variables by a function that is compiled already, in programs of many variables.

XLA compiles each variable's update by itself (`kernels.pool_updates` tells what that takes). It takes no less for a
variable of few elements, so what decides is how many of them an island changes. Only what XLA computes apart from its
neighbours in any case is computed so: updates by results of products, sums and normalizations, and casts of variables
that products alone read. What it would fuse with an update or a cast stays with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from anabranch.core import dtypes
from anabranch.core.kernel_context import VariableUpdate
from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.kernels import pool_handler, pool_updates
from anabranch.xla.islands import Island
from anabranch.xla.kernel_choice import KernelChoice, chooser
from anabranch.xla.read_order import source_of
from anabranch.xla.state import known_handle, state_of

#: operations of an island that write variables, and elements of these, at least: in smaller programs, which take XLA
#: fewer threads, a call takes longer than what XLA makes of an update
LEAST_UPDATES: Final = 16
LEAST_ELEMENTS: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class LibraryUpdates:
    """What of an island is computed so.

    Attributes:
        overwritten: the variables whose memory a program is given.
        multiplied: tensors that only products read.
    """

    overwritten: frozenset[ResourceHandle]
    multiplied: frozenset[StepTensor]

    def narrows(self, tensor: StepTensor, source: StepTensor) -> bool:
        """Whether a cast of one tensor to another is computed so."""
        types = source.dtype, tensor.dtype
        whole = source_of(source).op_def.only_reads and len(source_of(source).inputs) == 1
        return types == (dtypes.float32, dtypes.bfloat16) and tensor in self.multiplied and whole

    def updates(
        self,
        op: StepNode,
        update: VariableUpdate,
        values: Mapping[StepTensor, Any],
        choices: Mapping[str, KernelChoice],
        conditions: Sequence[Any],
        awaited: Sequence[Any],
    ) -> list[Any] | None:
        """The new values of what an operation updates; None where XLA computes them.

        Args:
            values: of the tensors that were traced.
            choices: of kernels, by the names of their operations.
            conditions: where one is false, nothing changes; None stands for one that is always true.
            awaited: what has to be computed before.
        """
        rule = pool_updates.RULES.get(update.rule)
        gradient = pool_updates.gradient_of(op.inputs[update.position])
        if rule is None or op.attrs.get("use_nesterov") or not _is_apart(gradient):
            return None
        cast: Any = update.values[update.grad]
        states = [jnp.asarray(state) for state in update.states.values()]
        scalars = [jnp.asarray(update.values[name]) for name in rule.scalars]
        if any(array.dtype != np.float32 for array in (cast, *states, *scalars)):
            return None
        # XLA does not round its own products of bfloat16 to it, if they are cast to float32 afterwards
        choice = choices.get(source_of(gradient).name)
        is_rounded = choice is not None and choice.chosen.kernel is not None
        grad = values.get(gradient, cast) if is_rounded else cast
        if np.shape(grad) != np.shape(cast):
            grad = cast
        in_place = [handle in self.overwritten for handle in update.handles]
        given = [jnp.asarray(condition) for condition in conditions if condition is not None]
        return pool_updates.updated(op.name, rule, states, grad, scalars, given, awaited, in_place)


def library_updates(island: Island, platform: str) -> LibraryUpdates | None:
    """What of an island is computed so; None: nothing. The function is compiled and loaded to find out."""
    if platform != "cpu" or not pool_updates.is_usable():
        return None
    writing = sum(bool(state_of(op, known_handle)[1]) for op in island.operations)
    elements = sum(handle.shape.num_elements() or 0 for handle in island.writes)
    if writing < LEAST_UPDATES or elements < LEAST_ELEMENTS:
        return None
    # the first kernel that is measured would have it compiled otherwise, within that time
    with chooser.charged():
        missing = pool_handler.missing()
    if missing:
        return None
    overwritten = frozenset(island.writes) & frozenset(island.reads) - frozenset(island.kept)
    return LibraryUpdates(overwritten, frozenset(_multiplied(island.operations, island.outputs)))


def _multiplied(operations: Sequence[StepNode], outputs: Collection[StepTensor]) -> set[StepTensor]:
    """The tensors that products read, and nothing else."""
    read: dict[StepTensor, bool] = dict.fromkeys(outputs, False)
    for op in operations:
        is_product = op.op_def.flops_rule is not None
        for tensor in op.inputs:
            read[tensor] = read.get(tensor, True) and is_product
    return {tensor for tensor, is_alone in read.items() if is_alone}


def _is_apart(tensor: StepTensor) -> bool:
    """Whether XLA, or a library, computes a tensor apart from what reads it."""
    op = source_of(tensor)
    taken, given = (t.shape.num_elements() if t else None for t in ([*op.inputs, None][0], op.outputs[0]))
    sums = taken is not None and given is not None and taken > given
    return op.op_def.flops_rule is not None or sums or len(op.outputs) > 1
