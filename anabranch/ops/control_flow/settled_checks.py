"""Checks in loops whose outcome follows from counters alone: made before the loop, for all iterations at once.

The index of most reads and writes of lists in a loop is a counter. Where it is known how often the loop runs, so are
all values of its counters. Made in each iteration, such a check is a program of a GPU of its own, which takes as long
as what it guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from anabranch.core.values import TensorValue

#: of how many iterations the values of counters are written down
MOST_ITERATIONS: Final = 1 << 16
#: calls of functions that `jax.jit` made
_JITTED: Final = frozenset({"jit", "pjit"})


def settle(
    program: ClosedJaxpr, counted: Mapping[int, Any], checks: Sequence[tuple[int, Sequence[int]]]
) -> dict[int, tuple[Any, tuple[Any, ...]]]:
    """The outcomes of those checks of an iteration that depend on counters and on what is the same in all iterations.

    Args:
        program: an iteration.
        counted: the values, in each iteration, of its arguments that are counters: position -> [iterations].
        checks: for each check the position of its outcome among the results, and those of what its message shows.

    Returns:
        The number of a check -> whether it holds in all iterations, and what is shown where it fails first.
    """
    inner = program.jaxpr
    changing = {argument for i, argument in enumerate(inner.invars) if i not in counted}
    for equation in inner.eqns:
        if not _can_be_repeated(equation) or any(v in changing for v in equation.invars if not isinstance(v, Literal)):
            changing.update(equation.outvars)

    def follows(position: int) -> bool:
        result = inner.outvars[position]
        return isinstance(result, Literal) or result not in changing

    numbers = [n for n, (ok, shown) in enumerate(checks) if follows(ok) and all(map(follows, shown))]
    if not numbers:
        return {}
    wanted = [position for n in numbers for position in (checks[n][0], *checks[n][1])]
    every = jax.vmap(_part(program, list(counted), wanted))(*counted.values())
    settled: dict[int, tuple[Any, tuple[Any, ...]]] = {}
    left = iter(every)
    for n in numbers:
        ok, *shown = (next(left) for _ in range(1 + len(checks[n][1])))
        first = jnp.argmin(jnp.asarray(ok))
        settled[n] = jnp.all(ok), tuple(jnp.asarray(values)[first] for values in shown)
    return settled


def _part(program: ClosedJaxpr, arguments: Sequence[int], results: Sequence[int]) -> Callable[..., list[Any]]:
    """The function of some of a program's arguments that gives some of its results."""
    inner = program.jaxpr
    outputs = [inner.outvars[i] for i in results]
    needed = {v for v in outputs if not isinstance(v, Literal)}
    equations = []
    for equation in reversed(inner.eqns):
        if not needed.isdisjoint(equation.outvars):
            equations.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, Literal))

    def run(*values: TensorValue) -> list[Any]:
        value_of = dict(zip(inner.constvars, program.consts, strict=True))
        value_of.update(zip((inner.invars[i] for i in arguments), values, strict=True))

        def read(variable: Var | Literal) -> Any:
            return variable.val if isinstance(variable, Literal) else value_of[variable]

        for equation in reversed(equations):
            value_of.update(zip(equation.outvars, _results(equation, map(read, equation.invars)), strict=True))
        return [read(variable) for variable in outputs]

    return run


def _can_be_repeated(equation: JaxprEqn) -> bool:
    """Whether `_results` can compute an equation: it changes nothing, and calls no function but jitted ones."""
    return not equation.effects and (equation.primitive.name in _JITTED or "call_jaxpr" not in equation.params)


def _results(equation: JaxprEqn, arguments: Iterable[Any]) -> Sequence[Any]:
    if equation.primitive.name in _JITTED:
        several: Sequence[Any] = jaxpr_as_fun(equation.params["jaxpr"])(*arguments)
        return several
    given = equation.primitive.bind(*arguments, **equation.params)  # type: ignore[no-untyped-call]
    return given if equation.primitive.multiple_results else [given]
