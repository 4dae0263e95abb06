"""Whether a program is quicker on one thread than on XLA's, from what its operations compute (decision 0110)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from jax.extend.core import ClosedJaxpr, Jaxpr

from anabranch.kernels.pool_updates import UNDIVIDED_TARGETS
from anabranch.xla.equations import Equation, Program
from anabranch.xla.sizes import inner_programs

#: what one thread takes for a multiplication or an addition of a product, or for a byte of another result (s)
_PER_FLOP, _PER_BYTE = 1e-11, 2.5e-10
#: what it takes to wake a thread and to wait for it (s)
_WAKING: Final = 7.5e-5
#: XLA does not divide what takes less (s)
_UNDIVIDED_PRODUCT, _UNDIVIDED = 1e-5, 6e-5
#: of how many operations that are no products XLA makes one loop, about
_FUSED: Final = 4
#: how often a loop runs of which nobody knows
_ITERATIONS: Final = 10
_LOOPS = frozenset({"scan", "while"})
#: operations that XLA makes part of those that take their results, or that only give values other shapes
_FREE = frozenset({"broadcast_in_dim", "iota", "reshape", "squeeze", "expand_dims", "stop_gradient"})
#: operations that take as long as their arguments are large
_READING = ("reduce", "arg", "cum", "sort")


def gains(program: Program, threads: int) -> bool | None:
    """Whether a traced program is quicker on one thread: what its long operations would gain by others is less than
    what its short ones lose, for which threads are woken as well.

    Args:
        program: the traced program.
        threads: how many XLA has.

    Returns:
        None where it has no products and nothing else that is long: it is as quick on either.
    """
    lost = [*_lost(program, 1 / threads)]
    seconds = sum(seconds for seconds, _ in lost)
    return None if seconds >= 0 and not any(is_product for _, is_product in lost) else seconds > 0


def multiplied_types(program: Program) -> set[str]:
    """The types of numbers of which a traced program multiplies matrices."""
    jaxpr: Jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    found: set[str] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.update(str(getattr(variable.aval, "dtype", "")) for variable in equation.invars)
        for one in inner_programs(equation.params.values()):
            found |= multiplied_types(one)
    return found


def _lost(program: Program, share: float, times: int = 1) -> Iterator[tuple[float, bool]]:
    """What operations of a traced program lose by threads (s; negative: they gain), and which are products.

    Args:
        share: what part of an operation each thread computes.
        times: how often the program runs.
    """
    jaxpr: Jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inner = () if name.startswith((*_READING, "scatter")) else tuple(inner_programs(equation.params.values()))
        for one in inner:
            often = equation.params.get("length", _ITERATIONS) if name in _LOOPS else 1
            yield from _lost(one, share, times * often)
        if inner or name in _FREE:
            continue
        flops = _flops(name, equation)
        seconds = _moved(name, equation) * _PER_BYTE if flops is None else flops * _PER_FLOP
        if seconds >= (_UNDIVIDED if flops is None else _UNDIVIDED_PRODUCT):
            lost = times * (_WAKING - seconds * (1 - share))
            yield (lost / _FUSED, False) if flops is None else (lost, True)


def _flops(name: str, equation: Equation) -> float | None:
    """What a product adds and multiplies; None of other operations.

    What runs functions of libraries, or of Python's, which have threads of their own, counts as an infinite product.
    """
    if "callback" in name or (name == "ffi_call" and equation.params["target_name"] not in UNDIVIDED_TARGETS):
        return math.inf
    if name == "dot_general":
        (summed, _), _ = equation.params["dimension_numbers"]
        of_each = math.prod(equation.invars[0].aval.shape[i] for i in summed)
    elif name == "conv_general_dilated":
        kernel: tuple[int, ...] = equation.invars[1].aval.shape
        of_each = math.prod(kernel) // max(kernel[equation.params["dimension_numbers"].rhs_spec[0]], 1)
    else:
        return None
    return 2.0 * float(math.prod(equation.outvars[0].aval.shape) * of_each)


def _moved(name: str, equation: Equation) -> int:
    """As how many bytes an operation counts that is no product: its results', or what it reads or changes."""
    if name.startswith("scatter"):
        moved = equation.invars[2:]
    elif name == "dynamic_update_slice":
        moved = equation.invars[1:2]
    else:
        moved = equation.invars if name.startswith(_READING) else equation.outvars
    return sum(_bytes(variable.aval) for variable in moved)


def _bytes(kind: object) -> int:
    """The size of a value of a traced program; 0 of what is no array."""
    shape: Any = getattr(kind, "shape", None)
    return 0 if shape is None else math.prod(shape) * int(getattr(getattr(kind, "dtype", None), "itemsize", 4))
