"""Functional conditionals and calls (§3.4; design D4).

`If` takes two function graphs with the same parameters, `Case` any number. In an island it becomes one `lax.cond` or
`lax.switch`; where its branches hold host work, or give results of different shapes, it is lowered to Switch and Merge
(`passes.lower_control_flow`).

**Gradient.** The gradient of an `If` is an `If` whose branches are the gradients of the branches; so with `Case`. What
these need of the forward computation (*intermediates*) a `_BranchValues` beside the forward operation gives. In a step
both are one operation with more outputs; the other branches have a `FakeParam` in that place, whose value nobody reads
(docs/decisions/0034).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.core.shown_values import without_values
from anabranch.core.values import TensorValue
from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.step_nodes import StepFunction
from anabranch.ops import shape_rules
from anabranch.ops.lists.values import TensorList, common_declaration

FakeParam = define_op("FakeParam", "-> output: dtype", "dtype: any, shape: shape", role=Role.CONSTANT)
FakeParam.not_differentiable()


@FakeParam.shape
def _(*, shape: TensorShape) -> TensorShape:
    return shape


@FakeParam.kernel
def _(*, dtype: DType, shape: TensorShape) -> Any:
    if dtype is dtypes.variant:
        return TensorList(None, 0, np.float32)
    return jnp.zeros(_stand_in_shape(shape), dtype.as_numpy_dtype)


@FakeParam.host_kernel
def _(*, dtype: DType, shape: TensorShape) -> Any:
    if dtype is dtypes.variant:
        return TensorList([], 0, np.float32)
    return np.zeros(_stand_in_shape(shape), dtype.as_numpy_dtype)


def _stand_in_shape(shape: TensorShape) -> list[int]:
    """A shape that a value which nobody reads can have: the right one, where it is known."""
    return [d or 0 for d in shape.as_list()] if shape.is_fully_defined() else []


_IF_ATTRS = (
    "Tcond: any, Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func, "
    "output_shapes: list(shape) = []"
)
If = define_op("If", "cond: Tcond, input: Tin -> output: Tout", _IF_ATTRS, stateful=True, role=Role.CONDITIONAL)
StatelessIf = define_op("StatelessIf", "cond: Tcond, input: Tin -> output: Tout", _IF_ATTRS, role=Role.CONDITIONAL)


_CASE_ATTRS = "Tin: list(type) >= 0, Tout: list(type) >= 0, branches: list(func) >= 1, output_shapes: list(shape) = []"
_SCALAR_INDEX = {"branch_index": 0}
Case = define_op(
    "Case",
    "branch_index: int32, input: Tin -> output: Tout",
    _CASE_ATTRS,
    stateful=True,
    ranks=_SCALAR_INDEX,
    role=Role.CASE,
)
StatelessCase = define_op(
    "StatelessCase",
    "branch_index: int32, input: Tin -> output: Tout",
    _CASE_ATTRS,
    ranks=_SCALAR_INDEX,
    role=Role.CASE,
)

#: `tensors`: which tensors of the branches, as `graph.inner_values` names them, `which`: of the branch of which number.
#: It waits for its conditional, and takes the same.
BranchValues = define_op(
    "_BranchValues",
    "selector: S, input: Tin -> output: Tout",
    "S: any, Tin: list(type) >= 0, Tout: list(type) >= 0, branches: list(func) >= 1, output_shapes: list(shape), "
    "tensors: list(string), which: list(int)",
    stateful=True,
    role=Role.BESIDE,
)


def by_its_owner(*_: TensorValue, ctx: OperationContext) -> NoReturn:
    """The kernel of operations beside a loop or a conditional, which never runs: a step joins them with their owner."""
    raise InternalError(None, ctx.op, f"{ctx.op.type} is part of the operation that it waits for")


BranchValues.host_kernel(by_its_owner)


def truth_of(cond: TensorValue) -> Any:
    """Scalars are true when they are not zero and no empty string, other tensors when they have elements."""
    if np.ndim(cond) != 0:
        return np.size(cond) > 0
    if isinstance(cond, bytes) or cond.dtype.kind in "SO":
        return bool(cond if isinstance(cond, bytes) else cond.item())
    return cond if cond.dtype == np.bool_ else cond != 0


ToBool = define_op("ToBool", "input: T -> output: bool", "T: any")
ToBool.shape(shape_rules.scalar)
ToBool.not_differentiable()


@ToBool.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return xp.asarray(truth_of(input))


def _as_result(value: TensorValue) -> Any:
    return value if isinstance(value, TensorList) else jnp.asarray(value)


def _of_type(result: TensorValue, wanted: TensorValue) -> Any:
    """A branch's result as both branches give it: what this one does not compute becomes zeros."""
    if isinstance(wanted, TensorList):
        if isinstance(result, TensorList) and (wanted.elements is None or result.elements is not None):
            return result.declared_as(wanted.declared)
        return jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), wanted)
    return result if result.shape == wanted.shape else jnp.zeros(wanted.shape, wanted.dtype)


class _Branches:
    """The branches of an `If` or a `Case` as functions for `lax.switch`.

    Arguments: the varying inputs, then the values of the variables that any branch touches. Results: outputs, new
    values of the variables that any branch writes, and one flag per check of any branch.
    """

    def __init__(self, ctx: StepTracingContext, bodies: list[Any], inputs: list[Any]) -> None:
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
        self.checks: list[list[Any]] = [[] for _ in bodies]
        self.programs: list[Any] = []
        self.shapes: list[Any] = []

    def trace(self) -> None:
        """Traces all branches, each once, and makes the lists of results one.

        (To trace them again for `lax.switch` would take twice the time for each conditional that one is nested in.)
        """
        traced = [self._traced(which) for which in range(len(self.bodies))]
        self.programs = [(program, jax.tree.structure(types)) for program, types in traced]
        results_of_branches = [results for _, (results, _) in traced]
        self.shapes = [self._common(i, results) for i, results in enumerate(zip(*results_of_branches, strict=True))]

    def _traced(self, which: int) -> Any:
        """The program of a branch, and the types of what `_run` gives."""
        try:
            return jax.make_jaxpr(lambda *ops: self._run(which, ops), return_shape=True)(*self.operands)
        except InvalidArgumentError as error:
            # shapes that only another branch can take, as those that stand for what the forward branch did not compute
            raise self.ctx.needs_host(f"branch {which} does not take these values: {error.message}") from error

    def _common(self, index: int, results: tuple[Any, ...]) -> Any:
        """The type of an output, from the branches that compute it."""
        given = [r for r, b in zip(results, self.bodies, strict=True) if not _is_missing(b, index)] or [results[0]]
        common = next((r for r in given if not isinstance(r, TensorList) or r.elements is not None), given[0])
        for result in given:
            if isinstance(result, TensorList) and isinstance(common, TensorList) and result.elements is None:
                result = TensorList(common.elements, result.length, result.dtype, result.declared)
            if isinstance(result, TensorList) and isinstance(common, TensorList):
                common = common.declared_as(common_declaration(common.declared, result.declared))
                result = result.declared_as(common.declared)
            if result.shape != common.shape:
                raise self.ctx.needs_host(f"the branches give results of shapes {common.shape} and {result.shape}")
        return common

    def _run(self, which: int, operands: TensorValue) -> tuple[list[Any], list[Any]]:
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
        def branch(*operands: TensorValue) -> Any:
            program, structure = self.programs[which]
            flat = jaxpr_as_fun(program)(*jax.tree.leaves(operands))
            results, mine = jax.tree.unflatten(structure, flat)
            filled = [_of_type(r, s) for r, s in zip(results, self.shapes, strict=True)]
            flags = [
                ok
                for i, checks in enumerate(self.checks)
                for ok in (mine if i == which else [jnp.asarray(True)] * len(checks))
            ]
            return filled, flags

        return branch

    def report(self, flags: list[Any]) -> None:
        """Hands the branches' checks on; values that live inside a branch cannot be shown outside it."""
        for check, ok in zip([c for checks in self.checks for c in checks], flags, strict=True):
            self.ctx.check(ok, without_values(check.message), error=check.error)


def _is_missing(body: StepFunction, index: int) -> bool:
    """Whether a branch does not compute an output."""
    return index < len(body.outputs) and body.outputs[index].op.type == "FakeParam"


def _switch(ctx: StepTracingContext, taken: TensorValue, bodies: list[Any], input: list[Any]) -> list[Any]:
    """The results of the branch that `taken` numbers: one of them where the number is known, else all compiled."""
    if isinstance(taken, int):
        return ctx.call(bodies[taken], input)
    branches = _Branches(ctx, bodies, input)
    branches.trace()
    functions = [branches.function(i) for i in range(len(bodies))]
    results: list[Any]
    results, flags = lax.switch(taken, functions, *branches.operands)
    count = len(bodies[0].outputs)
    for handle, value in zip(branches.written, results[count:], strict=True):
        ctx.write(handle, value)
    branches.report(flags)
    return list(results[:count])


def _if_kernel(
    cond: TensorValue, input: list[Any], *, ctx: StepTracingContext, then_branch: FuncAttr, else_branch: FuncAttr
) -> list[Any]:
    bodies = [ctx.op.function(f.name) for f in (else_branch, then_branch)]
    truth = truth_of(cond)
    known = isinstance(truth, bool | np.bool_ | np.ndarray)
    return _switch(ctx, int(bool(truth)) if known else truth.astype(np.int32), bodies, input)


def _case_kernel(
    branch_index: TensorValue, input: list[Any], *, ctx: StepTracingContext, branches: list[Any]
) -> list[Any]:
    bodies = [ctx.op.function(f.name) for f in branches]
    if isinstance(branch_index, np.ndarray | np.generic):
        return _switch(ctx, _in_range(int(branch_index), len(bodies)), bodies, input)
    inside = (branch_index >= 0) & (branch_index < len(bodies))
    return _switch(ctx, jnp.where(inside, branch_index, len(bodies) - 1), bodies, input)


def _in_range(index: int, count: int) -> int:
    """Which branch a number takes: the last one if there is none of that number."""
    return index if 0 <= index < count else count - 1


def _given_shapes(
    *_: TensorShape | list[TensorShape], ctx: ShapeContext, output_shapes: list[TensorShape]
) -> list[TensorShape]:
    return list(output_shapes) or [TensorShape(None)] * ctx.output_count


BranchValues.shape(_given_shapes)
for _op in (If, StatelessIf):
    _op.kernel(_if_kernel)
    _op.shape(_given_shapes)
for _op in (Case, StatelessCase):
    _op.kernel(_case_kernel)
    _op.shape(_given_shapes)
