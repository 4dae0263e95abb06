"""Loop variables that count: integers to which each iteration adds the same constant (§3.4)."""

from __future__ import annotations

from anabranch.graph.loop_bodies import BodyLike, behind_identities
from anabranch.graph.step_nodes import AnyTensor


def counter_steps(body: BodyLike) -> list[int | None]:
    """For each parameter of a loop's body, the constant that an iteration adds to it, where it is an integer.

    0: the parameter is fixed. None: it is no such counter.
    """
    return [_counter_step(p, behind_identities(out)) for p, out in zip(body.inputs, body.outputs, strict=False)]


def _counter_step(parameter: AnyTensor, result: AnyTensor) -> int | None:
    if result is parameter:
        return 0
    if result.op.type not in {"Add", "AddV2", "Sub"} or not parameter.dtype.is_integer or result.op.control_inputs:
        return None
    one, other = (behind_identities(t) for t in result.op.inputs)
    if other is parameter and result.op.type != "Sub":
        one, other = other, one
    step = constant_integer(other)
    if one is not parameter or step is None:
        return None
    return -step if result.op.type == "Sub" else step


def constant_integer(tensor: AnyTensor) -> int | None:
    """The value of a constant that is one integer."""
    op = behind_identities(tensor).op
    if op.type != "Const" or not tensor.dtype.is_integer or op.attrs["value"].ndim:
        return None
    return int(op.attrs["value"])
