"""Running a traced program without compiling it: equation by equation, in NumPy.

XLA compiles a program for one set of shapes, which takes tenths of seconds. Where shapes change in every step (episodes
of a game, a sequence that grows while it is sampled) nearly every step would wait for a compilation that is used once
or twice. To interpret a small program costs a hundredth of that. `Executable.call` decides; see there.

Equations without a rule in NumPy are run by JAX one at a time. Rounding may differ in the last places from that of the
compiled program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from anabranch.xla.numpy_rules import RULES
from anabranch.xla.sizes import braces_of

#: equations that JAX has to run itself (each compiles on its own); with more the whole program is better compiled
MAX_FOREIGN = 6
#: elements computed, and multiplications in matrix products, up to which a program is small
MAX_ELEMENTS = 1 << 24
MAX_PRODUCTS = 1 << 30
#: what NumPy computes as JAX does
_KINDS = "fiub"
_INLINE = ("jaxpr", "call_jaxpr", "fun_jaxpr")

#: one equation: the function, the slots of its arguments, the slots of its results
_Instruction = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], bool]


class TooLargeError(Exception):
    """The program is one to compile."""


class Interpretation:
    """A program traced for certain shapes, ready to be interpreted. A call may be made by several threads at once.

    Args:
        program: a function of arrays that JAX can trace.
        args: arrays of the shapes and dtypes that it will be called with.
        device: where the results go; default: JAX's default device.

    Raises:
        TooLargeError: the program computes so much, or so much that NumPy has no rule for, that it should be compiled.
    """

    def __init__(self, program: Callable[..., Any], args: Sequence[Any], device: Any = None) -> None:
        self._device = device
        closed: Any = jax.make_jaxpr(program)(*args)
        self._constants: list[Any] = []
        self._slots: dict[Any, int] = {}
        self._size = 0
        self._elements = self._products = self._foreign = 0
        self._instructions: list[_Instruction] = []
        self._initial: list[tuple[int, Any]] = []
        self._inputs = [self._slot(v) for v in closed.jaxpr.invars]
        results = self._inline(closed, self._inputs)
        self._outputs = list(zip(results, [v.aval.dtype for v in closed.jaxpr.outvars], strict=True))

    # ------------------------------------------------------------------ preparing
    def _new_slot(self) -> int:
        self._size += 1
        return self._size - 1

    def _slot(self, variable: Any) -> int:
        if isinstance(variable, Literal):
            kind: Any = variable.aval
            return self._constant(np.asarray(variable.val, kind.dtype))
        found = self._slots.get(variable)
        if found is None:
            found = self._slots[variable] = self._new_slot()
        return found

    def _constant(self, value: Any) -> int:
        slot = self._new_slot()
        self._initial.append((slot, value))
        return slot

    def _inline(self, program: Any, arguments: Sequence[int]) -> list[int]:
        """Adds a program's equations, on these slots; returns the slots of its results."""
        closed = isinstance(program, ClosedJaxpr)
        jaxpr: Jaxpr = program.jaxpr if closed else program
        outer = self._slots
        self._slots = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, value in zip(jaxpr.constvars, program.consts if closed else (), strict=True):
            self._slots[variable] = self._constant(_on_host(value))
        for equation in jaxpr.eqns:
            self._add(equation)
        results = [self._slot(v) for v in jaxpr.outvars]
        self._slots = outer
        return results

    def _add(self, equation: Any) -> None:
        name, arguments = equation.primitive.name, [self._slot(v) for v in equation.invars]
        inner = _inner_program(equation)
        if inner is not None:
            self._slots.update(zip(equation.outvars, self._inline(inner, arguments), strict=True))
            return
        self._measure(equation)
        if name == "iota":
            self._slots[equation.outvars[0]] = self._constant(_iota(equation))
            return
        function = RULES[name](equation) if name in RULES and _is_plain(equation) else None
        outputs = tuple(self._slot(v) for v in equation.outvars)
        several = equation.primitive.multiple_results or len(outputs) > 1
        if function is None:
            self._foreign += 1
            if self._foreign > MAX_FOREIGN:
                raise TooLargeError
            function = _by_jax(equation)
        self._instructions.append((function, tuple(arguments), outputs, several))

    def _measure(self, equation: Any) -> None:
        # what is foreign may meet XLA, which is slow with some arrays that have no elements
        self._elements += sum(max(math.prod(v.aval.shape), braces_of(v.aval.shape)) for v in equation.outvars)
        if equation.primitive.name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[d] for d in summed)
            self._products += inner * math.prod(equation.outvars[0].aval.shape)
        if self._elements > MAX_ELEMENTS or self._products > MAX_PRODUCTS:
            raise TooLargeError

    # ------------------------------------------------------------------ running
    def __call__(self, *args: Any) -> list[Any]:
        """The program's results, as device arrays that share memory with nothing."""
        values: list[Any] = [None] * self._size
        for slot, value in self._initial:
            values[slot] = value
        for slot, argument in zip(self._inputs, args, strict=True):
            values[slot] = _on_host(argument)
        with np.errstate(all="ignore"):
            for function, arguments, outputs, several in self._instructions:
                result = function(*[values[i] for i in arguments])
                if several:
                    for slot, value in zip(outputs, result, strict=True):
                        values[slot] = value
                else:
                    values[outputs[0]] = result
        return [_on_device(values[slot], dtype, self._device) for slot, dtype in self._outputs]


def _is_plain(equation: Any) -> bool:
    """Whether all values are of kinds that NumPy has (no keys, no half precision)."""
    variables = [*equation.invars, *equation.outvars]
    dtypes = [v.aval.dtype for v in variables]
    return all(isinstance(d, np.dtype) and d.kind in _KINDS and d != np.float16 for d in dtypes)


def _inner_program(equation: Any) -> Any:
    """The program that an equation stands for, where it is nothing but a call."""
    if equation.primitive.name not in (
        "jit",
        "pjit",
        "closed_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "checkpoint",
    ):
        return None
    return next((equation.params[name] for name in _INLINE if name in equation.params), None)


def _iota(equation: Any) -> Any:
    shape, dimension = equation.params["shape"], equation.params["dimension"]
    line = np.arange(shape[dimension], dtype=equation.params["dtype"])
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


def _by_jax(equation: Any) -> Callable[..., Any]:
    """The equation run by JAX, with results on the host."""
    primitive = equation.primitive
    parameters = primitive.get_bind_params(equation.params)

    def run(*args: Any) -> Any:
        result = primitive.bind(*[jax.numpy.asarray(a) for a in args], **parameters)
        return [_on_host(r) for r in result] if isinstance(result, list | tuple) else _on_host(result)

    return run


def _on_host(value: Any) -> Any:
    """The value as a NumPy array; random keys stay what they are."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is not None and not isinstance(dtype, np.dtype) else np.asarray(value)


def _on_device(value: Any, dtype: Any, device: Any) -> Any:
    """A device array with memory of its own: what JAX is given here is a copy that nobody else has."""
    return jax.device_put(np.array(value, dtype=dtype, copy=True), device)
