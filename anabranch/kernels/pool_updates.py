"""Updates of variables by optimizers on XLA's own threads, where the variables lie, and their casts (`pool_updates.c`).

XLA compiles a loop of its own for each variable that an optimizer changes, and for each that is cast to bfloat16. One
takes 15 to 65 ms of processor time, and for a network of a hundred variables that was up to half of what its training
step took to compile, while other steps waited for the cores. A call of the function here takes XLA 0.3 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.processor import has_wide_vectors
from anabranch.graph.step_nodes import StepTensor
from anabranch.kernels import pool_handler

#: what XLA's threads compute as they compute its own loops, which is divided as these are
UNDIVIDED_TARGETS: Final = frozenset({pool_handler.UPDATES_TARGET, pool_handler.CASTS_TARGET})
_BFLOAT16: Final = dtypes.bfloat16.as_numpy_dtype


class UpdateRule(NamedTuple):
    """What the handler knows of an optimizer's operation.

    Attributes:
        number: what the handler calls it.
        scalars: the names of its other inputs but the gradient, in the handler's order.
    """

    number: int
    scalars: tuple[str, ...]


#: by the operation's name, without what all of them begin with; none of them with Nesterov's momentum
RULES: Final = {
    "GradientDescent": UpdateRule(0, ("alpha",)),
    "Momentum": UpdateRule(1, ("lr", "momentum")),
    "Adam": UpdateRule(2, ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")),
}


def is_usable() -> bool:
    """Whether there may be a handler, without compiling or loading anything."""
    return pool_handler.is_usable() and has_wide_vectors()


def gradient_of(tensor: StepTensor) -> StepTensor:
    """The tensor of which a gradient has the numbers: what was cast from bfloat16 and, as mixed precision does where
    that needs no scale, multiplied by 1.
    """
    if tensor.op.type == "Mul" and len(tensor.op.inputs) == 2:
        grad, scale = tensor.op.inputs
        if scale.is_known and np.shape(scale.known) == () and scale.known == 1 and grad.dtype == tensor.dtype:
            tensor = grad
    is_wider = tensor.op.type == "Cast" and tensor.op.inputs[0].dtype == dtypes.bfloat16
    return tensor.op.inputs[0] if is_wider else tensor


def updated(
    node: str,
    rule: UpdateRule,
    states: Sequence[Array],
    grad: Array,
    scalars: Sequence[Array],
    conditions: Sequence[Array],
    before: Sequence[Array],
    in_place: Sequence[bool],
) -> list[Any]:
    """The new values of a variable and of its slots, in a program that is being traced; `pool_handler` is there.

    Args:
        node: the operation, for errors.
        states: what the rule changes, of float32.
        grad: of float32 or bfloat16.
        scalars: of float32.
        conditions: where one of these scalars is false, nothing changes.
        before: arrays that are to be there before anything is overwritten.
        in_place: which of the states may be overwritten.
    """
    results = [jax.ShapeDtypeStruct(state.shape, np.float32) for state in states]  # type: ignore[no-untyped-call]
    aliases = {at: at for at, may in enumerate(in_place) if may}
    call = jax.ffi.ffi_call(pool_handler.UPDATES_TARGET, results, input_output_aliases=aliases)
    numbers = np.array([rule.number, len(conditions)], np.int64)
    return list(call(*states, grad, *scalars, *conditions, *before, node=node, numbers=numbers))


def narrowed(node: str, values: Array) -> Any:
    """Numbers of float32 as bfloat16, in a program that is being traced; `pool_handler` is there."""
    result = jax.ShapeDtypeStruct(values.shape, _BFLOAT16)  # type: ignore[no-untyped-call]
    return jax.ffi.ffi_call(pool_handler.CASTS_TARGET, result)(values, node=node)
