"""The kernels of an operation: its own, and alternates for types of devices, with what each is expected to cost (§3.3).

An operation's own kernel stands beside its signature in `ops/`, states what the operation computes, and runs on every
device. An *alternate* computes the same in another way. It is registered for one operation and one type of device, for
some dtypes or whatever a predicate says, with an estimate of its cost::

    @register_kernel("Conv2D", "winograd", device_type="CPU", types={"T": [float32]}, applies=has_3x3_filter, cost=0.5)
    def _(input, filter, *, ctx): ...

The function takes what the operation's own kernel takes: the inputs, and by keyword attributes, `ctx`, `xp`, `rng`. It
may rely on what `applies` found out.

A cost is relative: the share of the time of the operation's own kernel (whose cost is 1) that the alternate is expected
to take. Which kernel is taken, `xla.kernel_choice` decides (docs/decisions/0033-kernel-registry.md).
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from anabranch.core.device import DeviceSpec
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.op_def import Rule
from anabranch.core.registry import find_op_def

#: what an operation's own kernel is called among the candidates, and what it costs
OWN_KERNEL: Final = "own"
OWN_COST: Final = 1.0

F = TypeVar("F", bound=Callable[..., Any])


class KernelInput(NamedTuple):
    """What is known of an input when a kernel is chosen.

    Attributes:
        dtype: NumPy's.
        value: of a static one.
        repeated: whether it is the same in all iterations of the loop that the operation is in.
    """

    shape: tuple[int, ...]
    dtype: Any
    value: Any = None
    repeated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class KernelCase:
    """What a kernel is chosen for: an operation on inputs of known shapes, on a type of device.

    Attributes:
        inputs: flat.
        device_types: whose kernels may be taken, the most specific first.
    """

    op_type: str
    attrs: Mapping[str, Any]
    inputs: tuple[KernelInput, ...]
    device_types: tuple[str, ...]


Predicate = Callable[[KernelCase], bool]
Estimate = Callable[[KernelCase], float]
#: makes of an input what a kernel takes in its place
Preparation = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class AlternateKernel:
    """Another way to compute what an operation computes. See `register_kernel`."""

    op_type: str
    name: str
    device_type: str
    rule: Rule
    types: Mapping[str, frozenset[DType]]
    applies: Predicate
    cost: Estimate
    rough: Predicate
    offered: Predicate
    calls_back: bool = False
    takes_numpy: bool = False
    prepares: Mapping[int, Preparation] = field(default_factory=dict)
    settled: bool = False
    at_once: bool = False

    def accepts(self, attrs: Mapping[str, Any]) -> bool:
        """Whether this kernel is for operations with these attributes: of these dtypes."""
        return _are_among(attrs, self.types)

    def fits(self, case: KernelCase) -> bool:
        """Whether this kernel can compute the case, if it is offered, and what it costs can be asked."""
        return (
            self.accepts(case.attrs)
            and all(case.inputs[position].repeated for position in self.prepares)
            and self.applies(case)
        )

    def takes(self, case: KernelCase) -> bool:
        """Whether this kernel can compute the case."""
        return self.fits(case) and self.offered(case)

    def estimate(self, case: KernelCase) -> float:
        """What share of the time of the operation's own kernel it is expected to take.

        Raises:
            ValueError: the estimate is negative, or no number.
        """
        cost = self.cost(case)
        if math.isnan(cost) or cost < 0:
            raise ValueError(
                f"the kernel {self.name!r} of {self.op_type} estimates its cost as {cost}: give a share >= 0"
            )
        return cost


class KernelCandidate(NamedTuple):
    """A kernel that can compute a case, and its estimated cost, roughly or not; no kernel: the operation's own."""

    name: str
    cost: float
    kernel: AlternateKernel | None = None
    rough: bool = False


@dataclass(frozen=True, slots=True)
class _Home:
    """A module that has yet to register kernels; see `load_kernels_from`."""

    module: str
    types: Mapping[str, frozenset[DType]]
    needs: str | None
    for_loops: bool
    settled: bool
    at_once: bool

    def has_some(self, attrs: Mapping[str, Any]) -> bool:
        """Whether it may have a kernel for an operation with these attributes."""
        if not _are_among(attrs, self.types):
            return False
        return self.needs is None or bool(importlib.import_module(self.needs).is_usable())


def _are_among(attrs: Mapping[str, Any], types: Mapping[str, frozenset[DType]]) -> bool:
    """Whether the type attributes are allowed ones; an operation need not have all that are named."""
    return all(as_dtype(attrs[name]) in allowed for name, allowed in types.items() if name in attrs)


@dataclass(slots=True)
class _Registry:
    """What is registered, in order, by operation; and the modules that have yet to register something."""

    kernels: dict[str, tuple[AlternateKernel, ...]] = field(default_factory=dict)
    modules: dict[str, tuple[_Home, ...]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_registry: Final = _Registry()


def register_kernel(
    op_type: str,
    name: str,
    *,
    device_type: str,
    types: Mapping[str, Collection[Any]] | None = None,
    applies: Predicate = lambda case: True,
    cost: float | Estimate = 0.5,
    rough: bool | Predicate = False,
    offered: Predicate = lambda case: True,
    calls_back: bool = False,
    takes_numpy: bool = False,
    prepares: Mapping[int, Preparation] | None = None,
    settled: bool = False,
    at_once: bool = False,
) -> Callable[[F], F]:
    """Registers the function that it decorates as another kernel of an operation, for what is compiled from now on.

    Args:
        op_type: the name of the operation type.
        name: what the kernel is called in explanations; one of a kind for this operation and type of device.
        device_type: the type of the devices that can run it, such as "CPU".
        types: of type attributes of the operation, the dtypes that it takes; what is not named may be any.
        applies: whether it can compute a `KernelCase`. It must not look at anything else, nor take long.
        cost: what share of the time of the operation's own kernel it is expected to take: a number, or a function of
            the case.
        rough: the estimate says little, as for code of other libraries on processors of many kinds: where kernels are
            measured at all, this one is. Always, or for the cases that a predicate names.
        offered: whether what it calls has it. It is asked last, of a case that `applies` has taken, and may take
            longer: where kernels run at once, it is asked of the cheapest, and of the next if that is not offered.
        calls_back: its program calls Python functions; such programs run on a thread that no signal reaches.
        takes_numpy: given NumPy's arrays, it computes at once: it serves the calls before a program is compiled, too.
        prepares: position of an input (flat) -> what makes of it what the function takes in its place. That is done
            once before a loop: the kernel serves operations in loops, where these inputs are always the same.
        settled: estimates decide, as a rule: a program with such operations takes no longer to compile for them.
        at_once: it takes NumPy's arrays alone, and serves the calls before a program is compiled; it is in no program.

    Raises:
        ValueError: there is no such operation or attribute, or the name is taken; the message says which.
    """
    DeviceSpec.from_string(f"/device:{device_type}:0")
    op_def = find_op_def(op_type)
    if op_def is None or op_def.compiled_rule is None:
        raise ValueError(f"no compiled operation is called {op_type!r}; a kernel is another way to compute one")
    accepted = {attr: frozenset(map(as_dtype, allowed)) for attr, allowed in (types or {}).items()}
    unknown = [attr for attr in accepted if attr not in op_def.attrs or op_def.attrs[attr].kind != "type"]
    estimate = cost if callable(cost) else lambda case: float(cost)
    is_rough = rough if callable(rough) else lambda case: bool(rough)

    def register(function: F) -> F:
        rule = Rule.of(function)
        wrong = [*unknown, *(attr for attr in rule.attr_names() if attr not in op_def.attrs)]
        if wrong:
            raise ValueError(
                f"the kernel {name!r} names {wrong}, which {op_type} does not have among its attributes (for `types`: "
                f"among those of kind type); it has {sorted(op_def.attrs)}"
            )
        flags = is_rough, offered, calls_back, takes_numpy or at_once, dict(prepares or {}), settled, at_once
        _add(AlternateKernel(op_type, name, device_type, rule, accepted, applies, estimate, *flags))
        return function

    return register


def _add(kernel: AlternateKernel) -> None:
    with _registry.lock:
        registered = _registry.kernels.get(kernel.op_type, ())
        taken = any((one.name, one.device_type) == (kernel.name, kernel.device_type) for one in registered)
        if taken or kernel.name == OWN_KERNEL:
            raise ValueError(
                f"{kernel.op_type} already has a kernel {kernel.name!r} for {kernel.device_type}; choose another name"
            )
        _registry.kernels[kernel.op_type] = (*registered, kernel)


def unregister_kernel(op_type: str, name: str, device_type: str) -> None:
    """Removes a kernel; programs that are compiled already keep it.

    Raises:
        KeyError: no such kernel is registered.
    """
    with _registry.lock:
        registered = _registry.kernels.get(op_type, ())
        left = tuple(one for one in registered if (one.name, one.device_type) != (name, device_type))
        if len(left) == len(registered):
            raise KeyError(f"{op_type} has no kernel {name!r} for {device_type}")
        _registry.kernels[op_type] = left


def load_kernels_from(
    module: str,
    op_types: Collection[str],
    types: Mapping[str, Collection[Any]] | None = None,
    needs: str | None = None,
    for_loops: bool = False,
    settled: bool = False,
    at_once: bool = False,
) -> None:
    """Names the module that registers kernels of these operations, to be imported when one is first compiled.

    Args:
        types: of type attributes, the dtypes for which it has kernels; what is not named may be any.
        needs: the module of what these kernels call; its `is_usable()` is asked when an operation is to be compiled.
        for_loops: all of them serve operations in loops (`prepares` of `register_kernel`).
        settled, at_once: all of them are, see there.
    """
    accepted = {attr: frozenset(map(as_dtype, allowed)) for attr, allowed in (types or {}).items()}
    home = _Home(module, accepted, needs, for_loops, settled, at_once)
    with _registry.lock:
        for op_type in op_types:
            _registry.modules[op_type] = (*_registry.modules.get(op_type, ()), home)


def has_alternates(op_type: str, attrs: Mapping[str, Any], settled: bool = True, at_once: bool = False) -> bool:
    """Whether an operation with these attributes may have more than its own kernel.

    Kernels for loops do not count. Loads no kernels.

    Args:
        settled, at_once: whether those count that are (`register_kernel`).
    """
    registered, homes = _registry.kernels.get(op_type, ()), _registry.modules.get(op_type, ())
    if not registered and not homes:
        return False
    counted = [one for one in registered if not one.prepares and settled >= one.settled and at_once >= one.at_once]
    if any(_are_among(attrs, one.types) for one in counted):
        return True
    unread = [home for home in homes if not home.for_loops and settled >= home.settled and at_once >= home.at_once]
    return any(home.has_some(attrs) for home in unread)


def alternates(op_type: str, attrs: Mapping[str, Any] | None = None) -> Sequence[AlternateKernel]:
    """The registered kernels of an operation, in the order of registration.

    Args:
        attrs: the operation's; modules that have nothing for one with these attributes are not imported. None: all are.
    """
    homes = _registry.modules.get(op_type, ())
    modules = {home.module for home in homes if attrs is None or home.has_some(attrs)}
    for module in sorted(modules):
        importlib.import_module(module)  # without the lock, which whoever else imports it may be waiting for
    if modules:
        with _registry.lock:
            every = _registry.modules.items()
            left = {name: [home for home in homes if home.module not in modules] for name, homes in every}
            _registry.modules = {name: tuple(homes) for name, homes in left.items() if homes}
    return _registry.kernels.get(op_type, ())


def candidates(case: KernelCase) -> list[KernelCandidate]:
    """The kernels that a program can compute a case by, the cheapest first by estimate; among them always its own.

    Of equal cost, the own one comes first, then those of the more specific type of device, then those registered
    earlier. Two kernels of one name, for two types of device, are one: the more specific.
    """
    chosen: dict[str, KernelCandidate] = {}
    registered = [kernel for kernel in alternates(case.op_type, case.attrs) if not kernel.at_once]
    for device_type in case.device_types:
        for kernel in registered:
            if kernel.device_type == device_type and kernel.name not in chosen and kernel.takes(case):
                chosen[kernel.name] = KernelCandidate(kernel.name, kernel.estimate(case), kernel, kernel.rough(case))
    return sorted([KernelCandidate(OWN_KERNEL, OWN_COST), *chosen.values()], key=lambda one: one.cost)


def immediate(case: KernelCase) -> AlternateKernel | None:
    """The cheapest of the alternates that compute a case at once, of NumPy's arrays; None: there is none."""
    served = [kernel for kernel in alternates(case.op_type, case.attrs) if kernel.takes_numpy]
    fitting = [kernel for kernel in served if kernel.device_type in case.device_types and kernel.fits(case)]
    cheapest = sorted(fitting, key=lambda kernel: kernel.estimate(case))
    return next((kernel for kernel in cheapest if kernel.offered(case)), None)
