"""The variants of islands' programs: what tells them apart, what each is, and a log of what was compiled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from anabranch.core.bounded import LeastRecentlyUsed, limit_from
from anabranch.core.kernel_context import Check
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.kernel_choice import KernelChoice

#: environment variable that bounds the variants that a process keeps, of all islands together
EXECUTABLES_VARIABLE = "ANABRANCH_MAX_EXECUTABLES"
#: a small executable takes about 1.6 MB and nine memory mappings, of which a process may have 65,530
DEFAULT_EXECUTABLES = 512
#: so many operations that are alike may have been made by a loop of the program's
_MANY_ALIKE = 50


@dataclass(frozen=True, slots=True)
class CompileEvent:
    """One compilation: of what, why, and how long it took (s), tracing included.

    Attributes:
        kernels: name of an operation that has several kernels -> the one that was chosen.
        apart: whether steps went on meanwhile, their kernels running directly.
        alike: of a long compilation, the type of which it has most operations on the same shapes, and how many; the
            compiler makes each anew.
    """

    island: str
    operations: int
    reason: str
    seconds: float
    kernels: Mapping[str, KernelChoice] = field(default_factory=dict)
    apart: bool = False
    alike: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class DirectEvent:
    """The first call of a variant in which its operations' kernels ran one after the other, and how long that took (s).

    Attributes:
        calls_left: how often they will run so again before the variant is compiled.
    """

    island: str
    operations: int
    reason: str
    seconds: float
    calls_left: int


def most_alike(operations: Sequence[StepNode]) -> tuple[str, int] | None:
    """The type of which there are most operations that compute on the same shapes, and how many; None: few."""
    computing = (op for op in operations if op.inputs and not op.op_def.passes_on)
    counts = Counter((op.type, *(t.shape.dims_tuple for t in op.inputs)) for op in computing)
    ((kind, *_), count) = max(counts.items(), key=itemgetter(1), default=(("",), 0))
    return (str(kind), count) if count >= _MANY_ALIKE else None


class CompileLog:
    """Every compilation of a process, newest last; listeners are also told what runs before it is compiled."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        self._lock = threading.Lock()
        self.listeners: list[Callable[[CompileEvent], None]] = []
        self.direct_listeners: list[Callable[[DirectEvent], None]] = []

    def add(self, event: CompileEvent) -> None:
        with self._lock:
            self.events.append(event)
        for listener in list(self.listeners):
            listener(event)

    def tell_direct(self, event: DirectEvent) -> None:
        for listener in list(self.direct_listeners):
            listener(event)


compile_log = CompileLog()


class VariantKey(NamedTuple):
    """What tells the variants of an island apart. Where there are but shapes of inputs, their tuple alone is the key.

    Attributes:
        inputs: the shapes of the inputs that have no fixed one.
        static: shape and bytes of each static value.
        variables: the shapes of the variables that have no fixed one.
    """

    inputs: tuple[tuple[int, ...], ...]
    static: tuple[tuple[tuple[int, ...], bytes], ...]
    variables: tuple[tuple[int, ...], ...]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Variant:
    """One executable.

    Attributes:
        function: the jitted function; see `Executable.call` for its arguments and results.
        directly: gives what the function does, by running the operations' kernels, and how many elements they computed.
        checks: what the flags that it returns stand for; filled in when it is traced.
        reason: why it had to be compiled.
        direct_calls: how often the operations' kernels are still to take the function's place.
        ran_directly: whether they have.
        seconds: how long it took to compile it in the background; None: it was not.
        begin_next: begins to compile, in the background and for these arguments, what will take this variant's place.
        next: tells when that is done.
        notes: what the compiler tells about its choices; filled in when it is traced.
        kernels: the kernels of operations that have several; filled in when it is traced.
        watched: whether the function calls back, to ask whether its loops may go on.
        client: for which of the clients of one thread it is compiled, if for any (`xla.one_thread`).
        calls_back: whether one of its kernels calls Python functions; known once it is traced.
        temporaries: how large the compiled function's are (bytes); 0 on accelerators.
        jitted: makes the function, for a sharding of its arguments and results and with options of XLA.
        one_thread: whether the function runs on the thread that calls it alone (`xla.one_thread`); known then, too.
        used: see `core.bounded`.
    """

    function: Any
    directly: Callable[..., tuple[list[Any], int]]
    checks: list[Check]
    reason: str
    notes: dict[str, None]
    kernels: dict[str, KernelChoice]
    jitted: Callable[..., Any]
    watched: bool = False
    client: int = 0
    calls_back: bool = False
    one_thread: bool = False
    compiled: bool = False
    #: held by the one of several callers that compiles
    compiling: threading.Lock = field(default_factory=threading.Lock)
    direct_calls: int = 0
    ran_directly: bool = False
    seconds: float | None = None
    begin_next: Callable[[Sequence[Any]], Future[None]] | None = None
    next: Future[None] | None = None
    temporaries: int = 0
    used: int = 0

    def release(self) -> None:
        """Nothing to do: the executable goes with the function."""


#: the variants of all islands
variants = LeastRecentlyUsed(lambda: limit_from(EXECUTABLES_VARIABLE, DEFAULT_EXECUTABLES))
