"""What XLA ran during a step, and when: JAX's profiler told in terms of the graph's operations (WP9.2).

An island is one XLA program, whose pieces ("kernels") are fusions of what several operations compute. Lowering puts the
name of each operation into what XLA calls `op_name`; XLA keeps these names through its optimisations, and the profile
holds the programs beside the times. So a kernel can be told by the operations that it computes. A program that an
earlier process compiled, and that was found on the disk, is not in the profile: its kernels have XLA's names only.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax

from anabranch.proto import profile_pb2
from anabranch.runtime import trace_clock

_CLOCK: Final = "anabranch: clock"
_MARKS: Final = 5
_OUTER: Final = re.compile(r"^jit\([^)]*\)/")
#: the profiler is one for the process
_profiling = threading.Lock()


@dataclass(frozen=True)
class KernelEvent:
    """When one piece of an XLA program ran: times in seconds since the epoch.

    Attributes:
        kernel: XLA's name of it, such as "fusion.3".
        scopes: where what it computes comes from: paths that begin with names of operations; its own result's first.
        lane: the thread or stream that it ran on, by the profiler's number, and its name.
    """

    kernel: str
    scopes: tuple[str, ...]
    start: float
    end: float
    lane: int
    lane_name: str

    def operations(self, known: Collection[str]) -> tuple[str, ...]:
        """The operations that it computes, of those known; its own result's first."""
        names = (_operation_of(scope, known) for scope in self.scopes)
        return tuple(dict.fromkeys(name for name in names if name))


@contextlib.contextmanager
def profiled(events: list[KernelEvent]) -> Iterator[None]:
    """Adds what XLA runs in the block to `events`. Adds nothing while the process is being profiled already."""
    if not _profiling.acquire(blocking=False):
        yield
        return
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-profile-") as folder:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            try:
                jax.profiler.start_trace(folder, profiler_options=options)
            except RuntimeError:  # the program has a profile of its own under way
                yield
                return
            try:
                began = _set_clock_marks()
                yield
            finally:
                jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
            for file in Path(folder).rglob("*.xplane.pb"):
                events.extend(read_profile(profile_pb2.Space.FromString(file.read_bytes()), began))
    finally:
        _profiling.release()


class ProcessProfile:
    """A profile of the whole process between two calls, as TensorBoard reads it.

    Steps that are traced meanwhile have no kernels in their traces: the profiler is one for the process.

    Raises:
        RuntimeError: something is being profiled already.
    """

    def __init__(self) -> None:
        if not _profiling.acquire(blocking=False):
            raise RuntimeError("a profile is being made already")
        self._folder = tempfile.TemporaryDirectory(prefix="anabranch-profile-")
        try:
            jax.profiler.start_trace(self._folder.name)
        except BaseException:
            self._folder.cleanup()
            _profiling.release()
            raise

    def stop(self) -> bytes:
        """Ends the profile, once; returns it: a serialized `XSpace`, which is what a file `*.xplane.pb` holds."""
        try:
            with self._folder:
                jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
                return b"".join(file.read_bytes() for file in sorted(Path(self._folder.name).rglob("*.xplane.pb")))
        finally:
            _profiling.release()


def _set_clock_marks() -> list[float]:
    """Leaves marks in the profile, by which its clock is read; returns when each was set (seconds since the epoch)."""
    began = []
    for _ in range(_MARKS):
        began.append(trace_clock.now())
        with jax.profiler.TraceAnnotation(_CLOCK):
            pass
    return began


def read_profile(space: profile_pb2.Space, began: Sequence[float]) -> list[KernelEvent]:
    """The kernels in a profile, in the order of their beginnings.

    Args:
        space: a `profile_pb2.Space`.
        began: when its clock marks were set, in seconds since the epoch.
    """
    scopes = _scopes_of_kernels(space)
    marks: list[int] = []
    kernels: list[tuple[int, int, str, tuple[str, ...], Any]] = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns + event.offset_ps // 1000
                if plane.event_metadata[event.metadata_id].name == _CLOCK:
                    marks.append(start)
                stats = _stats_of(event, plane)
                if "hlo_op" in stats:
                    kernel = stats["hlo_op"]
                    module = f"{stats.get('hlo_module')}({stats.get('program_id')})"
                    # a kernel that ran directly is of no program, and bears its operation's name
                    own = () if "hlo_module" in stats else (kernel,)
                    origin = scopes.get((module, kernel), own)
                    kernels.append((start, start + event.duration_ps // 1000, kernel, origin, line))
    kernels.sort(key=lambda item: item[:2])
    # a thread may rest between reading the clock and setting the mark, which makes the offset too small
    offset = max((set_at - mark / 1e9 for set_at, mark in zip(began, sorted(marks), strict=False)), default=0.0)
    return [
        KernelEvent(kernel, origin, start / 1e9 + offset, end / 1e9 + offset, line.id, line.name)
        for start, end, kernel, origin, line in kernels
    ]


def _stats_of(event: profile_pb2.ProfileEvent, plane: profile_pb2.Plane) -> dict[str, Any]:
    """The values of an event by name; strings may be stored once, under a number."""
    stats = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value: Any = getattr(stat, kind) if kind else None
        stats[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if kind == "ref_value" else value
        )
    return stats


def _scopes_of_kernels(space: profile_pb2.Space) -> dict[tuple[str, str], tuple[str, ...]]:
    """By program and kernel: where its result comes from, then where what is fused into it comes from."""
    scopes_of: dict[tuple[str, str], tuple[str, ...]] = {}
    for plane in space.planes:
        for program in plane.event_metadata.values():
            for stat in program.stats:
                if plane.stat_metadata[stat.metadata_id].name == "Hlo Proto":
                    module = profile_pb2.HloProto.FromString(stat.bytes_value).hlo_module
                    for kernel, scopes in _scopes_in(module).items():
                        scopes_of[program.name, kernel] = scopes
    return scopes_of


def _scopes_in(module: profile_pb2.HloModuleProto) -> dict[str, tuple[str, ...]]:
    computations = {computation.id: computation.instructions for computation in module.computations}

    def gather(
        instruction: profile_pb2.HloInstructionProto, scopes: dict[str, None], seen: set[int]
    ) -> dict[str, None]:
        if instruction.metadata.op_name:
            scopes.setdefault(_OUTER.sub("", instruction.metadata.op_name))
        for called in instruction.called_computation_ids:
            # a computation may be called from several places
            if called not in seen:
                seen.add(called)
                for inner in computations.get(called, ()):
                    gather(inner, scopes, seen)
        return scopes

    return {
        instruction.name: tuple(gather(instruction, {}, set()))
        for instructions in computations.values()
        for instruction in instructions
    }


def _operation_of(scope: str, known: Collection[str]) -> str:
    """The longest beginning of a scope that is the name of an operation; "" if none is."""
    path = scope
    while path and path not in known:
        path = path.rpartition("/")[0]
    return path
