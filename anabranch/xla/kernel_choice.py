"""Choosing among the kernels of an operation: by estimate, and by measurement where estimates leave it open.

`core.kernels` knows the candidates. A choice is made once for each *key* (operation, attributes, shapes, dtypes, static
values, device, versions) and kept by the process; what was measured is kept on disk (`xla.kernel_costs`). What decides,
and why, is told in docs/decisions/0033-kernel-registry.md.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jax
import jaxlib.version
import numpy as np

import anabranch.kernels  # announces its kernels  # noqa: F401
from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import DType
from anabranch.core.kernels import KernelCandidate, KernelCase, candidates
from anabranch.core.processor import core_count
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.platform.version import VERSION
from anabranch.xla.compile_cache import cache_directory
from anabranch.xla.kernel_costs import CostMemory
from anabranch.xla.kernel_timing import Run, is_mostly_quicker, seconds_in_turns

#: environment variable that says how kernels are chosen: one of `MODES`
KERNELS_VARIABLE: Final = "ANABRANCH_KERNELS"
MODES: Final = ("auto", "estimate", "measure")
#: variables of TensorFlow by which programs ask for results that repeat, and the values that do
_REPEATABLE: Final = {
    "TF_DETERMINISTIC_OPS": ("1", "true"),
    "TF_CUDNN_DETERMINISTIC": ("1", "true"),
    "TF_CUDNN_USE_AUTOTUNE": ("0", "false"),
}
#: two estimates within this factor of each other leave it open which kernel is quicker
OPEN_FACTOR: Final = 1.25
#: and a rough one and another within this one
ROUGH_FACTOR: Final = 4.0
#: what each may hence be wrong by
_DOUBT: Final = math.sqrt(OPEN_FACTOR)
_ROUGH_DOUBT: Final = ROUGH_FACTOR / _DOUBT
#: what was measured to take less than this share of the favourite's time is better
_BETTER_SHARE: Final = 0.9
#: when a process has spent so much on measurements that nobody asked for, it begins no other (s)
BUDGET_SECONDS: Final = 2.0
#: such measurements are made if the inputs have at least, and at most, so many bytes
_LEAST_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 1 << 28
_SPENT: Final = "the time for measurements is used up"
#: choices that a process keeps
MAX_CHOICES: Final = 4096


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """What an island is compiled for.

    Attributes:
        device_types: whose kernels may be taken, the most specific first.
        device: the `jax.Device`; None: JAX's default device.
    """

    device_types: tuple[str, ...]
    device: jax.Device | None = None


def target_of(device: jax.Device | None, device_type: str = "") -> KernelTarget:
    """The target of a `jax.Device` (None: the default one) that a session calls a device of that type."""
    platform_type = (jax.default_backend() if device is None else str(device.platform)).upper()
    named = (device_type,) if device_type and device_type != platform_type else ()
    return KernelTarget((*named, platform_type), device)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel that was chosen.

    Attributes:
        why: what decided.
        candidates: those there were, the cheapest by estimate first.
        measured: seconds, by name, of those that were measured.
    """

    op_type: str
    chosen: KernelCandidate
    why: str
    candidates: tuple[KernelCandidate, ...]
    measured: Mapping[str, float]


#: makes of a candidate what runs it, and measures that; raises whatever the kernel raises
Measure = Callable[[KernelCandidate], Run]


class KernelChooser:
    """Chooses kernels, and keeps the choices of a process. Thread-safe; one thread measures at a time.

    Args:
        memory: costs that were measured earlier; asked for at each choice, None: nothing is kept.
        mode: one of `MODES`; asked for at each choice.
        clock: counts what measurements take (s).
        budget: what measurements may take in all, in the mode "auto" (s).
    """

    def __init__(
        self,
        memory: Callable[[], CostMemory | None],
        mode: Callable[[], str],
        clock: Callable[[], float] = time.perf_counter,
        budget: float = BUDGET_SECONDS,
    ) -> None:
        self._memory = memory
        self._mode = mode
        self._clock = clock
        self._left = budget
        self._choices: dict[tuple[str, ...], KernelChoice] = {}
        self._lock = threading.RLock()

    def choose(self, case: KernelCase, device: jax.Device | None, measure: Measure | None) -> KernelChoice | None:
        """The kernel for a case; None where there is but the operation's own.

        Args:
            device: the `jax.Device`; None: JAX's default device.
            measure: None: this operation cannot be measured alone.
        """
        offered = candidates(case)
        if len(offered) == 1:
            return None
        key = case_key(case, device)
        kept = (key, *(one.name for one in offered))
        # without the lock, since a choice that was made does not change; another thread may measure for seconds under
        # it
        choice = self._choices.get(kept)
        if choice is None:
            with self._lock:
                choice = self._choices.get(kept)
                if choice is None:
                    if len(self._choices) >= MAX_CHOICES:
                        del self._choices[next(iter(self._choices))]
                    choice = self._choices[kept] = self._decide(case, key, offered, measure)
        return choice

    def forget(self) -> None:
        """Forgets all choices, so that they are made anew."""
        with self._lock:
            self._choices.clear()

    def charged(self) -> contextlib.AbstractContextManager[None]:
        """Takes the time of what measurements would have to prepare from what they may take."""
        return self._charged(limited=self._mode() == "auto")

    def _decide(
        self, case: KernelCase, key: str, offered: Sequence[KernelCandidate], measure: Measure | None
    ) -> KernelChoice:
        mode = self._mode()
        if mode == "estimate":
            return _by_estimate(case, offered, {}, "by estimate alone, as asked")
        memory = self._memory()
        known = {} if memory is None else memory.load(key)
        rivals = offered if mode == "measure" else _rivals(offered)
        missing = [one for one in rivals if one.name not in known]
        if not missing and sum(one.name in known for one in offered) > 1:
            return _by_measurement(case, offered, known, "measured earlier")
        if len(rivals) == 1:
            return _by_estimate(case, offered, known, "the estimates are clear")
        refusal = "" if mode == "measure" else self._refusal(case)
        if measure is None or refusal:
            return _by_estimate(case, offered, known, f"by estimate: {refusal or 'it cannot be measured alone'}")
        turns = self._measure(missing, measure, limited=mode == "auto")
        measured = {name: min(seconds, default=math.inf) for name, seconds in turns.items()}
        finite = {name: seconds for name, seconds in measured.items() if math.isfinite(seconds)}
        if len(measured) < len(missing):
            return _by_estimate(case, offered, {**known, **finite}, f"by estimate: {_SPENT}")
        every = {**known, **finite}
        choice = _by_measurement(case, offered, every, "measured", turns)
        # what is kept decides by the least times alone, for good: it has to say the same
        says = _by_measurement(case, offered, every, "measured")
        if memory is not None and finite and says.chosen is choice.chosen and not _doubtful(offered, every):
            memory.store(key, finite)
        return choice

    def _refusal(self, case: KernelCase) -> str:
        """Why a case is not measured unless somebody asks for it; empty: it is."""
        size = sum(math.prod(described.shape) * described.dtype.itemsize for described in case.inputs)
        if size < _LEAST_BYTES:
            return "it is too small to matter"
        if size > _MOST_BYTES:
            return "it is too large to be measured"
        return "" if self._left > 0 else _SPENT

    def _measure(self, rivals: Sequence[KernelCandidate], measure: Measure, limited: bool) -> dict[str, list[float]]:
        """What the rivals take in each turn (s); nothing where one fails. Ends early when the budget is spent."""
        runs: dict[str, Run] = {}
        turns: dict[str, list[float]] = {}
        for rival in rivals:
            if limited and self._left <= 0:
                return turns
            turns[rival.name] = []
            with contextlib.suppress(Exception), self._charged(limited):  # what fails alone is not chosen
                runs[rival.name] = measure(rival)
        with self._charged(limited):
            found = seconds_in_turns(runs)
        if _doubtful(rivals, {name: min(seconds) for name, seconds in found.items()}):
            # somebody else may have had the cores meanwhile; what one of two measurements says is worth more then
            with self._charged(limited):
                again = seconds_in_turns({name: runs[name] for name in found})
            found = {name: found[name] + seconds for name, seconds in again.items()}
        return turns | found

    @contextlib.contextmanager
    def _charged(self, limited: bool) -> Iterator[None]:
        """Takes the time of what is done in it from what measurements may take."""
        start = self._clock()
        try:
            yield
        finally:
            if limited:
                self._left -= self._clock() - start


def _rivals(offered: Sequence[KernelCandidate]) -> list[KernelCandidate]:
    """Those that may be the quickest: the least that they may cost is no more than any other costs at most."""
    most = min(one.cost * _doubt(one) for one in offered)
    return [one for one in offered if one.cost / _doubt(one) <= most]


def _doubtful(offered: Sequence[KernelCandidate], seconds: Mapping[str, float]) -> bool:
    """Whether what was measured is further from what was estimated than estimates are taken to be wrong by.

    That is not kept on disk, where it would decide for good: it is measured again by the next process.
    """
    taken = [(one, seconds[one.name]) for one in offered if math.isfinite(seconds.get(one.name, math.inf))]
    # what a cost of 1 takes, as those say whose estimates are good
    unit = min((found / one.cost for one, found in taken if not one.rough and one.cost), default=math.inf)
    if not math.isfinite(unit):
        return False
    shares = [(one.cost, found / unit) for one, found in taken if one.rough]
    return any(share * ROUGH_FACTOR < cost or share > cost * ROUGH_FACTOR for cost, share in shares)


def _doubt(one: KernelCandidate) -> float:
    """What an estimate may be wrong by, as a factor."""
    return _ROUGH_DOUBT if one.rough else _DOUBT


def _by_estimate(
    case: KernelCase, offered: Sequence[KernelCandidate], measured: Mapping[str, float], why: str
) -> KernelChoice:
    return KernelChoice(case.op_type, offered[0], why, tuple(offered), measured)


def _by_measurement(
    case: KernelCase,
    offered: Sequence[KernelCandidate],
    measured: Mapping[str, float],
    how: str,
    turns: Mapping[str, Sequence[float]] | None = None,
) -> KernelChoice:
    """The quickest, unless the favourite by estimate is nearly as quick, or was the quicker one in some turns."""
    shown = {one.name: measured[one.name] for one in offered if math.isfinite(measured.get(one.name, math.inf))}
    if not shown:
        return _by_estimate(case, offered, {}, "by estimate: every candidate failed when it was measured alone")
    best = min((one for one in offered if one.name in shown), key=lambda one: shown[one.name])
    favourite = next(one for one in offered if one.name in shown)
    # measurements vary: a small lead would make the choice differ from process to process
    clearly = shown[best.name] < _BETTER_SHARE * shown[favourite.name]
    if clearly and turns is not None and best.name in turns and favourite.name in turns:
        clearly = is_mostly_quicker(turns[best.name], turns[favourite.name])
    if clearly or best is favourite:
        return KernelChoice(case.op_type, best, f"{how}: the quickest", tuple(offered), shown)
    return KernelChoice(case.op_type, favourite, f"{how}: no other is clearly quicker", tuple(offered), shown)


# ---------------------------------------------------------------------- keys
def case_key(case: KernelCase, device: jax.Device | None = None) -> str:
    """What costs are remembered under, as JSON: everything that they depend on, and the versions of what made them."""
    return json.dumps(
        {
            "operation": case.op_type,
            "attributes": {name: _plain(value) for name, value in case.attrs.items() if not name.startswith("_")},
            "inputs": [
                [
                    str(described.dtype),
                    list(described.shape),
                    None if described.value is None else np.asarray(described.value).tolist(),
                    *(["repeated"] if described.repeated else []),
                ]
                for described in case.inputs
            ],
            "device": [*case.device_types, device_kind(device)],
            "versions": {"anabranch": VERSION, "jax": jax.__version__, "jaxlib": jaxlib.version.__version__},
        },
        sort_keys=True,
    )


def _plain(value: AttributeValue) -> object:
    """The value of an attribute as JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.name if isinstance(value, DType) else repr(value)


def device_kind(device: jax.Device | None = None) -> str:
    """The model of a device: of the processor, with the number of cores that this process may use."""
    actual = jax.local_devices()[0] if device is None else device
    return _processor() if actual.platform == "cpu" else str(actual.device_kind)


@functools.cache
def _processor() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else model}, {core_count()} cores"


# ---------------------------------------------------------------------- the process's
def kernel_mode() -> str:
    """How kernels are chosen, as the environment says.

    Raises:
        InvalidArgumentError: it says something else than one of `MODES`.
    """
    asked = os.environ.get(KERNELS_VARIABLE, "")
    if asked and asked not in MODES:
        raise InvalidArgumentError(None, None, f"{KERNELS_VARIABLE} must be one of {', '.join(MODES)}, got {asked!r}")
    repeatable = any(os.environ.get(name, "").lower() in values for name, values in _REPEATABLE.items())
    return asked or ("estimate" if repeatable else "auto")


def cost_memory() -> CostMemory | None:
    """The costs kept on disk; None where the compile cache is turned off."""
    directory = cache_directory()
    return None if directory is None else CostMemory(directory.with_name("kernels"))


chooser: Final = KernelChooser(cost_memory, kernel_mode)
