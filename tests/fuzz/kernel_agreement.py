"""Whether all kernels of an operation give what its own kernel gives, for one call of it.

Every kernel that is offered runs, chosen or not: in a compiled program, and where it takes NumPy's arrays, at once.
All memory that is taken meanwhile holds what is no number; then it runs again in memory that holds large numbers, and
from two threads at a time. All results of a kernel have to be the same bits, and those of all kernels the own kernel's
of float64, or of the same type where it has none, but for rounding.
"""

from __future__ import annotations

import ctypes
import gc
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from anabranch.core.kernel_context import KernelContext
from anabranch.core.kernels import OWN_KERNEL, AlternateKernel, alternates, candidates
from anabranch.core.op_def import Rule
from anabranch.graph.kernel_binding import BoundKernel, flatten_outputs
from anabranch.kernels import onednn
from anabranch.xla.jax_settings import in_wide_types
from tests.fuzz.kernel_calls import Array, Call, numbers

Run = Callable[[], list[Array]]

#: seconds after which a thread does not come any more
_WAITING: Final = 3000.0
#: how far apart two numbers of a type next to each other are, as a share of them
_STEPS: Final[Mapping[str, float]] = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
#: Steps that a number may be from the one that float64 gives: half of one is rounding to the type; another half where
#: it is rounded from float32, and a kernel may round a product or a factor on the way.
_STEPS_OFF: Final = 2.0
#: Beside that, in steps of the type that sums are computed in (float32, for all but float64) at the largest number of
#: the result: numbers that cancel out are as far off as the sum of their absolutes says. Sums of n numbers one after
#: the other are off by sqrt(n) half steps or so; some kernels add in blocks, which is less.
_SUM_STEPS: Final = 8.0
#: A share of it where tiles are transformed on the way: factors of up to 8 along each of two axes, twice
#: (`kernels.winograd`: about 5e-6 of the largest, which is 40 steps).
_TRANSFORMED_STEPS: Final = 160.0
#: Operations whose sums of bfloat16 numbers may be rounded on the way: at each addition where windows overlap, by
#: oneDNN and by XLA, and before a bias or what went around a layer is added, as where that is an operation of its own.
#: It is a step at the largest.
_ROUNDED_SUMS: Final = (
    *("AvgPoolGrad", "AvgPool3DGrad", "MaxPoolGrad", "MaxPoolGradV2", "_MaxPoolGradAtPlaces", "AddN"),
    *("_Conv2DBiasRelu", "_FusedBatchNormAddRelu"),
)
#: results that are compared, where not all are: what else there is has another form in each kernel, or no meaning
_COMPARED: Final[Mapping[str, int]] = {
    "_MaxPoolWithPlaces": 1,
    **dict.fromkeys(("_FusedBatchNormRelu", "_FusedBatchNormAddRelu"), 5),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 5),
    **{f"FusedBatchNormGrad{version}": 3 for version in ("", "V2", "V3")},
    **dict.fromkeys(("_FusedBatchNormReluGrad", "_FusedBatchNormAddReluGrad"), 3),
}
#: Numbers of a convolution's result that are not finite, for each that has to be, where the data have such numbers, or
#: the gradient of the output: tiles are transformed as a whole, of 4x4 results, while a window of 3x3 may see a place
#: at the edge once; and some kernels multiply what lies beside a window by zero. What a filter has (or what gives a
#: gradient to one) they may multiply by the zeros of the padding, and with that any number of results, as XLA does.
_SPREAD: Final = 16
#: kernels that round what each tap gives to the type of the result before it is added up
_ROUNDED_PARTS: Final = ("columns",)


class Finding(NamedTuple):
    """What is wrong with a kernel."""

    op_type: str
    kernel: str
    kind: str
    message: str


@dataclass
class Agreement:
    """What came of a call: the kernels that ran, how far off they were as a share of what is allowed; what is wrong."""

    off: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Agreement) -> None:
        for name, share in other.off.items():
            self.off[name] = max(share, self.off.get(name, 0.0))
        self.findings += other.findings


# ---------------------------------------------------------------------- running kernels
class Way(NamedTuple):
    """A kernel, compiled or at once.

    Attributes:
        may_vary: whether its threads may add up in another order the next time.
    """

    run: Run
    may_vary: bool


def ways_of(call: Call, op: Any) -> Iterator[tuple[str, Callable[[], Way]]]:
    """The kernels that are offered, with what makes them run; the operation's own comes first."""
    case = call.case(op)
    offered = {one.name: one.kernel for one in candidates(case)}
    rule = op.op_def.host_rule if op.op_def.takes_quantised else op.op_def.compiled_rule
    for name in sorted(offered, key=lambda name: name != OWN_KERNEL):
        yield name, lambda name=name: compiled(call, op, offered[name])  # type: ignore[misc]
    if not call.types and op.op_def.portable:
        yield f"{OWN_KERNEL} at once", lambda: at_once(call, op, rule, may_vary=False)
    for kernel in alternates(op.type, op.attrs):
        if kernel.takes_numpy and kernel.takes(case):
            name = f"{kernel.name} at once"
            yield name, lambda kernel=kernel: at_once(call, op, kernel.rule, may_vary=True)  # type: ignore[misc]


def compiled(call: Call, op: Any, kernel: AlternateKernel | None) -> Way:
    """A kernel in a program of its own; what it takes prepared is prepared in it."""
    rule = op.op_def.compiled_rule if kernel is None else kernel.rule
    prepares = {} if kernel is None else kernel.prepares
    static = op.op_def.static_positions(op)
    given = [i for i in range(len(call.values)) if i not in static]

    def program(*arrays: Any) -> list[Any]:
        values = dict(enumerate(call.values)) | dict(zip(given, arrays, strict=True))
        values |= {at: prepare(values[at]) for at, prepare in prepares.items()}
        bound = BoundKernel(op, rule, jnp, KernelContext(op))
        return list(flatten_outputs(bound([values[at] for at in range(len(values))])))

    arrays = in_wide_types(lambda: [jax.device_put(call.values[at]) for at in given])
    made = in_wide_types(lambda: jax.jit(program).lower(*arrays).compile())
    # the library's own threads, which a program calls through Python, may be as many as have time
    may_vary = "anabranch_native" in made.as_text()

    def run() -> list[Array]:
        return [np.array(one) for one in in_wide_types(made, *arrays)]

    return Way(run, may_vary)


def at_once(call: Call, op: Any, rule: Rule, may_vary: bool) -> Way:
    """A kernel of NumPy's arrays."""
    bound = BoundKernel(op, rule, np, _DirectContext(op))

    def run() -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.array(one) for one in flatten_outputs(bound([value.copy() for value in call.values]))]

    return Way(run, may_vary)


class _DirectContext(KernelContext):
    """What kernels ask that run at once: no memory is theirs to write over."""

    __slots__ = ()

    def memory(self, shape: Sequence[int], dtype: Any, *reused: int) -> None:
        return None

    def output_dtype(self, index: int = 0) -> Any:
        return self.op.outputs[index].dtype.as_numpy_dtype


# ---------------------------------------------------------------------- what memory held before
_PERTURB: Final = -6  # of glibc's `mallopt`
#: What is taken holds the complements of these bytes then. (It looks at one byte of a number that is not to be zero.)
_NO_NUMBERS, _LARGE_NUMBERS = 0x100, 0x80


@contextmanager
def memory_full_of(bytes: int) -> Iterator[None]:
    """Memory that is taken meanwhile is full of them (where the C library is glibc)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(_PERTURB, bytes)
    try:
        yield
    finally:
        mallopt(_PERTURB, 0)


def at_the_same_time(run: Run, count: int = 2) -> list[list[Array] | BaseException]:
    """What threads get that run side by side."""
    found: list[list[Array] | BaseException] = [RuntimeError("the thread did not end")] * count
    barrier = threading.Barrier(count)

    def work(at: int) -> None:
        barrier.wait(_WAITING)
        try:
            found[at] = run()
        except BaseException as error:  # the caller tells
            found[at] = error

    threads = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WAITING)
    return found


def repeated_results(way: Way) -> list[list[Array]]:
    """The results of all runs of a kernel."""
    found = []
    for bytes in (_NO_NUMBERS, _LARGE_NUMBERS):
        with memory_full_of(bytes):
            found.append(way.run())
    with memory_full_of(_NO_NUMBERS):
        for one in at_the_same_time(way.run):
            if isinstance(one, BaseException):
                raise one
            found.append(one)
    return found


# ---------------------------------------------------------------------- comparing
def examine(call: Call) -> Agreement:
    """Compares all kernels; those of gradients that take what a kernel has written down, too."""
    op = call.operation()
    found = Agreement()
    wanted = wide_results(call, op)
    count = _COMPARED.get(call.op_type)
    reach = None if call.is_finite else _reached(call)
    for name, make in ways_of(call, op):
        try:
            way = make()
            first, *others = repeated_results(way)
        except Exception as error:  # whatever a kernel that is offered raises is wrong
            found.findings.append(Finding(call.op_type, name, "error", f"{type(error).__name__}: {error}"[:400]))
            continue
        if wanted is None:
            wanted = [_wide(one) for one in first]
        if any(not _same_bits(first[:count], other[:count]) for other in others):
            if way.may_vary:
                first = furthest_of([first, *others], wanted)
            else:
                found.findings.append(Finding(call.op_type, name, "varies", _difference(first, others)))
        share, message = compare(call, name, first[:count], wanted[:count], reach)
        found.off[f"{call.op_type} {name}"] = share
        if message:
            found.findings.append(Finding(call.op_type, name, "value", message))
        for following in _following(call, first):
            found.add(examine(following))
    gc.collect()
    return found


def _following(call: Call, results: list[Array]) -> Iterator[Call]:
    """The gradient that takes what a kernel has written down."""
    random = np.random.default_rng(call.values[0].size)
    if call.op_type == "_MaxPoolWithPlaces":
        maxima, places = results
        grad = numbers(random, maxima.shape, maxima.dtype)
        yield replace(call, op_type="_MaxPoolGradAtPlaces", values=(call.values[0], maxima, grad, places))
    elif call.op_type in {"_FusedBatchNormRelu", "_FusedBatchNormAddRelu"}:
        x, scale = call.values[:2]
        grad = numbers(random, x.shape, x.dtype)
        attrs = {name: value for name, value in call.attrs.items() if name != "exponential_avg_factor"}
        values = (grad, x, scale, results[3], results[4], results[0], results[-1])
        yield replace(call, op_type=f"{call.op_type}Grad", attrs=attrs, values=values, terms=x.size // scale.size)


def wide_results(call: Call, op: Any) -> list[Array] | None:
    """What the own kernel gives in float64; None where it computes in no other type, or numbers are not finite."""
    if call.types or call.repeated or not call.is_finite or call.op_type.endswith("ReluGrad"):
        return None
    if "BatchNorm" in call.op_type or call.op_type == "Cast":
        return None
    wide = replace(call, values=tuple(v if v.dtype.kind in "iu" else v.astype(np.float64) for v in call.values))
    try:
        found = compiled(wide, op, None).run()
    except Exception:  # not in this type
        return None
    return found if found[0].dtype == np.float64 else None


def _reached(call: Call) -> Array | None:
    """Where a convolution sees numbers that are not finite."""
    reach = call.reach
    if reach is None:
        return None
    found: Array = compiled(reach, call.operation(), None).run()[0] > 0.5
    return found


def _most_reached(call: Call, reach: Array | None) -> float:
    """How many numbers of a result may not be finite beside those of the own kernel."""
    if reach is None:
        return 0
    at = 2 if "BackpropInput" in call.op_type else 0
    spreads = "BackpropFilter" in call.op_type or np.isfinite(call.values[at].astype(np.float32)).all()
    return math.inf if spreads else _SPREAD * int(reach.sum())


def compare(
    call: Call, name: str, found: Sequence[Array], wanted: Sequence[Array], reach: Array | None = None
) -> tuple[float, str]:
    """How far off results are as a share of what is allowed; and what is wrong, if anything.

    Args:
        reach: where a number has to be seen that is not finite, if that is known.
    """
    worst, message = 0.0, ""
    for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.shape != other.shape:
            return math.inf, f"result {at} has shape {one.shape}, not {other.shape}"
        share, said = _compared(call, name, one, other, reach)
        if share > worst or (said and not message):
            worst, message = share, f"result {at}: {said}" if said else message
    return worst, message


def _compared(call: Call, name: str, found: Array, wanted: Array, reach: Array | None) -> tuple[float, str]:
    if found.dtype.kind in "iub":
        wrong = int((found != wanted).sum())
        return (math.inf, f"{wrong} of {found.size} whole numbers are others") if wrong else (0.0, "")
    seen = _wide(found)
    odd, odd_wanted = ~np.isfinite(seen), ~np.isfinite(wanted)
    if odd.any() or odd_wanted.any():
        said = _odd_numbers(call, seen, wanted, reach)
        if said:
            return math.inf, said
    both = ~(odd | odd_wanted)
    if not both.any():
        return 0.0, ""
    exact, near = np.where(both, wanted, 0), np.where(both, seen, 0)
    allowed = allowance(call, name, found.dtype.name, exact)
    share = np.abs(near - exact) / allowed
    at = int(share.argmax())
    most = float(share.flat[at])
    if most <= 1:
        return most, ""
    place = tuple(map(int, np.unravel_index(at, found.shape)))
    return most, (
        f"{int((share > 1).sum())} of {found.size} are off, by up to {most:.3g} of what is allowed: at {place} "
        f"{seen.flat[at]:.9g}, not {exact.flat[at]:.9g} (the largest is {np.abs(exact).max():.3g})"
    )


def allowance(call: Call, name: str, dtype: str, wanted: Array) -> Array:
    """How far a number may be off."""
    step = _STEPS[dtype]
    inner = _STEPS["float64" if dtype == "float64" else "float32"]
    steps = _TRANSFORMED_STEPS if "winograd" in name else 0.0
    steps += _SUM_STEPS + 2 * math.sqrt(call.terms)
    is_rounded = call.op_type in _ROUNDED_SUMS or any(one in name for one in _ROUNDED_PARTS)
    if is_rounded and dtype != "float64":
        steps += step / inner
    largest = max(float(np.abs(wanted).max()), 1e-30)
    if "BatchNorm" in call.op_type:
        steps, largest = steps * _lost(call), max(largest, *(float(np.abs(v).max()) for v in call.values[1:3]))
    return step * _STEPS_OFF * np.abs(wanted) + steps * inner * largest


def _lost(call: Call) -> float:
    """How much larger the data of a normalization are than what is left of them without their mean."""
    at = 1 if "Grad" in call.op_type else 0
    x = call.values[at].astype(np.float64)
    channels = call.values[at + 1].size
    axis = 1 if call.attrs["data_format"] in ("NCHW", "NCDHW", b"NCHW", b"NCDHW") else x.ndim - 1
    rows = np.moveaxis(x, axis, -1).reshape(-1, channels)
    with np.errstate(all="ignore"):
        shares = np.abs(rows).max(0) / np.sqrt(rows.var(0) + call.attrs["epsilon"])
    return max(1.0, float(np.nan_to_num(shares, nan=1.0, posinf=1.0).max()))


def _odd_numbers(call: Call, seen: Array, wanted: Array, reach: Array | None) -> str:
    """What is wrong with numbers that are not finite."""
    odd, odd_wanted = ~np.isfinite(seen), ~np.isfinite(wanted)
    least = odd_wanted if reach is None else reach & odd_wanted
    missing = int((least & ~odd).sum())
    if missing:
        return f"{missing} numbers are finite that should not be"
    more = int((odd & ~odd_wanted).sum())
    if more > _most_reached(call, reach):
        return f"{more} numbers are not finite that should be"
    if reach is not None:
        return ""  # infinities of both signs cancel out, in a tile, or times zero
    kinds = int((odd & ~np.isnan(wanted) & (seen != wanted)).sum() + (np.isnan(wanted) & ~np.isnan(seen)).sum())
    return f"{kinds} infinities, or what is no number, are others" if kinds else ""


def _wide(array: Array) -> Array:
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _same_bits(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def furthest_of(runs: Sequence[list[Array]], wanted: Sequence[Array]) -> list[Array]:
    """The results that are furthest off, of those of kernels that need not be the same each time."""

    def distance(results: list[Array]) -> float:
        return max(_distance(one, exact) for one, exact in zip(results, wanted, strict=True))

    return max(runs, key=distance)


def _distance(found: Array, wanted: Array) -> float:
    """How far apart two arrays are at the most; the same infinities, and what is no number in both, are not."""
    seen = _wide(found)
    same = (seen == wanted) | ((seen != seen) & (wanted != wanted))
    with np.errstate(invalid="ignore"):
        distances = np.where(same, 0, np.nan_to_num(np.abs(seen - wanted), nan=np.inf))
    return float(distances.max(initial=0))


def _difference(first: Sequence[Array], others: Sequence[Sequence[Array]]) -> str:
    said = []
    for number, other in enumerate(others, 1):
        for at, (one, again) in enumerate(zip(first, other, strict=True)):
            if one.tobytes() != again.tobytes():
                wrong = one.view(np.uint8).reshape(-1) != again.view(np.uint8).reshape(-1)
                furthest = _distance(one, _wide(again))
                said.append(f"run {number}, result {at}: {int(wrong.sum())} bytes, by up to {furthest:.3g}")
    return "; ".join(said)


def library_state() -> str:
    """What the kernels call, for people."""
    state = onednn.library_state()
    return state.missing or f"oneDNN {state.version}, {state.instruction_set}"
