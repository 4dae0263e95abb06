"""Kernels of chains: operations each of which takes what the one before gives, and nothing else does, computed at once.

A convolution and its bias, a normalization and ReLU: what lies between them need not go to memory and come back. XLA
finds that out for itself; where kernels run one after the other, it is registered::

    @register_chain(("Conv2D", "BiasAdd"), device_type="CPU", applies=adds_channels)
    def _(inputs, ops): ...

The first input of each operation is the first result of the one before. The function takes NumPy's arrays, the inputs
of each operation (of all but the first without the first one), and the operations, for their attributes. It gives the
results of each operation, of all but the last without the first one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from anabranch.core.kernels import KernelCase

Types = tuple[str, ...]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class ChainKernel:
    """What computes a chain. See `register_chain`."""

    op_types: Types
    device_type: str
    applies: Callable[[Sequence[KernelCase]], bool]
    function: Callable[..., Sequence[Sequence[Any]]]
    main: int


@dataclass(slots=True)
class _Announced:
    """What is registered; and the modules that have yet to register something, with what they need."""

    kernels: dict[Types, list[ChainKernel]] = field(default_factory=dict)
    homes: dict[Types, dict[str, str]] = field(default_factory=dict)
    #: the last operation -> the chains that there may be, the longest first
    ending: dict[str, list[Types]] = field(default_factory=dict)


_registry: Final = _Announced()


def register_chain(
    op_types: Types, *, device_type: str, applies: Callable[[Sequence[KernelCase]], bool], main: int = 0
) -> Callable[[F], F]:
    """Registers the function that it decorates as a kernel of a chain, in the calls before a program is compiled.

    Args:
        op_types: the operations, in order.
        device_type: the type of the devices that can run it, such as "CPU".
        applies: whether it can compute the cases of all of them.
        main: which of them takes the time, for profiles.
    """

    def register(function: F) -> F:
        _announce(op_types)
        _registry.kernels.setdefault(op_types, []).append(ChainKernel(op_types, device_type, applies, function, main))
        return function

    return register


def load_chains_from(module: str, chains: Collection[Types], needs: str) -> None:
    """Names the module that registers kernels of these chains, to be imported when one is met.

    Args:
        needs: the module of what these kernels call; its `is_usable()` is asked before.
    """
    for op_types in chains:
        _announce(op_types)
        _registry.homes.setdefault(op_types, {})[module] = needs


def _announce(op_types: Types) -> None:
    known = _registry.ending.setdefault(op_types[-1], [])
    if op_types not in known:
        known.append(op_types)
        known.sort(key=len, reverse=True)


def chains_ending_with(op_type: str) -> Sequence[Types]:
    """The chains for which there may be kernels whose last operation is of this type, the longest first."""
    return _registry.ending.get(op_type, ())


def chain_kernel(cases: Sequence[KernelCase]) -> ChainKernel | None:
    """What computes a chain of these cases; None where nothing does."""
    op_types = tuple(case.op_type for case in cases)
    for module, needs in list(_registry.homes.get(op_types, {}).items()):
        if importlib.import_module(needs).is_usable():
            importlib.import_module(module)
            _registry.homes[op_types].pop(module, None)
    for kernel in _registry.kernels.get(op_types, ()):
        if kernel.device_type in cases[0].device_types and kernel.applies(cases):
            return kernel
    return None
