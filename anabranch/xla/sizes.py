"""Sizes of a traced program: what XLA cannot count, and what the machine cannot hold, is refused before it gets there.

A program is looked at twice. When it has been traced, every value of every equation, also inside of a kernel, a loop or
a branch, must have a size that 64 bits can count: XLA ends the process otherwise. When it has been compiled, what it
stores must fit into the memory: what it only passes through, as a sum over a broadcast product does, need not.

An array without elements is large too where dimensions stand before the one of 0: XLA makes a constant of it and writes
that down, `{ {}, {}, ... }`, a pair of braces for each element of the dimensions before it. [0, 1e8] costs nothing,
[1e8, 0] ten seconds and a gigabyte, [2e9, 0] ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.stages import Compiled

from anabranch.core.sizes import available_memory, check_passable, out_of_memory
from anabranch.errors import OpError, ResourceExhaustedError
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.equations import Program
from anabranch.xla.heap import return_freed_memory

#: programs that need less are not worth asking the system about its memory
_UNCHECKED = 1 << 28
#: pairs of braces that XLA may write for one value without elements: these take two seconds and 150 MB
_MAX_BRACES = 1 << 24


class TracedValue(NamedTuple):
    """A value of a traced program: its shape and dtype, and the scopes that its equation was traced in."""

    shape: tuple[int, ...]
    dtype: Any
    scope: str


def check_traced(program: Program, operations: Sequence[StepNode]) -> None:
    """Checks the sizes of all values of a traced program.

    Args:
        program: the traced program (a `ClosedJaxpr`).
        operations: what was traced; an error names the one that the value belongs to.

    Raises:
        InvalidArgumentError: 64 bits cannot count the bytes of a value.
        ResourceExhaustedError: a value is so large that the program would not end, or has no elements but so many
            dimensions before the one of 0 that the compiler would not.
    """
    for value in chain(values_of(program), _results_of(program)):
        try:
            check_passable(value.shape, value.dtype)
            _check_braces(value.shape)
        except OpError as error:
            raise _named(error, value, operations) from None


def check_compiled(compiled: Compiled, program: Program, operations: Sequence[StepNode]) -> int:
    """Checks that the memory suffices for what a compiled program stores.

    Args:
        compiled: the program (a `jax.stages.Compiled`).
        program, operations: as in `check_traced`.

    Returns:
        the bytes of its temporaries; 0 where XLA does not tell.

    Raises:
        ResourceExhaustedError: it does not; the error names the program's largest value.
    """
    stats = compiled.memory_analysis()
    if stats is None:
        return 0
    # arguments are in memory already, and a result that takes the buffer of a donated one (an alias) needs none
    needed = stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
    temporaries = int(stats.temp_size_in_bytes)
    if needed < _UNCHECKED:
        return temporaries
    if 2 * needed > available_memory():
        # the heap may hold much in pieces that are too small for this program; the kernels of first calls leave such
        return_freed_memory(kept=0)
    if needed <= available_memory():
        return temporaries
    largest = max(values_of(program), key=lambda value: check_passable(value.shape, value.dtype))
    error = out_of_memory(largest.shape, str(largest.dtype), needed)
    raise _named(error, largest, operations)


def no_room(temporaries: int, op: StepNode, what: str) -> ResourceExhaustedError:
    """The error where the system does not give the process what a program (`what`) needs besides its arguments."""
    return ResourceExhaustedError(
        None,
        op,
        f"{what}: the device is out of memory; use smaller batches or fewer live tensors: OOM when allocating "
        f"{temporaries:,} bytes of temporaries, and {available_memory():,} are available; no variable has changed",
    )


def braces_of(shape: Sequence[int]) -> int:
    """What an array costs XLA for having no elements; 0 where it has some."""
    return math.prod(shape[: shape.index(0)]) if 0 in shape else 0


def _check_braces(shape: tuple[int, ...]) -> None:
    if braces_of(shape) > _MAX_BRACES:
        raise ResourceExhaustedError(
            None,
            None,
            f"a tensor of shape {[*shape]} has no elements, but the product of the dimensions before the 0 is "
            f"more than {_MAX_BRACES:,}, which XLA does not compile in reasonable time; make them smaller",
        )


def _results_of(program: Program) -> Iterator[TracedValue]:
    """What a traced program gives back, be it computed or an argument."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    for variable in jaxpr.outvars:
        kind: Any = variable.aval
        yield TracedValue(kind.shape, kind.dtype, "")


def values_of(program: Program, scope: str = "") -> Iterator[TracedValue]:
    """All values that the equations of a traced program compute, also those of its loops and branches."""
    jaxpr: Jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    for equation in jaxpr.eqns:
        inner_scope = f"{scope}/{equation.source_info.name_stack}"
        for variable in equation.outvars:
            kind: Any = variable.aval
            if hasattr(kind, "shape"):
                yield TracedValue(kind.shape, kind.dtype, inner_scope)
        for inner in inner_programs(equation.params.values()):
            yield from values_of(inner, inner_scope)


def inner_programs(parameters: Iterable[Any]) -> Iterator[Any]:
    """The programs among the parameters of an equation: the bodies of a loop, branches, functions."""
    for parameter in parameters:
        if isinstance(parameter, ClosedJaxpr | Jaxpr):
            yield parameter
        elif isinstance(parameter, tuple | list):
            yield from inner_programs(parameter)


def _named(error: OpError, value: TracedValue, operations: Sequence[StepNode]) -> OpError:
    """The error, with the operation that a value was traced for, and what that is called."""
    op = _operation_of(value.scope, operations) or operations[-1]
    error.attribute_to(op)
    error.add_context(f" (in {op.type} {op.name!r})")
    return error


def _operation_of(scope: str, operations: Iterable[StepNode]) -> StepNode | None:
    """The innermost operation whose scope (`lowering.trace_operations`) stands in a name stack."""
    text = f"/{scope}/"
    named = [op for op in _with_bodies(operations) if f"/{op.name}/" in text]
    # the one that ends last in the stack is the innermost; of two that end at one place the longer name is the whole
    return max(named, key=lambda op: (text.rfind(f"/{op.name}/") + len(op.name), len(op.name)), default=None)


def _with_bodies(operations: Iterable[StepNode]) -> Iterator[StepNode]:
    for op in operations:
        yield op
        for body in bodies_of(op):
            yield from _with_bodies(body.operations)
