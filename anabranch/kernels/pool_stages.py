"""Computations of oneDNN in parts that XLA's own threads compute (`pool_stages.c`): plans, and calls of them.

A library with threads of its own wakes them for each call, while XLA's wait, and both want the same cores; gradients to
filters also spin until all are there. So a batch is cut into parts, each of them computed on one thread by whichever of
XLA's threads has time. What a call computes stands in the program, as text, with the number of parts: results do not
depend on the threads of a process.

Calls cost 2 to 4 µs, and need Python's lock once in a process, where a program was found in the compile cache.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.processor import core_count, has_wide_vectors
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.onednn import SCRATCHPAD, Argument, Handle, Library, NativeError

#: arrays inside the scratch memory begin at multiples of it (bytes)
_ALIGNMENT: Final = 64
#: plans kept by a process
_MOST_PLANS: Final = 2048
#: plans that stay for a while after they were forgotten
_MOST_LEFT: Final = 64


# ---------------------------------------------------------------------- the structures of `pool_stages.c`
class _StageFields(ctypes.Structure):
    _fields_ = (("primitive", ctypes.c_void_p), ("arguments", ctypes.POINTER(Argument)), ("count", ctypes.c_int))


class _SpanFields(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("end", ctypes.c_int))


class _PlaceFields(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("offset", ctypes.c_int64), ("array", ctypes.c_int))


class _PlanFields(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
        ("mark", ctypes.c_int64),
        ("recover", ctypes.c_void_p),
        ("normalization", ctypes.c_void_p),
        ("maxima", ctypes.c_void_p),
        ("elements", ctypes.POINTER(ctypes.c_int64)),
        ("places", ctypes.POINTER(_PlaceFields)),
        ("phases", ctypes.POINTER(_SpanFields)),
        ("parts", ctypes.POINTER(_SpanFields)),
        ("stages", ctypes.POINTER(_StageFields)),
        ("arrays", ctypes.c_int),
        ("results", ctypes.c_int),
        ("place_count", ctypes.c_int),
        ("phase_count", ctypes.c_int),
        ("looked_at", ctypes.c_int),
        ("width", ctypes.c_int),
        ("marked", ctypes.c_int),
        ("asks", ctypes.c_int),
    )


_RECOVER: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


class Mark(NamedTuple):
    """A byte that says whether an array holds numbers that are not finite, which Python then computes with.

    Attributes:
        array, offset: where it is: which of the call's arrays, and where in it (bytes).
        recover: computes, from the addresses of the call's arrays.
        asks: whether the byte is there, and is asked; otherwise it is set.
        looked_at: the array that is looked at, by which it is set; -1: none, what is computed tells.
        width: of its numbers (bytes).
    """

    array: int
    offset: int
    recover: Callable[[Sequence[int]], None]
    asks: bool = True
    looked_at: int = -1
    width: int = 4

    def callback(self, arrays: int) -> Any:
        """What the handler calls; it is to be kept."""

        def recovered(addresses: ctypes._Pointer[ctypes.c_void_p]) -> int:
            try:
                self.recover(addresses[:arrays])
            except BaseException:  # none may leave a callback
                return 1
            return 0

        return _RECOVER(recovered)


class NormalizationFields(ctypes.Structure):
    """What `pool_normalization.c` computes: rows of channels, of numbers so wide (bytes)."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
        ("width", ctypes.c_int),
        ("relu", ctypes.c_int),
        ("added", ctypes.c_int),
        ("backward", ctypes.c_int),
        ("parts", ctypes.c_int),
    )


class MaximaFields(ctypes.Structure):
    """What `pool_maxima.c` computes."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("images", "height", "width", "channels", "out_height", "out_width")),
        *((name, ctypes.c_int64) for name in ("window_height", "window_width", "row_step", "column_step")),
        *((name, ctypes.c_int64) for name in ("above", "before")),
        *((name, ctypes.c_int) for name in ("number_bytes", "parts")),
    )


class StagePlan(NamedTuple):
    """What a call computes, as the handler reads it; and what it points to."""

    structure: _PlanFields
    scratch_bytes: int
    kept: tuple[object, ...]


class PlanBuilder:
    """Puts a plan together: phases of parts of stages.

    Args:
        library: of the primitives; they are to be described for one thread (`Library.one_thread`).
        elements: of each array of the call: what it reads, in order, then its results.
        results: how many of them are results.
    """

    def __init__(self, library: Library, elements: Sequence[int], results: int = 1) -> None:
        self._library, self._elements, self._results = library, tuple(elements), results
        self._places: list[_PlaceFields] = []
        self._phases: list[_SpanFields] = []
        self._parts: list[_SpanFields] = []
        self._stages: list[_StageFields] = []
        self._compiled: dict[int, Handle] = {}
        self._kept: list[object] = []
        self._end = 0

    def array(self, number: int, description: int, offset: int = 0) -> int:
        """A view of one of the call's arrays, from an offset (bytes) on."""
        return self._memory(description, number, offset)

    def scratch(self, description: int) -> int:
        """An array in the memory that the call works in."""
        place = self._end
        self._end += -(-self._library.size(description) // _ALIGNMENT) * _ALIGNMENT
        return self._memory(description, -1, place)

    def seen_as(self, memory: int, description: int, offset: int = 0) -> int:
        """The memory of an array, from an offset (bytes) on, as another array."""
        place = next(place for place in self._places if place.memory == memory)
        return self._memory(description, place.array, place.offset + offset)

    def _memory(self, description: int, number: int, offset: int) -> int:
        memory = self._library.memory(description)
        self._kept.append(memory)
        self._places.append(_PlaceFields(memory.value, offset, number))
        return memory.value

    def phase(self, parts: Sequence[Sequence[tuple[Handle, Mapping[int, int]]]]) -> None:
        """Adds parts that any threads may compute, after all of before: primitives, with their arguments' arrays."""
        first = len(self._parts)
        for stages in parts:
            begin = len(self._stages)
            for primitive, arguments in stages:
                self._add_stage(primitive, arguments)
            self._parts.append(_SpanFields(begin, len(self._stages)))
        self._phases.append(_SpanFields(first, len(self._parts)))

    def _add_stage(self, primitive: Handle, arguments: Mapping[int, int]) -> None:
        library = self._library
        pad = library.scratchpad(primitive)
        given = [*arguments.items(), (SCRATCHPAD, self.scratch(pad))]
        values = (Argument * len(given))(*(Argument(*pair) for pair in given))
        compiled = self._compiled.get(primitive.value)
        if compiled is None:
            compiled = self._compiled[primitive.value] = library.compiled(primitive)
        self._stages.append(_StageFields(compiled.value, values, len(given)))
        self._kept += [values, compiled, primitive]

    def plan(self, mark: Mark | None = None) -> StagePlan:
        """The plan. Nothing is added afterwards."""
        rows: tuple[Any, ...] = (
            (_PlaceFields * len(self._places))(*self._places),
            (_SpanFields * len(self._phases))(*self._phases),
            (_SpanFields * len(self._parts))(*self._parts),
            (_StageFields * len(self._stages))(*self._stages),
        )
        scratch = self._end + _ALIGNMENT if self._end else 0
        fields = {
            "stream": self._library.stream.value,
            **dict(zip(("places", "phases", "parts", "stages"), rows, strict=True)),
            "place_count": len(self._places),
            "phase_count": len(self._phases),
        }
        return _planned(self._elements, self._results, scratch, mark, fields, (*rows, *self._kept))


def plan_in_c(
    fields: NormalizationFields | MaximaFields, elements: Sequence[int], results: int, mark: Mark | None = None
) -> StagePlan:
    """The plan of what is computed without the library; `elements` and `results` as `PlanBuilder` takes them."""
    name, scratch = "maxima", 0
    if isinstance(fields, NormalizationFields):
        name, scratch = "normalization", 4 * fields.channels * (4 * fields.parts + 3) + _ALIGNMENT
    return _planned(elements, results, scratch, mark, {name: ctypes.addressof(fields)}, (fields,))


def _planned(
    elements: Sequence[int],
    results: int,
    scratch: int,
    mark: Mark | None,
    fields: Mapping[str, Any],
    kept: tuple[object, ...],
) -> StagePlan:
    sizes, recover = (ctypes.c_int64 * len(elements))(*elements), None
    marks: dict[str, Any] = {"looked_at": -1, "marked": -1}
    if mark is not None:
        recover = mark.callback(len(elements))
        marks = {"mark": mark.offset, "recover": ctypes.cast(recover, ctypes.c_void_p), "marked": mark.array}
        marks |= {"looked_at": mark.looked_at, "width": mark.width, "asks": mark.asks}
    counts = {"arrays": len(elements), "results": results, "scratch_bytes": scratch, "elements": sizes}
    return StagePlan(_PlanFields(**counts, **marks, **fields), scratch, (recover, sizes, *kept))


# ---------------------------------------------------------------------- the plans of a process
class Cutter(NamedTuple):
    """What cuts computations of a kind (`native_calls`) into parts; texts are without the kind.

    Attributes:
        cut: from the text of a computation to that of a plan; None where it is not to be cut.
        plan: makes the plan. The library makes primitives for one thread meanwhile; what it asks `native_calls` for
            would be kept, and run by several. Raises `NativeError` where the library cannot compute it, or only slowly.
    """

    cut: Callable[[str], str | None]
    plan: Callable[[Library, str], StagePlan]


_cutters: Final[dict[str, Cutter]] = {}
#: on more cores a batch has too few parts, and a gradient to a filter too many sums
_MOST_CORES: Final = 8
_plans: Final[dict[bytes, StagePlan]] = {}
#: Those that were forgotten last. The handler may have been given one just now, and not have written down that it uses
#: it.
_left: Final[deque[StagePlan]] = deque(maxlen=_MOST_LEFT)
_lock: Final = threading.Lock()


def register_cutter(kind: str, cutter: Cutter) -> None:
    """Names what cuts the computations of a kind."""
    _cutters[kind] = cutter


@functools.lru_cache(4096)
def in_parts(text: str) -> str | None:
    """The text of the plan of a computation (`native_calls`); None where the library's own threads compute it.

    These do without a C compiler, on many cores, and on processors of which nothing was measured.
    """
    kind, _, rest = text.partition(" ")
    usable = 1 < core_count() <= _MOST_CORES and has_wide_vectors()
    if not usable or kind not in _cutters or pool_handler.missing():
        return None
    cut = _cutters[kind].cut(rest)
    if cut is None:
        return None
    made = f"{kind} {cut}"
    try:
        plan_of(made.encode())
    except NativeError:
        return None
    return made


def plan_of(text: bytes) -> StagePlan:
    """The plan of a text, made once.

    Raises:
        NativeError: the library cannot compute it, or only slowly.
    """
    plan = _plans.get(text)
    if plan is None:
        library = onednn.library()
        if library is None:
            raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
        kind, _, rest = text.decode().partition(" ")
        with library.one_thread():
            plan = _cutters[kind].plan(library, rest)
        with _lock:
            plan = _plans.setdefault(text, plan)
            if len(_plans) > _MOST_PLANS:
                _forget(library, list(_plans)[: len(_plans) - _MOST_PLANS])
    return plan


def _forget(library: Library, texts: Sequence[bytes]) -> None:
    """Under the lock."""
    forget_plan = pool_handler.loaded(library).anabranch_pool_stages_forget
    for text in texts:
        if forget_plan(text, ctypes.c_int64(len(text))):
            _left.append(_plans.pop(text))


def forget() -> None:
    """Forgets all plans that no call uses; those that are needed are made anew."""
    library = onednn.library()
    if library is not None:
        with _lock:
            _forget(library, list(_plans))


def call(
    node: str, text: str, inputs: Sequence[Array], results: Sequence[tuple[tuple[int, ...], np.typing.DTypeLike]]
) -> list[Any]:
    """A call of a computation in parts, in a program that is being traced.

    Args:
        node: the operation that it computes, for errors.
        text: what `in_parts` gave.
        inputs: the arrays that it reads.
        results: shape and dtype of each result.
    """
    _use_plans()
    struct = jax.ShapeDtypeStruct
    given = [*results, ((plan_of(text.encode()).scratch_bytes,), np.uint8)]
    described = tuple(struct(shape, dtype) for shape, dtype in given)  # type: ignore[no-untyped-call]
    *found, _ = jax.ffi.ffi_call(pool_handler.STAGES_TARGET, described)(*inputs, node=node, plan=text)
    return found


@functools.cache
def _use_plans() -> None:
    """Tells the handler what it calls, once."""
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    functions = (*library.execution_functions, MAKE_PLAN)
    pool_handler.loaded(library).anabranch_pool_stages_use(*map(pool_handler.address, functions))


def _make_plan(text: int, size: int, message: int, room: int) -> int:
    """What the handler calls for a text that it does not know: the address of its plan; 0, and a message, if none."""
    try:
        return ctypes.addressof(plan_of(ctypes.string_at(text, size)).structure)
    except BaseException as error:  # none may leave a callback
        said = str(error).encode("utf-8", "backslashreplace")[: room - 1] + b"\0"
        ctypes.memmove(message, said, len(said))
        return 0


#: what the handler is told to call
MAKE_PLAN: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
    _make_plan
)
