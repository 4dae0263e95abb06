"""Functional conditionals and calls (§3.4; design D4).

`If` takes two function graphs with the same parameters. In an island it becomes one `lax.cond`; where its branches hold
host work, or give results of different shapes, the host picks the branch and runs it as a step of its own.

**Gradient.** The gradient of an `If` is an `If` whose branches are the gradients of the branches. What these need of
the forward computation (*intermediates*) becomes additional outputs of the forward `If`; the other branch has a
`FakeParam` in that place, whose value nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops.list_values import TensorList

FakeParam = define_op("FakeParam", "-> output: dtype", "dtype: any, shape: shape")
FakeParam.not_differentiable()


@dataclass(frozen=True, slots=True)
class NoValue:
    """The value of an output that the branch taken does not compute."""

    dtype: Any


@FakeParam.shape
def _(*, shape: TensorShape) -> TensorShape:
    return shape


@FakeParam.kernel
def _(*, dtype: Any) -> NoValue:
    return NoValue(dtype.as_numpy_dtype)


@FakeParam.host_kernel
def _(*, dtype: Any) -> Any:
    return np.zeros((), dtype.as_numpy_dtype)


_IF_ATTRS = (
    "Tcond: any, Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func, "
    "output_shapes: list(shape) = []"
)
If = define_op("If", "cond: Tcond, input: Tin -> output: Tout", _IF_ATTRS, stateful=True)
StatelessIf = define_op("StatelessIf", "cond: Tcond, input: Tin -> output: Tout", _IF_ATTRS)


def _truth(cond: Any) -> Any:
    """Numbers are true when they are not zero, other tensors when they are not empty."""
    if np.ndim(cond) != 0:
        return np.size(cond) > 0
    return cond if cond.dtype == np.bool_ else cond != 0


def _as_result(value: Any) -> Any:
    if isinstance(value, NoValue):
        return jnp.zeros((), np.float32 if value.dtype is np.object_ else value.dtype)
    return value if isinstance(value, TensorList) else jnp.asarray(value)


def _of_type(result: Any, wanted: Any) -> Any:
    """A branch's result as both branches give it: what this one does not compute becomes zeros."""
    if isinstance(wanted, TensorList):
        if isinstance(result, TensorList) and (wanted.elements is None or result.elements is not None):
            return result
        return jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), wanted)
    return result if result.shape == wanted.shape else jnp.zeros(wanted.shape, wanted.dtype)


class _Branches:
    """The two branches of an `If` as functions for `lax.cond`.

    Arguments: the varying inputs, then the values of the variables that either branch touches. Results: outputs, new
    values of the variables that either branch writes, and one flag per check of either branch.
    """

    def __init__(self, ctx: Any, bodies: tuple[Any, Any], inputs: list[Any]) -> None:
        self.ctx, self.bodies, self.inputs = ctx, bodies, inputs
        self.varying = [i for i, v in enumerate(inputs) if not isinstance(v, np.ndarray | ResourceHandle)]
        touched: dict[ResourceHandle, None] = {}
        written: dict[ResourceHandle, None] = {}
        for body in bodies:
            reads, writes = ctx.body_state(body, inputs)
            touched.update(dict.fromkeys([*reads, *writes]))
            written.update(dict.fromkeys(writes))
        self.touched, self.written = list(touched), list(written)
        self.operands = [*(inputs[i] for i in self.varying), *(ctx.read(h) for h in self.touched)]
        self.checks: list[list[Any]] = [[], []]
        self.shapes: list[Any] = []

    def trace(self) -> None:
        """Finds the result types of both branches, and makes the two lists of results one."""
        found = [jax.eval_shape(lambda *ops, which=which: self._run(which, ops)[0], *self.operands) for which in (0, 1)]
        self.shapes = [self._common(i, a, b) for i, (a, b) in enumerate(zip(*found, strict=True))]

    def _common(self, index: int, one: Any, other: Any) -> Any:
        missing = self._missing(index)
        if missing == {0, 1} or missing == {1}:
            return one
        if missing == {0}:
            return other
        if isinstance(one, TensorList) and isinstance(other, TensorList):
            one, other = one if one.elements is not None else other, other if other.elements is not None else one
        if one.shape != other.shape:
            raise self.ctx.needs_host(f"the branches give results of shapes {one.shape} and {other.shape}")
        return one

    def _missing(self, index: int) -> set[int]:
        return {
            which
            for which, body in enumerate(self.bodies)
            if index < len(body.outputs) and body.outputs[index].op.type == "FakeParam"
        }

    def _run(self, which: int, operands: Any) -> tuple[list[Any], list[Any]]:
        """Traces one branch; returns its results and the truth of its checks."""
        inputs = list(self.inputs)
        for i, value in zip(self.varying, operands, strict=False):
            inputs[i] = value
        variables = dict(zip(self.touched, operands[len(self.varying) :], strict=True))
        outer = self.ctx.state
        state = replace(outer, variables={**outer.variables, **variables}, written=set(), checks=[])
        outputs = self.ctx.call(self.bodies[which], inputs, state)
        self.checks[which] = state.checks
        results = [_as_result(v) for v in outputs]
        return [*results, *(jnp.asarray(state.variables[h]) for h in self.written)], [c.ok for c in state.checks]

    def function(self, which: int) -> Any:
        def branch(*operands: Any) -> Any:
            results, mine = self._run(which, operands)
            filled = [_of_type(r, s) for r, s in zip(results, self.shapes, strict=True)]
            others = [jnp.asarray(True)] * len(self.checks[1 - which])
            return filled, mine + others if which == 0 else others + mine

        return branch

    def report(self, flags: list[Any]) -> None:
        """Hands the branches' checks on; values that live inside a branch cannot be shown outside it."""
        for check, ok in zip([*self.checks[0], *self.checks[1]], flags, strict=True):
            message = check.message.split("{0}")[0].rstrip(" :,=") if "{0}" in check.message else check.message
            self.ctx.check(ok, message.replace("{", "{{").replace("}", "}}"), error=check.error)


def _if_kernel(cond: Any, input: list[Any], *, ctx: Any, then_branch: Any, else_branch: Any) -> list[Any]:
    graph = ctx.op.graph
    bodies = (graph.get_function(then_branch.name), graph.get_function(else_branch.name))
    taken = _truth(cond)
    if isinstance(taken, bool | np.bool_ | np.ndarray):
        outputs = ctx.call(bodies[0] if taken else bodies[1], input)
        return [np.zeros((), v.dtype) if isinstance(v, NoValue) else v for v in outputs]
    branches = _Branches(ctx, bodies, input)
    branches.trace()
    results: list[Any]
    results, flags = lax.cond(taken, branches.function(0), branches.function(1), *branches.operands)
    count = len(bodies[0].outputs)
    for handle, value in zip(branches.written, results[count:], strict=True):
        ctx.write(handle, value)
    branches.report(flags)
    return list(results[:count])


def _if_on_host(cond: Any, input: list[Any], *, ctx: Any, then_branch: Any, else_branch: Any) -> list[Any]:
    graph = ctx.op.graph
    function = then_branch if _truth(np.asarray(cond)) else else_branch
    return ctx.call(graph.get_function(function.name), input)  # type: ignore[no-any-return]


def _if_shape(cond: TensorShape, input: list[TensorShape], *, ctx: Any, output_shapes: Any) -> list[TensorShape]:
    return list(output_shapes) or [TensorShape(None)] * ctx.output_count


for _op in (If, StatelessIf):
    _op.kernel(_if_kernel)
    _op.host_kernel(_if_on_host)
    _op.shape(_if_shape)
