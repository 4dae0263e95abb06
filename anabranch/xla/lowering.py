"""Tracing an island: its operations' kernels, run in order on JAX tracers and on known NumPy values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core import dtypes
from anabranch.core.arrays import ElementType, HostArray, RandomSource
from anabranch.core.attrs import COMPUTED_AGAIN
from anabranch.core.host_memory import ALIGNED_FROM, aligned_empty
from anabranch.core.kernel_context import Check, KernelContext, TracedState, VariableUpdate
from anabranch.core.kernels import KernelCandidate, KernelCase, KernelInput, has_alternates, immediate
from anabranch.core.op_def import Rule
from anabranch.core.quantised_arrays import as_integers, plain_type
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, InvalidArgumentError, OpError
from anabranch.graph.constants import check_shapes, is_open
from anabranch.graph.kernel_binding import (
    BoundKernel,
    KernelResult,
    flatten_outputs,
    reported,
)
from anabranch.graph.kernel_contexts import StepKernel, StepTracingContext
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.kernels import pool_updates
from anabranch.ops.arithmetic.random_bits import HostKey
from anabranch.xla.direct_kernels import BetterCompiledError, DirectSizes, Shapes, cost_of, on_host, takes_numpy
from anabranch.xla.kernel_choice import KernelChoice, KernelTarget, chooser
from anabranch.xla.kernel_timing import Run, timed_run
from anabranch.xla.library_updates import LibraryUpdates
from anabranch.xla.random_keys import host_key, random_key
from anabranch.xla.read_order import are_there, behind_barrier, once_there, source_of
from anabranch.xla.state import draws_random, state_of_body
from anabranch.xla.watched_loops import WatchedLoops

#: sums of fewer elements are left to XLA
_LARGE_SUM: Final = 1 << 19

Carry = TypeVar("Carry")  #: what goes from one iteration of a loop to the next

#: known values up to this size are computed in NumPy while tracing; larger ones on the device
_MAX_KNOWN_ELEMENTS = 4096
#: iterations of the loop in which a kernel is measured that serves loops
_MEASURED_ITERATIONS = 32


class NeedsPartsError(Exception):
    """An island is not to run as one any more: the planner makes parts of it, which run in its place."""


class NeedsHostError(NeedsPartsError):
    """An operation met values that only the host can run it on: the planner takes it out of its island."""

    def __init__(self, op: StepNode, why: str) -> None:
        super().__init__(why)
        self.op = op


@dataclass(slots=True)
class TraceState:
    """What changes while an island is traced.

    Attributes:
        variables: current value of each variable that was read or written.
        written: the variables that were written so far.
        read_first: operation that writes -> what must be computed from the old values before (`xla.read_order`).
        awaited: the values of that, for the operation being traced.
        checks: the conditions met so far.
        counter_of: operation -> how often it ran before (a traced uint32): its place in its random sequence.
        run_seed: the session's seed (a traced uint32), for operations that have none of their own.
        guard: boolean scalar: whether all checks of the island hold; None where it has none.
        used: the tensors that something needs; None: all.
        kernels: operations of the body being traced that are computed in another way, from the values of its tensors.
        notes: what the compiler tells about its choices.
        watched: how loops can be stopped; None: not at all.
        direct: where the values are there, and nothing is traced: how much the kernels compute; None elsewhere.
        spare: position of an input -> its array, which the operation that runs directly may write over.
        target: what is compiled for; None: operations have their own kernels only.
        choices: name of an operation that has several kernels -> the one that was chosen.
        library: which updates and casts of variables a library computes; None: none.
        values: of the tensors that were traced.
    """

    variables: dict[ResourceHandle, Any]
    counter_of: Callable[[StepNode], Any]
    run_seed: Any
    guard: Any = None
    written: set[ResourceHandle] = field(default_factory=set)
    read_first: Mapping[StepNode, Sequence[StepTensor]] = field(default_factory=dict)
    awaited: Sequence[Any] = ()
    checks: list[Check] = field(default_factory=list)
    used: frozenset[StepTensor] | None = None
    kernels: Mapping[StepNode, StepKernel] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    watched: WatchedLoops | None = None
    direct: DirectSizes | None = None
    spare: Mapping[int, HostArray] = field(default_factory=dict)
    target: KernelTarget | None = None
    choices: dict[str, KernelChoice] = field(default_factory=dict)
    library: LibraryUpdates | None = None
    values: Mapping[StepTensor, Any] = field(default_factory=dict)


class TraceContext(KernelContext):
    """The kernel context while an island is traced."""

    __slots__ = ("state",)
    op: StepNode

    def __init__(self, op: StepNode, state: TraceState) -> None:
        super().__init__(op)
        self.state = state

    def check(
        self, ok: TensorValue, message: str, *values: TensorValue, error: type[OpError] = InvalidArgumentError
    ) -> None:
        # the value is there already, and can be looked at without a flag in the program
        if self.state.direct is not None or isinstance(ok, bool | np.bool_ | np.ndarray):
            super().check(ok, message, *values, error=error)
        else:
            self.state.checks.append(Check(self.op, jnp.all(ok), message, values, error))

    @property
    def guard(self) -> Any:
        """Whether all checks of the island hold (a traced boolean scalar), or None where it has no checks.

        `write` applies it to whole values; a kernel that changes few rows of a large variable applies it to the
        row indices instead and calls `write(..., guarded=True)`.
        """
        return self.state.guard

    def read(self, handle: ResourceHandle) -> Any:
        value = self.state.variables[handle]
        return value if self.state.direct is None or takes_numpy(self.op) else jnp.asarray(value)

    def write(self, handle: ResourceHandle, value: TensorValue, guarded: bool = False) -> None:
        handle.check_fits(np.shape(value))
        old = self.state.variables.get(handle)
        if not guarded and old is not None and old.shape == np.shape(value):
            # a donated variable takes the result whatever the checks say (`runtime.island_call`): if one fails, the
            # program itself has to give the old value
            for condition in (self.state.guard, are_there(self.state.awaited)):
                value = value if condition is None else jnp.where(condition, value, old)
        self.state.variables[handle] = value
        self.state.written.add(handle)

    def memory(self, shape: Sequence[int], dtype: ElementType, *reused: int) -> HostArray | None:
        if self.state.direct is None or math.prod(shape) * np.dtype(dtype).itemsize < ALIGNED_FROM:
            return None
        spare = (self.state.spare[at] for at in reused if at in self.state.spare)
        # part of an array may have gaps, and to a kernel that makes it flat it would be a copy
        whole = (one for one in spare if one.flags.c_contiguous)
        fitting = (one for one in whole if one.shape == tuple(shape) and one.dtype == dtype)
        found = next(fitting, None)
        return aligned_empty(shape, dtype) if found is None else found

    def updates(self, update: VariableUpdate) -> bool:
        state = self.state
        if state.library is None or state.direct is not None:
            return False
        news = state.library.updates(self.op, update, state.values, state.choices, [state.guard], state.awaited)
        for handle, new in zip(update.handles, news or (), strict=False):
            self.write(handle, new, guarded=True)
        return news is not None

    def narrowed(self, value: TensorValue) -> TensorValue | None:
        library, tensor = self.state.library, self.op.inputs[0]
        if library is None or _is_constant(value) or not library.narrows(self.op.outputs[0], tensor):
            return None
        return pool_updates.narrowed(self.op.name, value)

    def needs_host(self, why: str) -> NeedsHostError:
        """To be raised by a kernel that cannot be compiled for the values at hand."""
        return NeedsHostError(self.op, why)

    def is_used(self, index: int) -> bool:
        """Whether anything needs output `index`."""
        return self.state.used is None or self.op.outputs[index] in self.state.used

    @staticmethod
    def draws_random(*bodies: StepFunction) -> bool:
        """Whether calling one of the function graphs draws random numbers."""
        return any(draws_random(body) for body in bodies)

    def body_state(self, body: StepFunction, inputs: list[Any]) -> tuple[list[ResourceHandle], list[ResourceHandle]]:
        """The variables that calling a function graph with these inputs reads and writes."""
        handles = {p: v for p, v in zip(body.inputs, inputs, strict=True) if isinstance(v, ResourceHandle)}
        return state_of_body(body, handles)

    def while_loop(
        self, going: Callable[[Carry], TensorValue], iterate: Callable[[Carry], Carry], carry: Carry
    ) -> Carry:
        """Like `lax.while_loop`, but a step with a deadline can be stopped: the loop ends then, and a check fails."""
        if self.state.watched is None:
            last: Carry = lax.while_loop(going, iterate, carry)
            return last
        carry, ended = self.state.watched.run(self.op, going, iterate, carry)
        self.check(ended, "the loop was stopped", error=CancelledError)
        return carry

    def note(self, text: str) -> None:
        """Tells something about how this operation is compiled to those who ask (`anabranch explain`)."""
        self.state.notes[text] = None

    def compute_in_loop(
        self, op: StepNode, inputs: list[Any], prepared: Mapping[str, Mapping[int, TensorValue]]
    ) -> Any:
        """The one result of an operation of a loop's body, by the kernel that is quickest in loops.

        Args:
            op: has no state, and draws no random numbers.
            inputs: flat.
            prepared: what kernels made of inputs before the loop: name of the kernel -> position -> value. All these
                inputs are the same in each iteration.
        """
        rule, values = op.op_def.compiled_rule, inputs
        assert rule is not None
        if self.state.target is not None and self.state.direct is None:
            repeated = {position for made in prepared.values() for position in made}
            choice = _chosen_kernel(op, inputs, self.state, self.state.target, repeated)
            if choice is not None and choice.chosen.kernel is not None:
                rule, made = choice.chosen.kernel.rule, prepared.get(choice.chosen.name, {})
                values = [made.get(position, value) for position, value in enumerate(inputs)]
        return BoundKernel(op, rule, jnp, TraceContext(op, self.state))(values)

    def call(
        self,
        body: StepFunction,
        inputs: list[Any],
        state: TracedState | None = None,
        iteration: TensorValue = 0,
        kernels: Mapping[StepNode, StepKernel] | None = None,
        also: Sequence[StepTensor] = (),
    ) -> list[Any]:
        """Traces a function graph.

        Args:
            inputs: one value per parameter of `body`.
            state: where its reads, writes and checks go; default: this island's state.
            iteration: which call of a loop this is (may be traced); random operations draw anew in each.
            kernels: operations of `body` to be computed in another way.
            also: tensors of `body` whose values are to follow its results.
        """
        outer = self.state if state is None else state
        assert isinstance(outer, TraceState)
        # an odd factor spreads the counts: otherwise iteration 1 of one run would draw what iteration 0 of the next one
        # draws
        counter = jnp.asarray(outer.counter_of(self.op), np.uint32) * np.uint32(0x9E3779B1)
        counter = counter + jnp.asarray(iteration, np.uint32)
        operations = body.operations
        used = frozenset(t for op in operations for t in op.inputs).union(body.outputs)
        inner = replace(outer, counter_of=lambda _: counter, used=used, kernels=kernels or {}, spare={}, library=None)
        env: dict[StepTensor, Any] = dict(zip(body.inputs, inputs, strict=True))
        try:
            trace_operations(operations, env, inner)
        except NeedsHostError as refusal:
            raise self.needs_host(f"{refusal.op.name}: {refusal}") from refusal
        return [env[t] for t in (*body.outputs, *also)]


def trace_operations(operations: Iterable[StepNode], env: dict[StepTensor, Any], state: TraceState) -> None:
    """Runs the compiled kernels of `operations`, reading and writing tensor values in `env`.

    Raises:
        OpError: a kernel cannot take the values or shapes it meets; the error names its operation.
    """
    operations = list(operations)
    state.values = env
    for_gpu = state.target is not None and "GPU" in state.target.device_types
    apart = _summed_apart(operations) if for_gpu else ()
    for op in operations:
        if op in state.kernels:
            env[op.outputs[0]] = state.kernels[op](env.__getitem__)
            continue
        inputs = [env[t] for t in op.inputs]
        if op in apart and not _is_constant(inputs[0]):
            inputs[0] = lax.optimization_barrier(inputs[0])  # type: ignore[no-untyped-call]
        if COMPUTED_AGAIN in op.attrs and state.direct is None:
            before = [env[t] for earlier in op.control_inputs for t in earlier.outputs if t in env]
            inputs = [(behind_barrier if for_gpu else once_there)(value, before) for value in inputs]
        state.awaited = [env[t] for t in state.read_first.get(op, ())]
        results = reported(op, inputs, run_kernel, op, inputs, state)
        for tensor, value in zip(op.outputs, results, strict=True):
            env.setdefault(tensor, value)


def run_kernel(op: StepNode, inputs: list[Any], state: TraceState) -> list[Any]:
    """One kernel's results, flat, with the dtypes of the signature."""
    if state.direct is not None:
        return DirectKernel(op, inputs, state)(inputs, state)
    # the scope's name tells `xla.sizes`, and profiles, what a traced value belongs to
    with jax.named_scope(op.name):
        return _trace_kernel(op, inputs, state)


def _trace_kernel(op: StepNode, inputs: list[Any], state: TraceState) -> list[Any]:
    rule = op.op_def.compiled_rule
    assert rule is not None
    _check_static(op, inputs)
    if is_open(op):
        check_shapes(op, inputs)
    if state.target is not None and has_alternates(op.type, op.attrs):
        rule = _chosen_rule(op, inputs, rule, state, state.target)
    drawn = random_key(op, state.run_seed, state.counter_of(op)) if rule.asks_for("rng") else None
    context: StepTracingContext = TraceContext(op, state)
    kernel = BoundKernel(op, rule, jnp, context, drawn)
    unnoticed = TraceContext(op, replace(state, checks=[]))  # what a kernel checks that only tells sizes is forgotten
    library = np if _stays_known(op, inputs, partial(kernel, inputs, ctx=unnoticed)) else jnp
    if library is jnp and op.op_def.adds:
        inputs = _added_in_order(op, inputs)
    # XLA keeps the name with whatever it makes of the operation: profiles tell it (`runtime/kernel_profile.py`)
    with np.errstate(all="ignore"), jax.named_scope(op.name):
        result = kernel(inputs, xp=library)
    return [as_integers(_typed(value, out)) for value, out in zip(flatten_outputs(result), op.outputs, strict=True)]


class DirectKernel:
    """An operation's kernel, bound to run on NumPy's arrays of the same shapes again and again.

    What shapes tell is found out once, when it is bound: whether they go together, which kernel serves them, and what
    it costs. A call only runs the kernel. It may be called from several threads.

    Args:
        inputs: flat, of the shapes that all calls have; static ones have the same values in all calls.
        state: counts what the kernel computes (`TraceState.direct`).

    Raises:
        ValueError: the shapes do not go together; and as the shape rule does.
        BetterCompiledError: too much is computed.
    """

    __slots__ = ("_asks_context", "_draws", "_is_checked", "_kernel", "_of_jax", "_outputs", "op")

    def __init__(self, op: StepNode, inputs: list[Any], state: TraceState) -> None:
        rule = op.op_def.host_rule if op.op_def.takes_quantised else op.op_def.compiled_rule
        assert rule is not None  # `OpDef` says so
        assert state.direct is not None
        _check_static(op, inputs)
        shapes = check_shapes(op, inputs) if is_open(op) else [out.shape for out in op.outputs]
        if state.target is not None and has_alternates(op.type, op.attrs, at_once=True):
            rule = _immediate_rule(op, inputs, rule, state.target)
        self.op = op
        self._asks_context, self._draws = rule.asks_for("ctx"), rule.asks_for("rng")
        self._kernel = BoundKernel(op, rule, np if op.op_def.portable else jnp)
        #: the positions of what becomes an array of JAX's. Static inputs stay NumPy's, as in a trace: the kernel asks
        #: for their values
        static = op.op_def.static_positions(op)
        self._of_jax = [] if takes_numpy(op) else [i for i in range(len(inputs)) if i not in static]
        self._outputs = [(out, out.dtype.as_numpy_dtype) for out in op.outputs]
        #: whether its results have been seen to have the shapes that the graph says
        self._is_checked = False
        inputs = self._brought(inputs)
        state.direct.count(op, inputs, shapes, partial(self._shapes_when_traced, rule, inputs, state))

    def __call__(self, inputs: list[Any], state: TraceState) -> list[Any]:
        """The results, flat, with the dtypes of the signature."""
        op, keywords = self.op, {}
        if self._of_jax:
            inputs = self._brought(inputs)
        if self._asks_context:
            context: StepTracingContext = TraceContext(op, state)
            keywords["ctx"] = context
        if self._draws:
            keywords["rng"] = self._drawn(state)
        # what profiles are made of: see `runtime/kernel_profile.py`
        with jax.profiler.TraceAnnotation(op.name, hlo_op=op.name):
            result = self._kernel.on_arguments(*self._kernel.grouped(inputs), **keywords)
        results = [result] if type(result) is np.ndarray else flatten_outputs(result)
        typed = [
            value if type(value) is np.ndarray and value.dtype == dtype else on_host(_typed(value, out))
            for value, (out, dtype) in zip(results, self._outputs, strict=True)
        ]
        if not self._is_checked:
            if any(not is_as_said(value, out) for value, (out, _) in zip(typed, self._outputs, strict=True)):
                raise BetterCompiledError  # a shape that somebody set is wrong: a compiled program says which
            self._is_checked = True
        return typed

    def _brought(self, inputs: list[Any]) -> list[Any]:
        """The inputs, those that the kernel takes as JAX's arrays as such."""
        brought = list(inputs)
        for position in self._of_jax:
            if isinstance(brought[position], np.ndarray):
                brought[position] = jnp.asarray(brought[position])
        return brought

    def _drawn(self, state: TraceState) -> RandomSource:
        key = host_key(self.op, int(state.run_seed), int(state.counter_of(self.op)))
        return key if takes_numpy(self.op) else key.on_device()

    def _shapes_when_traced(self, rule: Rule, inputs: list[Any], state: TraceState) -> Shapes:
        """The shapes of what the kernel gives, by tracing it; what it checks there counts only when it runs."""
        context: StepTracingContext = TraceContext(self.op, replace(state, checks=[], direct=None))
        drawn = self._drawn(state) if self._draws else None
        key = drawn.on_device() if isinstance(drawn, HostKey) else drawn
        kernel = BoundKernel(self.op, rule, jnp, context, key)
        return [np.shape(value) for value in flatten_outputs(jax.eval_shape(partial(kernel, inputs)))]


def _summed_apart(operations: Sequence[StepNode]) -> frozenset[StepNode]:
    """The sums over rows, as biases' gradients are, of large tensors that other operations read as well.

    For GPUs XLA puts what computes such a tensor into the program that sums it up, which has few threads and stores the
    tensor on the side: 121 µs on an H200 where the two programs take 15 and 10, for 4,096 x 768 numbers.
    """
    reads = Counter(tensor for op in operations for tensor in op.inputs)
    return frozenset(op for op in operations if op.op_def.sums and reads[op.inputs[0]] > 1 and _sums_rows(op))


def _sums_rows(op: StepNode) -> bool:
    operand, axes = op.inputs
    rank = operand.shape.ndims
    if rank is None or rank < 2 or not axes.is_known:
        return False
    size = operand.shape.num_elements()
    every = {int(axis) % rank for axis in np.ravel(axes.known)}
    return every == set(range(rank - 1)) and (size is None or size >= _LARGE_SUM)


def _added_in_order(op: StepNode, inputs: Sequence[Any]) -> list[Any]:
    """The operands of a sum; those that are sums themselves are computed first where the other one is constant.

    XLA adds constants up before: ``(1 - p) + 1e-8`` of float32 became ``1 - p``, and its logarithm minus infinity at 1.
    """
    if not any(_is_constant(value) for value in inputs):
        return list(inputs)
    return [
        lax.optimization_barrier(value)  # type: ignore[no-untyped-call]
        if not _is_constant(value) and jnp.issubdtype(value.dtype, jnp.inexact) and source_of(tensor).op_def.adds
        else value
        for value, tensor in zip(inputs, op.inputs, strict=True)
    ]


def _is_constant(value: object) -> bool:
    return not isinstance(value, jax.core.Tracer)


def _chosen_rule(op: StepNode, inputs: Sequence[Any], own: Rule, state: TraceState, target: KernelTarget) -> Rule:
    """The kernel that serves these inputs best on what the island is compiled for.

    Values that are known while an island is traced are left to the operation's own kernel, which may run in NumPy.
    """
    # all inputs are known: the result stays known as well
    if op.op_def.portable and all(isinstance(value, np.ndarray) for value in inputs):
        return own
    choice = _chosen_kernel(op, inputs, state, target)
    return own if choice is None or choice.chosen.kernel is None else choice.chosen.kernel.rule


def _chosen_kernel(
    op: StepNode, inputs: Sequence[Any], state: TraceState, target: KernelTarget, repeated: Collection[int] = ()
) -> KernelChoice | None:
    """What is chosen; None where there is but the operation's own. `repeated`: inputs that a loop does not change."""
    case = case_of(op, inputs, target, repeated)
    if case is None:
        return None
    alone = not (op.op_def.stateful or op.op_def.random or op.op_def.calls_functions)
    choice = chooser.choose(case, target.device, partial(_run_alone, op, case.inputs, target) if alone else None)
    if choice is not None:
        _note_choice(op.name, choice, state.choices)
    return choice


def _note_choice(name: str, choice: KernelChoice, choices: dict[str, KernelChoice]) -> None:
    """Keeps a choice by the operation's name, and a number where an operation of another body has the same."""
    numbered, number = name, 1
    while choices.get(numbered, choice) is not choice:
        number += 1
        numbered = f"{name} ({number})"
    choices[numbered] = choice


def _immediate_rule(op: StepNode, inputs: Sequence[Any], own: Rule, target: KernelTarget) -> Rule:
    """The same where kernels run directly; nothing is measured for it."""
    case = case_of(op, inputs, target)
    kernel = None if case is None else immediate(case)
    return own if kernel is None else kernel.rule


def case_of(
    op: StepNode, inputs: Sequence[Any], target: KernelTarget, repeated: Collection[int] = ()
) -> KernelCase | None:
    """What a kernel is chosen for; None where an input is no array but a handle, or a list of tensors."""
    if not all(hasattr(value, "shape") and hasattr(value, "dtype") for value in inputs):
        return None
    static = op.op_def.static_positions(op)
    described = tuple(
        KernelInput(tuple(value.shape), value.dtype, value if i in static else None, i in repeated)
        for i, value in enumerate(inputs)
    )
    return KernelCase(op.type, op.attrs, described, target.device_types)


def _run_alone(op: StepNode, inputs: Sequence[KernelInput], target: KernelTarget, candidate: KernelCandidate) -> Run:
    """Runs a kernel when nothing else is in its program; where inputs are repeated, says what an iteration took."""
    rule = op.op_def.compiled_rule if candidate.kernel is None else candidate.kernel.rule
    assert rule is not None
    known = {at: described.value for at, described in enumerate(inputs) if described.value is not None}
    given = {at: described for at, described in enumerate(inputs) if at not in known}
    repeated = [at for at, described in given.items() if described.repeated]

    def compute(values: Mapping[int, Any]) -> list[Any]:
        context = TraceContext(op, TraceState({}, counter_of=lambda _: np.uint32(0), run_seed=np.uint32(0)))
        return flatten_outputs(BoundKernel(op, rule, jnp, context)([values[at] for at in range(len(inputs))]))

    def program(*arrays: TensorValue) -> list[Any]:
        values = known | dict(zip(given, arrays, strict=True))
        if not repeated:
            return compute(values)
        prepared = {} if candidate.kernel is None else candidate.kernel.prepares
        fixed = values | {at: prepare(values[at]) for at, prepare in prepared.items()}
        changing = {at: values[at] for at in given if at not in repeated}

        def iterate(number: TensorValue, _: list[Any]) -> list[Any]:
            picked = {at: lax.dynamic_index_in_dim(value, number, keepdims=False) for at, value in changing.items()}
            return compute(fixed | picked)

        results: list[Any] = lax.fori_loop(1, rounds, iterate, iterate(0, []))
        return results

    rounds = _MEASURED_ITERATIONS if repeated else 1
    dynamic = [
        (described.shape if described.repeated or not repeated else (rounds, *described.shape), described.dtype)
        for described in given.values()
    ]
    run = timed_run(program, dynamic, target.device)
    return lambda: run() / rounds


def _check_static(op: StepNode, inputs: list[Any]) -> None:
    """Inside a function body, what must be known may be a value that only the device has."""
    for position in op.op_def.static_positions(op):
        if isinstance(inputs[position], jax.core.Tracer):
            raise NeedsHostError(op, f"input {op.inputs[position].name} is not known when the program is compiled")


def _stays_known(op: StepNode, inputs: list[Any], compute: Callable[[], Any]) -> bool:
    """Whether a portable kernel is to run in NumPy: everything it needs is known, and small like its results."""
    op_def = op.op_def
    if not op_def.portable:
        return False
    # it looks at the shapes of its inputs alone, which the trace knows
    if op_def.shape_valued:
        return True
    size = 0
    for value in inputs:
        if isinstance(value, np.ndarray):
            size += value.size
        elif not isinstance(value, ResourceHandle):
            return False
    return size <= _MAX_KNOWN_ELEMENTS and _result_size(op, compute) <= _MAX_KNOWN_ELEMENTS


def _result_size(op: StepNode, compute: Callable[[], Any]) -> int:
    """The number of elements of an operation's results, without computing them."""
    sizes = [out.shape.num_elements() for out in op.outputs]
    if None in sizes:
        return _sizes_of(jax.eval_shape(compute))
    return sum(size for size in sizes if size is not None)


def is_as_said(value: TensorValue, out: StepTensor) -> bool:
    dims = out.shape.dims_tuple
    if dims is None or not isinstance(value, np.ndarray):
        return True
    return len(dims) == value.ndim and all(d is None or d == n for d, n in zip(dims, value.shape, strict=True))


def _sizes_of(results: KernelResult) -> int:
    return sum(cost_of(np.shape(value)) for value in flatten_outputs(results))


def _typed(value: TensorValue, out: StepTensor) -> Any:
    """The signature decides the dtype: 64-bit defaults of the array library must not leak."""
    if isinstance(value, ResourceHandle) or out.dtype is dtypes.resource or out.dtype is dtypes.variant:
        return value
    dtype = out.dtype.as_numpy_dtype
    if out.dtype.is_quantized and not (isinstance(value, np.ndarray) and value.dtype.fields):
        dtype = plain_type(out.dtype)
    if not hasattr(value, "dtype"):
        return np.asarray(value, dtype)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    return value if value.dtype == dtype else value.astype(dtype)
