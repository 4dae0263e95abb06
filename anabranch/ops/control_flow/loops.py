"""Functional loops (§3.4; design D4; docs/decisions/0014-loops.md).

`While` takes two function graphs with the same parameters, the loop variables. In an island it becomes one
`lax.while_loop`; where a loop variable changes its shape, or a body holds host work, it is lowered to a loop of
primitives, which the executor runs (`passes.lower_control_flow`).

`_LoopRecords` stands beside a loop that something differentiates: it gives the number of iterations, and lists with the
values that chosen tensors of the body (*records*) had in each of them. In a step both are one `_RecordingWhile`
(docs/decisions/0034).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from anabranch.core.arrays import Array
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.resources import ResourceHandle
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.core.shown_values import without_values
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.loop_bodies import (
    closure_of_parameters,
    fixed_parameters,
    parameters_behind,
)
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.ops.control_flow import growing_lists, loop_counts, loop_rewrites, settled_checks
from anabranch.ops.control_flow.appended_values import Appended, appended_values
from anabranch.ops.control_flow.conditionals import by_its_owner, truth_of
from anabranch.ops.control_flow.counters import counter_steps
from anabranch.ops.control_flow.rearranged_values import Rearranged, rearranged_values
from anabranch.ops.lists.values import Declared, TensorList, common_declaration

_WHILE_ATTRS = (
    "T: list(type) >= 0, cond: func, body: func, output_shapes: list(shape) = [], parallel_iterations: int = 10"
)
While = define_op("While", "input: T -> output: T", _WHILE_ATTRS, stateful=True, role=Role.LOOP, repeats_bodies=True)
StatelessWhile = define_op("StatelessWhile", "input: T -> output: T", _WHILE_ATTRS, role=Role.LOOP, repeats_bodies=True)

#: `recorded`: which results of the body, counted from its first, are records; `only_shapes`: those of which no value
#: matters. `bound`: no loop makes more iterations; negative where that is not known before it has run.
RecordingWhile = define_op(
    "_RecordingWhile",
    "bound: int32, input: T -> output: T, count: int32, record: N * variant",
    _WHILE_ATTRS + ", N: int >= 0, recorded: list(int), only_shapes: list(bool)",
    stateful=True,
    static=("bound",),
    role=Role.LOOP,
    repeats_bodies=True,
)

#: `tensors`: which tensors of the body are recorded, as `graph.inner_values` names them, and `types` of what dtype. It
#: waits for its loop, and takes the same.
LoopRecords = define_op(
    "_LoopRecords",
    "bound: int32, input: T -> count: int32, record: N * variant",
    "T: list(type) >= 0, cond: func, body: func, N: int >= 0, tensors: list(string), types: list(type)",
    stateful=True,
    role=Role.BESIDE,
)

#: an attribute of `_RecordingWhile`: its bound is how often the loop runs
COUNTED = "_counted"

#: the number of the first iteration
_FIRST = np.int32(0)


# ---------------------------------------------------------------------- compiled
@dataclass(slots=True)
class _Iteration:
    """What one iteration gives; `factors`: what is kept for sums after the loop."""

    values: list[Any]
    variables: list[Any]
    records: list[Any]
    ok: list[Any]
    shown: list[tuple[Any, ...]]
    factors: list[Any]


@dataclass(slots=True)
class _TracedStep:
    """An iteration, traced once.

    To trace it again for `lax.while_loop` would take twice the time for each loop that one is nested in.

    Attributes:
        structure: of what the program gives: an `_Iteration`'s parts.
        carried, factors: the positions of the loop variables that it takes, and what it keeps.
        values: the loop variables' first values, in the form that they keep.
        types: of what it gives.
    """

    program: Any
    structure: Any
    carried: list[int]
    factors: list[Any]
    values: list[Any]
    variables: list[Any]
    types: _Iteration

    def run(self, number: TensorValue, values: dict[int, Any], variables: list[Any], factors: list[Any]) -> _Iteration:
        """Runs it, on the first values of what is no longer carried; gives what `values` and `factors` name."""
        given = [values.get(position, first) for position, first in zip(self.carried, self.values, strict=True)]
        flat = jaxpr_as_fun(self.program)(*jax.tree.leaves((number, given, variables)))
        done = _Iteration(*jax.tree.unflatten(self.structure, flat))
        value_of = dict(zip(self.carried, done.values, strict=True))
        factor_of = dict(zip(self.factors, done.factors, strict=True))
        done.values = [value_of[position] for position in values]
        done.factors = [factor_of[t] for t in factors]
        return done


class CompiledLoop:
    """A loop as one `lax.while_loop`.

    Carried from iteration to iteration: the loop variables that change and that something needs, the variables
    (resources) that the body writes, the outcome of its checks, and the records. All else is taken from outside.
    `ops.control_flow.loop_rewrites` tells which products are computed before or after the loop instead.

    Args:
        used: for each loop variable, whether something needs its last value.
        count: how often the loop runs, where that was found out before.
    """

    def __init__(
        self,
        ctx: StepTracingContext,
        cond: StepFunction,
        body: StepFunction,
        inputs: list[Any],
        used: list[bool],
        count: int | None = None,
    ) -> None:
        self.ctx, self.cond, self.body, self.inputs, self.count = ctx, cond, body, inputs, count
        self.unread = loop_rewrites.unread_lists(cond, body, used) if loop_rewrites.enabled() else set()
        self.carried = self._needed(used)
        reads: dict[ResourceHandle, None] = {}
        writes: dict[ResourceHandle, None] = {}
        for function in (cond, body):
            touched = ctx.body_state(function, inputs)
            reads.update(dict.fromkeys([*touched[0], *touched[1]]))
            writes.update(dict.fromkeys(touched[1]))
        if ctx.body_state(cond, inputs)[1]:
            raise ctx.needs_host("the condition of the loop changes a variable")
        self.variables = {handle: ctx.read(handle) for handle in reads}
        self.written = list(writes)
        #: what the lists that a loop variable is in turn declare alike, where they differ
        self.declared: dict[int, Declared | None] = {}
        self.checks: list[Any] = []
        self.condition_checks: list[Any] = []
        self.later: list[loop_rewrites.LaterSum] = []
        self.products: dict[Any, Any] = {}
        self.multiplied_before = 0
        #: what the loop appends to: joined after it
        self.appended: list[Appended] = []
        #: what it rearranges besides, and how long each was before
        self.rearranged: list[tuple[Rearranged, int]] = []
        if loop_rewrites.enabled():
            self.later = loop_rewrites.later_sums(cond, body, self.carried)
            self.products, self.multiplied_before = loop_rewrites.products(ctx, body, inputs, fixed_parameters(body))

    @property
    def factors(self) -> list[Any]:
        """The tensors of the body of which all values are kept for what is computed after the loop."""
        kept = [t for later in self.later for t in later.factors]
        return list(dict.fromkeys([*kept, *(appended.piece for appended in self.appended)]))

    def _needed(self, used: list[bool]) -> list[int]:
        fixed = fixed_parameters(self.body)
        start = {i for i, wanted in enumerate(used) if wanted}
        start |= parameters_behind(self.cond, self.cond.outputs)
        start |= parameters_behind(self.body, self.body.outputs[len(self.inputs) :])
        start |= self._needed_by_effects()
        return sorted(i for i in closure_of_parameters(self.body, start) - self.unread if not fixed[i])

    def _needed_by_effects(self) -> set[int]:
        """Every parameter where the body has effects: what leads to them is not looked into."""
        _, writes = self.ctx.body_state(self.body, self.inputs)
        return set(range(len(self.inputs))) if writes else set()

    # ---- one iteration
    def _arguments(self, values: list[Any]) -> list[Any]:
        full = list(self.inputs)
        for position, value in zip(self.carried, values, strict=True):
            full[position] = value
        return full

    def _state(self, variables: list[Any]) -> Any:
        outer = self.ctx.state
        current = {**outer.variables, **self.variables, **dict(zip(self.written, variables, strict=True))}
        watched = None if outer.watched is None else outer.watched.inside()
        return replace(outer, variables=current, written=set(), checks=[], watched=watched)

    def condition(self, number: TensorValue, values: list[Any], variables: list[Any]) -> tuple[Any, list[Any]]:
        """Traces the condition; returns its truth and its checks."""
        state = self._state(variables)
        (truth,) = self.ctx.call(self.cond, self._arguments(values), state, iteration=number)[:1]
        self.condition_checks = state.checks
        return jnp.asarray(truth_of(truth)), state.checks

    def step(self, number: TensorValue, values: list[Any], variables: list[Any], recorded: list[int]) -> _Iteration:
        """Traces one iteration."""
        state = self._state(variables)
        kernels = dict(self.products)
        for one, begin in self.rearranged:
            kernels.update(one.kernels(begin, number, self.ctx.needs_host))
        results = self.ctx.call(
            self.body, self._arguments(values), state, iteration=number, kernels=kernels, also=self.factors
        )
        self.checks = state.checks
        new_variables = [jnp.asarray(state.variables[h]) for h in self.written]
        shown = [tuple(jnp.asarray(v) for v in c.values) for c in state.checks]
        return _Iteration(
            [self._as_declared(i, _as_carried(results[i])) for i in self.carried],
            new_variables,
            [_as_carried(results[i]) for i in recorded],
            [c.ok for c in state.checks],
            shown,
            [_as_carried(v) for v in results[len(self.body.outputs) :]],
        )

    def _as_declared(self, position: int, result: TensorValue) -> Any:
        """A new value of a loop variable; a list declares what those of all iterations do."""
        return result.declared_as(self.declared[position]) if position in self.declared else result

    # ---- the loop
    def run(
        self, bound: int, recorded: list[int], count: bool, shaped: Sequence[int] = ()
    ) -> tuple[list[Any], Any, list[Any]]:
        """Runs the loop.

        Args:
            shaped: results of the body that are records of which no value matters.

        Returns:
            The loop variables, the number of iterations (None unless `count`), one array [bound, ...] per record; those
            of `shaped` come last, and hold nothing.
        """
        self._make_room(recorded)
        if self.appended:
            bound = max(bound, self.count or 0)
        traced = self._traced([*recorded, *shaped])
        types, variables = traced.types, traced.variables
        values, kept = self._choose_sums(traced.values, types, bound)
        first, checks = self.condition(np.uint32(0), values, variables)
        guarded = bool(checks)  # then the condition is evaluated with the iteration, which can hand its checks on
        known = None if guarded else self._known_count() if self.count is None else self.count
        numbered = count or known is not None or bool(recorded or kept or self.rearranged)
        numbered = numbered or self.ctx.draws_random(self.body, self.cond)
        settled = {} if known is None else self._settled(traced, known)
        #: the numbers of the checks that each iteration makes
        open_checks = [n for n in range(len(types.ok)) if n not in settled]
        carry: dict[str, Any] = {
            "number": jnp.zeros((), np.int32) if numbered else None,
            "values": values,
            "variables": variables,
            "ok": [jnp.asarray(True) for _ in open_checks],
            "shown": jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), [types.shown[n] for n in open_checks]),
            "records": [_room(t, max(bound, 1)) for t in (*types.records[: len(recorded)], *kept)],
            "going": first if guarded else None,
            "condition_ok": [c.ok for c in checks],
        }

        def going(carry: dict[str, Any]) -> Any:
            if known is not None:
                return carry["number"] < known
            goes = carry["going"]
            if not guarded:
                goes, _ = self.condition(_iteration(carry), carry["values"], carry["variables"])
            for ok in (*carry["ok"], *carry["condition_ok"]):
                goes = goes & ok
            return goes

        def iterate(carry: dict[str, Any]) -> Any:
            number = carry["number"]
            current = dict(zip(self.carried, carry["values"], strict=True))
            done = traced.run(_iteration(carry), current, carry["variables"], self.factors)
            done.ok, done.shown = [done.ok[n] for n in open_checks], [done.shown[n] for n in open_checks]
            if known is not None:
                done.ok, done.shown = _first_failures(carry, done)
            new: dict[str, Any] = {
                "number": None if number is None else number + 1,
                "values": done.values,
                "variables": done.variables,
                "ok": [jnp.asarray(ok) for ok in done.ok],
                "shown": done.shown,
                "records": [
                    jax.tree.map(lambda r, v: lax.dynamic_update_index_in_dim(r, v, number, 0), room, value)
                    for room, value in zip(
                        carry["records"], (*done.records[: len(recorded)], *done.factors), strict=True
                    )
                ],
                "going": None,
                "condition_ok": [],
            }
            if guarded:
                new["going"], checks = self.condition(_iteration(new), new["values"], new["variables"])
                new["condition_ok"] = [c.ok for c in checks]
            return new

        last = self.ctx.while_loop(going, iterate, carry)
        checked = {**settled, **dict(zip(open_checks, zip(last["ok"], last["shown"], strict=True), strict=True))}
        self._report(last, checked)
        full = [growing_lists.as_left(value) for value in self._arguments(last["values"])]
        all_of = dict(zip(self.factors, last["records"][len(recorded) :], strict=True))
        for later in self.later:
            full[later.position] = later.total(self.inputs[later.position], all_of)
        for one in self.appended:
            full[one.position] = one.whole(self.inputs[one.position], all_of[one.piece], self.count or 0)
        self._tell(known)
        empty = [_room(t, max(bound, 1)) for t in types.records[len(recorded) :]]
        number = last["number"] if known is None else np.int32(known)
        return full, number, [*last["records"][: len(recorded)], *empty]

    def _make_room(self, recorded: list[int]) -> None:
        """Lets lists begin as long as they will be, and joins what is appended after the loop, where that is known."""
        growing = self.ctx.op.attrs.get(growing_lists.GROWING, ())
        appended = appended_values(self.cond, self.body, self.carried)
        without = {one.position for one in appended}
        rearranged = rearranged_values(self.cond, self.body, [at for at in self.carried if at not in without])
        if not (growing or appended or rearranged):
            return
        if self.count is None:
            self.count = self._known_count()
        if self.count is not None:
            self.appended = appended
            self.carried = [position for position in self.carried if position not in without]
            places = growing_lists.growing_lists(self.cond, self.body, recorded)
            wanted = {position: places[position] for position in growing if position in places}
            self.inputs = growing_lists.with_room(self.inputs, wanted, self.count)
            for one in rearranged:
                first = self.inputs[one.position]
                room = one.with_room(first, self.count)
                if room is not None:
                    self.inputs[one.position] = room
                    self.rearranged.append((one, first.shape[one.axis]))

    def _known_count(self) -> int | None:
        """How often the loop runs, where its condition counts up or down to what is known while it is traced.

        The compiler finds such a count in `number < count`, and a GPU then runs the iterations without asking the host
        after each whether there is another. What fails ends no such loop: all iterations take place.
        """
        state = replace(self.ctx.state, checks=[])
        return loop_counts.known_count(
            lambda values: self.ctx.call(self.cond, values, state), self.cond, self.body, self.inputs
        )

    def _choose_sums(self, values: list[Any], types: _Iteration, bound: int) -> tuple[list[Any], list[Any]]:
        """Settles which sums are made after the loop: their variables are not carried.

        Returns:
            The first values of what is still carried, and the types of what is kept for the sums.
        """
        if not self.factors:
            return values, []
        type_of = dict(zip(self.factors, types.factors, strict=True))
        self.later = loop_rewrites.worth_keeping(self.later, type_of, bound) if bound > 1 else []
        without = {later.position for later in self.later}
        kept = [v for i, v in zip(self.carried, values, strict=True) if i not in without]
        self.carried = [i for i in self.carried if i not in without]
        return kept, [type_of[t] for t in self.factors]

    def _tell(self, count: int | None) -> None:
        name, told = self.ctx.op.name, []
        if count is not None:
            self.ctx.note(f"{name} runs {count} times")
        if self.later or self.multiplied_before:
            told.append(f"{len(self.later)} sums after it, {self.multiplied_before} products with work before")
        if self.unread:
            told.append(f"{len(self.unread)} lists as they were")
        if told:
            self.ctx.note(f"loop {name}: {', '.join(told)}")

    def _traced(self, recorded: list[int]) -> _TracedStep:
        """Traces an iteration, until the loop variables have the form that they keep."""
        values = [_as_carried(self.inputs[i]) for i in self.carried]
        variables = [jnp.asarray(self.variables[h]) for h in self.written]
        trace = jax.make_jaxpr(
            lambda number, values, variables: _leaves(self.step(number, values, variables, recorded)), return_shape=True
        )
        for _ in range(2 * len(values) + 1):  # a list may settle on a shape, and then on what it declares
            try:
                program, types = trace(_FIRST, values, variables)
            except InvalidArgumentError as error:
                # a loop that makes no iteration is right all the same, and only the condition knows
                raise self.ctx.needs_host(f"the body does not take these values: {error.message}") from error
            step = _Iteration(*types)
            merged = [self._merged(i, a, b) for i, a, b in zip(self.carried, values, step.values, strict=True)]
            if all(a is b for a, b in zip(values, merged, strict=True)):
                structure = jax.tree.structure(types)
                return _TracedStep(program, structure, self.carried, self.factors, values, variables, step)
            values = merged
        raise self.ctx.needs_host("the loop variables do not settle on shapes")

    def _merged(self, position: int, value: TensorValue, result: TensorValue) -> Any:
        name = self.body.inputs[position].op.name
        if isinstance(value, TensorList) and isinstance(result, TensorList):
            if value.declared != result.declared:
                declared = self.declared[position] = common_declaration(value.declared, result.declared)
                value, result = value.declared_as(declared), result.declared_as(declared)
            if value.length == result.length and value.element_shape in (None, result.element_shape):
                if value.elements is not None or result.elements is None:
                    return value
                return jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), result)
            raise self.ctx.needs_host(f"list {name} enters the loop as {value.shape} and becomes {result.shape}")
        if value.shape != result.shape:
            raise self.ctx.needs_host(
                f"loop variable {name} enters with shape {value.shape} and becomes {result.shape}"
            )
        return value

    def _settled(self, traced: _TracedStep, count: int) -> dict[int, tuple[Any, tuple[Any, ...]]]:
        """The checks of the iterations whose outcome is known before the loop (`settled_checks.settle`)."""
        if not 0 < count <= settled_checks.MOST_ITERATIONS or not traced.types.ok:
            return {}
        numbers = np.arange(count, dtype=np.int32)
        counted = {0: numbers}
        steps, at = counter_steps(self.body), 1
        for position, first in zip(traced.carried, traced.values, strict=True):
            start, step = self.inputs[position], steps[position]
            if step and isinstance(start, np.ndarray) and not start.ndim:
                with np.errstate(over="ignore"):
                    counted[at] = start + numbers.astype(start.dtype) * start.dtype.type(step)
            at += len(jax.tree.leaves(first))
        place = _Iteration(*jax.tree.unflatten(traced.structure, range(traced.structure.num_leaves)))
        return settled_checks.settle(traced.program, counted, list(zip(place.ok, place.shown, strict=True)))

    def _report(self, last: dict[str, Any], checked: dict[int, tuple[Any, tuple[Any, ...]]]) -> None:
        for handle, value in zip(self.written, last["variables"], strict=True):
            self.ctx.write(handle, value)
        for number, check in enumerate(self.checks):
            ok, shown = checked[number]
            self.ctx.state.checks.append(replace(check, ok=ok, values=shown))
        for check, ok in zip(self.condition_checks, last["condition_ok"], strict=False):
            message = without_values(check.message)
            self.ctx.state.checks.append(replace(check, ok=ok, message=message, values=()))


def _first_failures(carry: dict[str, Any], done: _Iteration) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """The outcomes of checks over all iterations so far, and what those show that failed first."""
    shown = [
        tuple(jnp.where(held, new, old) for old, new in zip(*pair, strict=True))
        for held, *pair in zip(carry["ok"], carry["shown"], done.shown, strict=True)
    ]
    return [held & ok for held, ok in zip(carry["ok"], done.ok, strict=True)], shown


def _leaves(step: _Iteration) -> tuple[Any, ...]:
    return step.values, step.variables, step.records, step.ok, step.shown, step.factors


def _iteration(carry: dict[str, Any]) -> Any:
    return _FIRST if carry["number"] is None else carry["number"]


def _as_carried(value: TensorValue) -> Any:
    return value if isinstance(value, TensorList) else jnp.asarray(value)


def _room(result: TensorValue, bound: int) -> Any:
    return jax.tree.map(lambda t: jnp.zeros((bound, *t.shape), t.dtype), result)


def bodies(op: StepNode, cond: FuncAttr, body: FuncAttr) -> tuple[StepFunction, StepFunction]:
    """The functions of a loop."""
    return op.function(cond.name), op.function(body.name)


def _while_kernel(input: list[Any], *, ctx: StepTracingContext, cond: FuncAttr, body: FuncAttr) -> list[Any]:
    used = [ctx.is_used(i) for i in range(len(input))]
    loop = CompiledLoop(ctx, *bodies(ctx.op, cond, body), input, used)
    return loop.run(0, [], False)[0]


@RecordingWhile.kernel
def _(
    bound: Array,
    input: list[Any],
    *,
    ctx: StepTracingContext,
    cond: FuncAttr,
    body: FuncAttr,
    recorded: list[int],
    only_shapes: list[bool],
) -> list[Any]:
    count = len(input)
    used = [ctx.is_used(i) for i in range(count)]
    wanted = [k for k in range(len(recorded)) if ctx.is_used(count + 1 + k)]
    stored = [k for k in wanted if not only_shapes[k]]
    length = int(np.asarray(bound))
    if wanted and length < 0:
        raise ctx.needs_host("how often the loop runs is not known before it has run")
    counted = length if COUNTED in ctx.op.attrs else None
    loop = CompiledLoop(ctx, *bodies(ctx.op, cond, body), input, used, counted)
    shaped = [k for k in wanted if only_shapes[k]]
    results, number, rooms = loop.run(length, [recorded[k] for k in stored], True, [recorded[k] for k in shaped])
    room_of = dict(zip([*stored, *shaped], rooms, strict=True))
    lists = [_record_list(room_of.get(k), max(length, 1)) for k in range(len(recorded))]
    return [*results, number, *lists]


def _record_list(room: TensorValue, length: int) -> TensorList:
    """A record as a list; of one whose tensor is a list itself, only its form matters."""
    if room is None or isinstance(room, TensorList):
        return TensorList(room, length, np.object_ if room is not None else np.float32)
    return TensorList(room, length, room.dtype)


# ---------------------------------------------------------------------- records of a lowered loop
RecordStart = define_op("_RecordStart", "-> record: variant", stateful=True)
RecordAdd = define_op(
    "_RecordAdd", "record: variant, item: T -> longer: variant", "T: any", stateful=True, knows_objects=True
)
RecordEnd = define_op("_RecordEnd", "record: variant -> list: variant", "element_dtype: any")
for _op in (RecordStart, RecordAdd, RecordEnd):
    _op.shape(lambda *_: TensorShape([]))
    _op.not_differentiable()


@RecordStart.host_kernel
def _() -> TensorList:
    return TensorList([], 0, np.object_)


@RecordAdd.host_kernel
def _(record: TensorList, item: Array) -> TensorList:
    # the loop hands the record from iteration to iteration and nobody else holds it, so that it can grow in place
    record.elements.append(item)
    return record


@RecordEnd.host_kernel
def _(record: TensorList, *, element_dtype: DType) -> TensorList:
    count = len(record.elements)
    made = TensorList(record.elements, count, element_dtype.as_numpy_dtype)
    return made.to_dense(capacity=rounded(max(count, 1)))


def rounded(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 0).bit_length()


def _while_shape(input: list[TensorShape], *, ctx: ShapeContext, output_shapes: list[TensorShape]) -> list[TensorShape]:
    return list(output_shapes) or [TensorShape(None)] * ctx.output_count


for _op in (While, StatelessWhile):
    _op.kernel(_while_kernel)
    _op.shape(_while_shape)


@RecordingWhile.shape
def _(
    bound: TensorShape, input: list[TensorShape], *, ctx: ShapeContext, output_shapes: list[TensorShape]
) -> list[TensorShape]:
    rest = ctx.output_count - len(input)
    return [*(list(output_shapes) or [TensorShape(None)] * len(input)), *[TensorShape([])] * rest]


LoopRecords.host_kernel(by_its_owner)


@LoopRecords.shape
def _(bound: TensorShape, input: list[TensorShape], *, ctx: ShapeContext) -> list[TensorShape]:
    return [TensorShape([])] * ctx.output_count
