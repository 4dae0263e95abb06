"""Sizes of a traced program: what XLA cannot count, and what the machine cannot hold, is refused before it gets there.

A program is looked at twice. When it has been traced, every value of every equation, also inside of a kernel, a loop or
a branch, must have a size that 64 bits can count: XLA ends the process otherwise. When it has been compiled, what it
stores must fit into the memory: what it only passes through, as a sum over a broadcast product does, need not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.stages import Compiled

from anabranch.core.sizes import available_memory, check_passable, out_of_memory
from anabranch.errors import OpError
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.equations import Program

#: programs that need less are not worth asking the system about its memory
_UNCHECKED = 1 << 28


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
        ResourceExhaustedError: a value is so large that the program would not end.
    """
    for value in values_of(program):
        try:
            check_passable(value.shape, value.dtype)
        except OpError as error:
            raise _named(error, value, operations) from None


def check_compiled(compiled: Compiled, program: Program, operations: Sequence[StepNode]) -> None:
    """Checks that the memory suffices for what a compiled program stores.

    Args:
        compiled: the program (a `jax.stages.Compiled`).
        program, operations: as in `check_traced`.

    Raises:
        ResourceExhaustedError: it does not; the error names the program's largest value.
    """
    stats = compiled.memory_analysis()
    if stats is None:
        return
    needed = stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
    if needed < _UNCHECKED or needed <= available_memory():
        return
    largest = max(values_of(program), key=lambda value: check_passable(value.shape, value.dtype))
    error = out_of_memory(largest.shape, str(largest.dtype), needed)
    raise _named(error, largest, operations)


def values_of(program: Program, scope: str = "") -> Iterator[TracedValue]:
    """All values that the equations of a traced program compute, also those of its loops and branches."""
    jaxpr: Jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    for equation in jaxpr.eqns:
        here = f"{scope}/{equation.source_info.name_stack}"
        for variable in equation.outvars:
            kind: Any = variable.aval
            if hasattr(kind, "shape"):
                yield TracedValue(kind.shape, kind.dtype, here)
        for inner in _inner_programs(equation.params.values()):
            yield from values_of(inner, here)


def _inner_programs(parameters: Iterable[Any]) -> Iterator[Any]:
    for parameter in parameters:
        if isinstance(parameter, ClosedJaxpr | Jaxpr):
            yield parameter
        elif isinstance(parameter, tuple | list):
            yield from _inner_programs(parameter)


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
    return max(named, key=lambda op: (text.rfind(f"/{op.name}/") + len(op.name), len(op.name)), default=None)


def _with_bodies(operations: Iterable[StepNode]) -> Iterator[StepNode]:
    for op in operations:
        yield op
        for body in bodies_of(op):
            yield from _with_bodies(body.operations)
