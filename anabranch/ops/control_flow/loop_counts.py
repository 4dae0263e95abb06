"""How often a loop runs whose condition compares counters with limits, without running it (§3.4).

A *counter* is a loop variable to which each iteration adds the same constant integer. Where the loop goes on as long as
all of some counters are on this side of their limits, and nothing that changes has a part in a limit, the condition is
true up to some iteration and false from then on, so that bisection finds that iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.values import TensorValue
from anabranch.graph.loop_bodies import behind_identities, operations_behind, parameters_behind
from anabranch.graph.step_nodes import StepFunction
from anabranch.ops.control_flow.conditionals import truth_of
from anabranch.ops.control_flow.counters import counter_steps

#: runs the condition on values of its parameters
Condition = Callable[[list[Any]], list[Any]]

#: comparisons, and the sign of the steps by which their first input comes to a limit
_TOWARDS: Final = {"Less": 1, "LessEqual": 1, "Greater": -1, "GreaterEqual": -1}
#: what a counter of iterations can count
_MOST: Final = np.iinfo(np.int32).max


def known_count(condition: Condition, cond: StepFunction, body: StepFunction, start: Sequence[Any]) -> int | None:
    """How often a loop runs, where all that its condition looks at is known; else None.

    Args:
        start: the first values of the loop variables; those that are known are NumPy arrays.
    """
    steps = steps_towards_limits(cond, body)
    if steps is None:
        return None
    asked = parameters_behind(cond, cond.outputs)
    if any(steps[i] is None or not isinstance(start[i], np.ndarray) or start[i].ndim for i in asked):
        return None
    # others that count need not be known, nor be one number
    counters = [step or 0 if i in asked else 0 for i, step in enumerate(steps)]
    try:
        count, overflows = first_false(condition, cond, start, counters)
    except _NotKnownError:
        return None
    return None if overflows or count > _MOST else count


def steps_towards_limits(cond: StepFunction, body: StepFunction) -> list[int | None] | None:
    """What each loop variable grows by (`counter_steps`), if the loop ends once a counter is at its limit, or None."""
    steps = counter_steps(body)
    step_of = dict(zip(cond.inputs, steps, strict=True))
    changing = {p for p, step in step_of.items() if step != 0}
    pending = [behind_identities(cond.outputs[0])]
    while pending:
        op = pending.pop().op
        if op.type == "LogicalAnd":
            pending.extend(behind_identities(t) for t in op.inputs)
            continue
        if op.type not in _TOWARDS:
            return None
        step = step_of.get(behind_identities(op.inputs[0]))
        if not step or (step > 0) != (_TOWARDS[op.type] > 0):
            return None
        limit = {t for behind in operations_behind([op.inputs[1]]) for t in behind.outputs}
        if changing & limit:
            return None
    return steps


def first_false(
    condition: Condition, cond: StepFunction, start: Sequence[Any], steps: Sequence[int | None]
) -> tuple[int, bool]:
    """The first iteration before which a condition on counters is false, and whether a counter overflows there."""
    overflowed_at: set[int] = set()

    def goes_on(number: int) -> bool:
        values = []
        for value, step, parameter in zip(start, steps, cond.inputs, strict=True):
            if step:
                limits = np.iinfo(parameter.dtype.as_numpy_dtype)
                reached = int(value) + step * number
                if not limits.min <= reached <= limits.max:
                    overflowed_at.add(number)
                    return False
                value = np.asarray(reached, limits.dtype)
            values.append(value)
        return _truth(condition(values)[0])

    low, high = 0, 1
    if not goes_on(0):
        return 0, False
    while goes_on(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if goes_on(middle) else (low, middle)
    return high, high in overflowed_at


class _NotKnownError(Exception):
    """The condition depends on what only the device knows."""


def _truth(value: TensorValue) -> bool:
    if isinstance(value, jax.core.Tracer):
        raise _NotKnownError
    return bool(truth_of(np.asarray(value)))
