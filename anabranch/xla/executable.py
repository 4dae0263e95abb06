"""An island's executables: one per combination of input shapes and static values, bounded, each with its reason."""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain, starmap
from typing import Any

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.bounded import ticks
from anabranch.core.kernel_context import Check
from anabranch.core.kernels import has_alternates
from anabranch.core.quantised_arrays import as_integers
from anabranch.core.shown_values import ShownValue
from anabranch.core.sizes import available_memory
from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.constants import is_open
from anabranch.graph.loop_bodies import bodies_of, contains_loop
from anabranch.graph.step_nodes import StepNode
from anabranch.kernels.crowding import cores
from anabranch.ops.control_flow.loops import COUNTED
from anabranch.xla.background import background
from anabranch.xla.direct_kernels import BetterCompiledError, known_cost, takes_numpy
from anabranch.xla.direct_program import DirectProgram
from anabranch.xla.equations import Program
from anabranch.xla.float32_products import product_precision
from anabranch.xla.heap import make_room
from anabranch.xla.inner_traces import bound_inner_traces
from anabranch.xla.island_program import IslandProgram
from anabranch.xla.islands import Island
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.kernel_choice import KernelChoice, kernel_mode, target_of
from anabranch.xla.lowering import NeedsHostError
from anabranch.xla.one_thread import MOST_BYTES, Crossings, one_thread, own_clients, processors
from anabranch.xla.resident_constants import ResidentConstant, resident
from anabranch.xla.sizes import check_compiled, check_traced, no_room
from anabranch.xla.thread_costs import gains, multiplied_types
from anabranch.xla.variants import CompileEvent, DirectEvent, Variant, VariantKey, compile_log, most_alike, variants
from anabranch.xla.watched_loops import WatchedLoops

#: compiled variants kept per island
MAX_VARIANTS = 64
#: variants of an island that are compiled as soon as they are called again; later ones when they have been called often
EAGER_VARIANTS = 2
#: variants of an island with a loop whose number of iterations each is compiled for; then the host runs the loop
MAX_COUNTS = 6
#: options of XLA for programs compiled from now on; None: as it chooses (tests that check no generated code hurry it)
COMPILER_OPTIONS: dict[str, bool | int | str] | None = None
#: calls for which the kernels of such a later variant run directly, if it is small
DIRECT_CALLS = 16
#: elements that kernels give up to which a variant is small
MAX_DIRECT_ELEMENTS = 1 << 24
#: the same of the variants before, where NumPy computes all of it: much is run once or twice only; the least
FIRST_DIRECT_CALLS = 2
#: of islands that no call waits for, and the most of others: as many as take as long as the compilation, so that a loop
#: of a few steps ends before it, and a long one takes twice as long as the compilation at most until it is compiled
MOST_DIRECT_CALLS = 32
#: what the compiler takes for an operation, and what a call of NumPy's takes for one and for an element (s)
COMPILED_OPERATION, DIRECT_OPERATION, DIRECT_ELEMENT = 5e-3, 2e-5, 3e-9
#: elements that such kernels give in all, for each operation: NumPy takes 2 to 5 ns for one, XLA 15 to 40 ms to compile
#: an operation
FIRST_ELEMENTS = 1 << 22
#: as how many operations one counts that has several kernels, among which the compiler chooses, and measures
COUNT_OF_CHOICE = 20
#: operations, so counted, from which on a program is compiled in the background, while kernels go on running directly
BACKGROUND_OPERATIONS = 100
#: descriptions of where arrays are that an executable keeps
MAX_PLACES = 4096
#: operations on tensors of unknown shape that only JAX computes: it compiles each for each shape
MAX_FOREIGN = 2
#: operations of a new island for each kind, on tensors of one shape, that only JAX computes
OPERATIONS_OF_FOREIGN = 50

#: from so many seconds on a compilation is a long one
LONG_COMPILATION = 1.0
#: bytes of written variables from which on it is asked whether memory suffices to copy them
_UNCHECKED_BYTES = 1 << 28
#: how many shapes and values the reason of a compilation names
_MAX_NAMED = 6


class Executable:
    """The compiled form of one island.

    Arguments of a call, flat: varying inputs (`dynamic`), large constants, variables that are only read, variables that
    are also written (first those that are kept as they are, then the donated, whose buffers are reused), with random
    operations, their counters followed by the session's seed, and, of a watched variant, the number of the step's watch
    (`xla.watched_loops`).
    Results, flat: outputs, new values of the written variables, and, with checks, a vector of flags (true: failed)
    followed by the values that the checks' messages show.

    Attributes:
        platform: what XLA compiles for: "cpu", "gpu", ...

    Args:
        device: the `jax.Device` to run on, which need not be named where there is only one: None. Arguments of other
            devices are brought there.
        device_type: what a session calls the type of that device; empty: as XLA's platform.
    """

    def __init__(self, island: Island, device: jax.Device | None = None, device_type: str = "") -> None:
        self.island = island
        self.device = device
        self.platform = jax.default_backend() if device is None else str(device.platform)
        self._target = target_of(device, device_type)
        self.dynamic = [t for t in island.inputs if t not in island.static]
        self.static = [t for t in island.inputs if t in island.static]
        self._constants_on_host = [as_integers(island.known[t]) for t in island.constants]
        self.constants: list[Any] = self._constants_on_host
        self._resident: list[ResidentConstant] = []
        self._called_once = False
        written, read = set(island.writes), set(island.reads)
        self.read_only = [h for h in island.reads if h not in written]
        # what is only written is no argument, and has no buffer to give
        self.kept = [h for h in island.writes if h in read and h in island.kept]
        self.donated = [h for h in island.writes if h in read and h not in island.kept]
        #: dynamic inputs whose shape may differ between steps
        self.open_inputs = [
            i for i, t in enumerate(self.dynamic) if not t.shape.is_fully_defined() or t.dtype is dtypes.variant
        ]
        self.uses_random = bool(island.random)
        self._variants: OrderedDict[Hashable, Variant] = OrderedDict()
        self._lock = threading.Lock()
        #: the variables that are arguments, and what was known when it was asked which the client of one thread takes
        self._handles, self._version = [*self.read_only, *self.kept, *self.donated], one_thread.version
        self._crossings = Crossings(self._handles, is_counted=not island.is_alone)
        self._program = IslandProgram(island, self.dynamic, self._handles, self._target, self.platform)
        self._last_key: Hashable = None
        #: what arrays of its device say of where they are, by its id
        self._here: dict[int, Any] = {}

    def constant_arguments(self) -> list[Any]:
        """The large constants, as arguments. What runs once, as initializers do, leaves no copy on the device."""
        if self._called_once:
            self._put_constants()
        self._called_once = True
        return self.constants

    def _put_constants(self) -> None:
        if self._resident or not self.constants:
            return
        with self._lock:
            self._resident = [resident(value, self.device) for value in self._constants_on_host]
            self.constants = [constant.on_device for constant in self._resident]

    def variant(self, key: Hashable, static_values: Sequence[np.ndarray[Any, Any]], watched: bool = False) -> Variant:
        """The executable for `key`; a new one is prepared (and compiled by its first call) where there is none.

        Args:
            watched: whether its loops can be stopped.
        """
        client = own_clients.here if self.island.has_own_clients else 0
        stored = (key, "watched") if watched else (key, client) if client else key
        # without the lock, which is held while another variant is prepared: most steps find theirs here
        variant = self._variants.get(stored)
        if variant is not None:
            variant.used = next(ticks)
            return variant
        with self._lock:
            # again under the lock: another thread may have prepared it meanwhile
            variant = self._variants.get(stored)
            if variant is None:
                reason = "a deadline, so that loops can be stopped" if watched else self._reason(key, static_values)
                self._check_counts()
                variant = self._prepare(reason, static_values, watched, client=client)
                if self._is_slow_to_compile(variant):
                    compiled = self._prepare(reason, static_values, watched, False, client)
                    variant.begin_next = functools.partial(self._begin_next, stored, variant, compiled)
                if len(self._variants) >= MAX_VARIANTS:
                    kept = self._variants.copy()  # another island may be taking one out
                    self._variants.pop(min(kept, key=lambda one: kept[one].used), None)
                variants.add(self._variants, stored, variant)
                # preparing leads to tracing, which leaves traces of JAX's own behind
                bound_inner_traces()
            self._last_key = key
        return variant

    def _check_counts(self) -> None:
        """Raises NeedsHostError where a loop has run so many different times that the host had better run it."""
        if len(self._variants) >= MAX_COUNTS:
            counted = next((op for op in self.island.operations if COUNTED in op.attrs), None)
            if counted is not None:
                raise NeedsHostError(counted, f"a loop makes a list longer, and {MAX_COUNTS} programs were made for it")

    def clear(self) -> None:
        """Releases all variants."""
        self._variants.clear()

    def _reason(self, key: Hashable, static_values: Sequence[np.ndarray[Any, Any]]) -> str:
        if self._last_key is None:
            return "first run of this step"
        shapes: Any = key.inputs if isinstance(key, VariantKey) else key
        differences = [
            f"{self.dynamic[i].name} of shape {shape}" for i, shape in zip(self.open_inputs, shapes, strict=True)
        ]
        differences += [f"{t.name} = {_short(value)}" for t, value in zip(self.static, static_values, strict=True)]
        if isinstance(key, VariantKey):
            differences += [f"a variable of shape {shape}" for shape in key.variables]
        more = f", and {len(differences) - _MAX_NAMED} more" if len(differences) > _MAX_NAMED else ""
        evicted = (
            f" (more than {MAX_VARIANTS} variants: the one not used for longest was dropped)"
            if len(self._variants) >= MAX_VARIANTS
            else ""
        )
        return f"new shapes or static values: {', '.join(differences[:_MAX_NAMED])}{more}{evicted}"

    def has_ready_variant(self, key: Hashable | None) -> bool:
        """Whether a variant is there and `is_ready`.

        Args:
            key: the variant's; None: any.
        """
        if key is None:
            # another thread may be adding one
            return any(map(self.is_ready, list(self._variants.values())))
        variant = self._variants.get(key)
        return variant is not None and self.is_ready(variant)

    def ready_variants(self) -> int:
        """How many variants `is_ready` says so of."""
        return sum(map(self.is_ready, list(self._variants.values())))

    @property
    def is_on_one_thread(self) -> bool:
        """Whether a program of it runs on the thread that calls it alone."""
        return any(variant.one_thread for variant in list(self._variants.values()))

    @staticmethod
    def is_ready(variant: Variant) -> bool:
        """Whether a variant runs without Python code of JAX's or a kernel's, which a signal must not interrupt."""
        return variant.compiled and not variant.calls_back

    def call(self, variant: Variant, args: Sequence[Any]) -> Any:
        """Runs a variant. The first call that does not run its kernels directly compiles it, and logs that.

        Much is run once or twice, and XLA takes longer than NumPy: the kernels of a small variant run directly first.
        An island with many variants is one whose shapes change from step to step. There they do so for longer, and a
        variant is compiled when it has been called so often that it will be again.
        """
        args = self._brought(args)
        if variant.compiled:
            return variant.function(*self._at_hand(variant, args))
        results = self._direct_results(variant, args)
        if results is not None:
            return results
        # who comes while another thread compiles waits for it, and does not compile the same once more
        with variant.compiling:
            if variant.compiled:
                return variant.function(*self._at_hand(variant, args))
            return self._first_call(variant, args)

    def results(self, variant: Variant, args: Sequence[Any]) -> Iterator[Any] | None:
        """As `call`, but no donated argument is given away before the results are drawn, and then no Python code runs.

        None: the variant cannot be run in that way, because it is new, or calls back.
        """
        args = self._brought(args)
        if variant.compiled:
            if variant.watched or variant.calls_back:
                return None
            return chain.from_iterable(starmap(variant.function, (self._at_hand(variant, args),)))
        results = self._direct_results(variant, args)
        return None if results is None else iter(results)

    def _direct_results(self, variant: Variant, args: Sequence[Any]) -> list[Any] | None:
        """What the kernels give, if they are to run directly this time. They do not change their arguments."""
        if variant.direct_calls <= 0 and not self._goes_on_directly(variant, args):
            return None
        variant.direct_calls -= 1
        start = time.perf_counter()
        try:
            if not variant.ran_directly and not self._has_room_for_copies(args):
                raise BetterCompiledError
            results, elements = variant.directly(*args)
        except BetterCompiledError:
            # what is too much once will be too much again
            variant.direct_calls, variant.begin_next, variant.next = 0, None, None
            return None
        if not variant.ran_directly:
            variant.ran_directly = True
            if variant.begin_next is None and len(self._variants) <= EAGER_VARIANTS:
                variant.direct_calls = max(variant.direct_calls, self._worthwhile_calls(elements) - 1)
            seconds, operations = time.perf_counter() - start, len(self.island.operations)
            left = variant.direct_calls
            compile_log.tell_direct(DirectEvent(self.island.name, operations, variant.reason, seconds, left))
        return results

    def _has_room_for_copies(self, args: Sequence[Any]) -> bool:
        """Whether memory suffices for new values of what is written beside the old ones and their gradients.

        Kernels that run directly change nothing in place, as the compiled program does.
        """
        first = len(self.dynamic) + len(self.constants) + len(self.read_only)
        written: int = sum(value.nbytes for value in args[first : first + len(self.kept) + len(self.donated)])
        return written < _UNCHECKED_BYTES or 3 * written <= available_memory()

    def _first_call(self, variant: Variant, args: Sequence[Any]) -> Any:
        start = time.perf_counter()
        self._compile(variant, list(args))
        results = variant.function(*self._at_hand(variant, args))
        # not before: until then others must wait for `compiling`
        variant.compiled = True
        apart = variant.seconds is not None
        seconds = variant.seconds or time.perf_counter() - start
        reason = "; ".join([variant.reason, *variant.notes])
        operations = len(self.island.operations)
        alike = most_alike(self.island.operations) if seconds >= LONG_COMPILATION else None
        event = CompileEvent(self.island.name, operations, reason, seconds, dict(variant.kernels), apart, alike)
        compile_log.add(event)
        return results

    def _compile(self, variant: Variant, args: list[Any]) -> None:
        """Traces and compiles what the call after it finds traced and compiled, and looks at the sizes of both.

        Args:
            args: emptied as soon as they are not needed any more.
        """
        traced = variant.function.trace(*self._crossed(variant, args))
        check_traced(traced.jaxpr, self.island.operations)
        chosen = [choice.chosen.kernel for choice in variant.kernels.values()]
        variant.calls_back = any(kernel is not None and kernel.calls_back for kernel in chosen)
        if self._gains_on_one_thread(variant, traced.jaxpr, args):
            options = one_thread.options(multiplied_types(traced.jaxpr))
            if options is not None:
                place, options = one_thread.sharding_of(variant.client), {**options, **(COMPILER_OPTIONS or {})}
                variant.function = variant.jitted(compiler_options=options, in_shardings=place, out_shardings=place)
                variant.one_thread = one_thread.in_use = True
                variant.notes["its operations are small: on the calling thread alone"] = None
                traced = variant.function.trace(*self._crossed(variant, args))
        args.clear()
        if self.platform == "cpu":
            # an accelerator says itself when its memory does not suffice; the host's would end the process
            variant.temporaries = check_compiled(traced.lower().compile(), traced.jaxpr, self.island.operations)

    def _gains_on_one_thread(self, variant: Variant, program: Program, args: Sequence[Any]) -> bool:
        """Whether a traced variant is to run on the thread that calls it alone, with these arguments at first."""
        if self.device is not None or one_thread.sharding is None or not one_thread.takes(self._handles):
            return False
        # lists are more than one array
        lists = any(t.dtype is dtypes.variant for t in (*self.dynamic, *self.island.outputs))
        if lists or variant.one_thread or variant.watched or variant.calls_back:
            return False
        variables = args[len(self.dynamic) + len(self.constants) :]
        here = sum(v.nbytes for v in variables if one_thread.has(v))
        there = sum(v.nbytes for v in variables) - here
        # what is as quick on either goes where its variables are
        if self.island.is_alone:
            return there <= MOST_BYTES and gains(program, 1) is not False
        is_quicker = gains(program, processors())
        return there <= MOST_BYTES and (here > there if is_quicker is None else is_quicker)

    # ------------------------------------------------------------------ compiling in the background
    def _is_slow_to_compile(self, variant: Variant) -> bool:
        """Whether no step waits for a variant to be compiled; not where steps are to be repeated to the last bit."""
        large = self._compiler_work >= BACKGROUND_OPERATIONS
        return large and variant.direct_calls > 0 and kernel_mode() != "estimate"

    @staticmethod
    def _goes_on_directly(variant: Variant, args: Sequence[Any]) -> bool:
        """Whether the kernels run directly once more, since what takes the variant's place is being compiled."""
        if variant.begin_next is None or not variant.ran_directly:
            return False
        with variant.compiling:
            if variant.next is None:
                variant.next = variant.begin_next(args)
        # who still has this variant, when another one has taken its place, goes on with it. What could not be compiled
        # is compiled once more by the step that needs it, which is told why it cannot be
        failed = variant.next.done() and not variant.next.cancelled() and variant.next.exception() is not None
        return not failed

    def _begin_next(self, stored: Hashable, old: Variant, new: Variant, args: Sequence[Any]) -> Future[None]:
        arguments = list(args)

        def work() -> None:
            start = time.perf_counter()
            with cores.taken():
                in_wide_types(self._compile, new, arguments)
            new.seconds = time.perf_counter() - start
            with self._lock:
                if self._variants.get(stored) is old:
                    variants.add(self._variants, stored, new)

        return background.start(work)

    def _at_hand(self, variant: Variant, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments as a compiled variant takes them, when there is room for what it needs besides.

        Raises:
            ResourceExhaustedError: there is none. No argument has been given away yet.
        """
        args = self._crossed(variant, args)
        if not make_room(variant.temporaries, args):
            raise no_room(variant.temporaries, self.island.operations[-1], self.island.name)
        return args

    def _crossed(self, variant: Variant, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments as the client takes them that a variant was compiled for."""
        if variant.one_thread:
            if self._version != one_thread.version:
                self._leave_one_thread()
            return self._crossings.to_one_thread(args, one_thread.sharding_of(variant.client))
        return self._crossings.to_all_threads(args) if one_thread.in_use and self.device is None else args

    def _brought(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments, those of other devices brought to this executable's.

        Arrays of the host are taken along by the call itself, and variables are here (`IslandCall`).
        """
        if self.device is None:
            return args
        count = len(self.dynamic)
        inputs = [v if type(v) is np.ndarray or self.holds(v) else jax.device_put(v, self.device) for v in args[:count]]
        return [*inputs, *args[count:]]

    def _leave_one_thread(self) -> None:
        """Has variants made anew of which the variables are to stay where XLA has all its threads."""
        self._version = one_thread.version
        with self._lock:
            for stored, variant in list(self._variants.items()):
                if variant.one_thread and not one_thread.takes(self._handles):
                    del self._variants[stored]

    def holds(self, value: TensorValue) -> bool:
        """Whether a value is on this executable's device."""
        sharding = getattr(value, "sharding", None)
        # by identity at first: each result of a program has one of its own in every step, and to ask it takes longer
        if id(sharding) in self._here:
            return True
        if sharding is None or sharding.device_set != {self.device}:
            return False
        if len(self._here) >= MAX_PLACES:
            self._here.clear()
        self._here[id(sharding)] = sharding
        return True

    def _prepare(
        self,
        reason: str,
        static_values: Sequence[np.ndarray[Any, Any]],
        watched: bool,
        directly: bool = True,
        client: int = 0,
    ) -> Variant:
        checks: list[Check] = []
        notes: dict[str, None] = {}
        kernels: dict[str, KernelChoice] = {}
        fixed = dict(zip(self.static, static_values, strict=True))

        def island_program(*args: TensorValue) -> tuple[Any, ...]:
            loops = WatchedLoops(args[-1]) if watched else None
            with product_precision(self.platform):
                return self._program.trace(args[:-1] if watched else args, fixed, checks, notes, kernels, loops)

        first = len(self.dynamic) + len(self.constants) + len(self.read_only) + len(self.kept)
        donate = tuple(range(first, first + len(self.donated)))
        jitted = functools.partial(jax.jit, island_program, donate_argnums=donate, keep_unused=True)
        # without arguments on the device, this is what makes the program run there
        placement: dict[str, Any] = {"compiler_options": COMPILER_OPTIONS}
        if self.device is not None:
            placement["out_shardings"] = jax.sharding.SingleDeviceSharding(self.device)
        calls, elements = self._direct_calls() if directly and not watched else (0, 0)
        program = self._program
        run = DirectProgram(self.island, program.begin, program.known_with(fixed), elements, self._target, self.device)
        function = jitted(**placement)
        return Variant(function, run, checks, reason, notes, kernels, jitted, watched, client, direct_calls=calls)

    # ------------------------------------------------------------------ running kernels directly
    def _direct_calls(self) -> tuple[int, int]:
        """For how many calls the kernels of a new variant run directly, and how many elements they may give.

        Only on a processor, where their values are at hand. Lists, which are more than one array, loops, and much that
        only JAX computes (by programs for one operation, which are compiled, too), are left to the compiler.
        """
        foreign = self._foreign
        if self.platform != "cpu" or foreign is None:
            return 0, 0
        if len(self._variants) >= EAGER_VARIANTS:
            return (DIRECT_CALLS if sum(map(is_open, foreign)) <= MAX_FOREIGN else 0), MAX_DIRECT_ELEMENTS
        kinds = {(op.type, *(t.shape.dims_tuple for t in op.inputs)) for op in foreign}
        most = len(self.island.operations) // OPERATIONS_OF_FOREIGN
        few = not foreign or (len(kinds) <= most and not any(map(is_open, foreign)))
        elements = FIRST_ELEMENTS * self._compiler_work
        # what is known to be too much is not begun
        begins = few and sum(map(known_cost, self.island.operations)) <= elements
        return (FIRST_DIRECT_CALLS if begins else 0), elements

    def _worthwhile_calls(self, elements: int) -> int:
        """How many direct calls, each of which gives so many elements, take as long as the compilation; bounded."""
        call = len(self.island.operations) * DIRECT_OPERATION + elements * DIRECT_ELEMENT
        return min(int(self._compiler_work * COMPILED_OPERATION / call), MOST_DIRECT_CALLS)

    @functools.cached_property
    def _compiler_work(self) -> int:
        """How long the island takes to compile, in operations."""
        operations = self.island.operations
        return sum(COUNT_OF_CHOICE if has_alternates(op.type, op.attrs, settled=False) else 1 for op in operations)

    @functools.cached_property
    def _foreign(self) -> list[StepNode] | None:
        """The operations that only JAX computes; None if the island cannot run directly."""
        operations = self.island.operations
        if any(t.dtype is dtypes.variant for op in operations for t in (*op.inputs, *op.outputs)):
            return None
        if any(contains_loop(op) for op in operations):
            return None
        return [op for op in operations if _only_by_jax(op)]


def _only_by_jax(op: StepNode) -> bool:
    """Whether an operation computes something that only JAX can, in its own kernel or in functions that it calls."""
    if bodies_of(op):
        return any(_only_by_jax(inner) for body in bodies_of(op) for inner in body.operations)
    return not takes_numpy(op)


def failed_check(checks: Sequence[Check], flags: TensorValue, shown: Sequence[Any]) -> OpError:
    """The error of the first check whose flag is set."""
    at = 0
    for check, failed in zip(checks, np.asarray(flags), strict=True):
        count = len(check.values)
        if failed:
            return check.error(None, check.op, check.message.format(*map(ShownValue, shown[at : at + count])))
        at += count
    raise AssertionError("no check failed")


def _short(value: np.ndarray[Any, Any]) -> str:
    text = " ".join(np.array2string(value, threshold=8, separator=", ").split())
    return text if len(text) <= 60 else text[:57] + "..."
