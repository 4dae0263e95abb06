"""Computations by oneDNN: its primitives one after the other, on arrays of the caller's.

`Stages` are any primitives. A `Computation` is one of them with the reorders around it, from and to arrays in the
layouts that the caller has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.kernels import onednn
from anabranch.kernels.crowding import RunnableComputation
from anabranch.kernels.onednn import DESTINATION, SCRATCHPAD, SOURCE, Argument, Handle, Library, NativeError, Strided

#: arrays inside the scratch memory begin at multiples of it (bytes)
_ALIGNMENT: Final = 64


class _Stage(NamedTuple):
    """A primitive and its arguments."""

    primitive: Handle
    arguments: ctypes.Array[Argument]


class Stages:
    """Primitives that run one after the other, on arrays of the caller's and on others between them in its memory.

    Args:
        outer: the caller's arrays, in the order in which `run` takes their addresses.
        inner: the addresses of the descriptions of the arrays between the stages.
        stages: descriptions of primitives, with their arguments -> arrays, as numbers of [*outer, *inner].
    """

    def __init__(
        self,
        library: Library,
        outer: Sequence[Handle],
        inner: Sequence[int],
        stages: Sequence[tuple[Handle, Mapping[int, int]]],
    ) -> None:
        self._library = library
        self.outer, self.inner, self.described = tuple(outer), tuple(inner), tuple(stages)
        #: where the inner arrays begin in the caller's memory (bytes)
        self._places: list[int] = []
        end = 0
        for description in inner:
            self._places.append(end)
            end += _aligned(library.size(description))
        #: where each stage's own scratch memory begins; they run one after the other, and share it
        self._shared = end
        end += max(_aligned(library.size(library.scratchpad(primitive))) for primitive, _ in stages)
        #: what `run` needs besides the arrays; 0 if nothing
        self.scratch_bytes = end + _ALIGNMENT if end else 0
        self._stages: list[_Stage] | None = None
        self._memories: list[Handle] = []
        self._in_scratch: list[tuple[Handle, int]] = []
        self._own_scratch: ctypes.Array[ctypes.c_char] | None = None

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        """Computes.

        Args:
            addresses: of the caller's arrays, in order.
            scratch: the address of memory to work in. Where it is too small (another process, with other threads, may
                have said how much), memory of this computation's own is used.

        Raises:
            NativeError: the library says that it failed.
        """
        with self._library.lock:
            stages = self._stages if self._stages is not None else self._prepare()
            if scratch_bytes < self.scratch_bytes:
                if self._own_scratch is None:
                    self._own_scratch = ctypes.create_string_buffer(self.scratch_bytes)
                scratch = ctypes.addressof(self._own_scratch)
            start = _aligned(scratch)
            set_data = self._library.set_data
            for memory, address in zip(self._memories, addresses, strict=True):
                set_data(memory.value, address)
            for memory, place in self._in_scratch:
                set_data(memory.value, start + place)
            execute, stream = "dnnl_primitive_execute", self._library.stream.value
            for stage in stages:
                self._library.call(execute, stage.primitive.value, stream, len(stage.arguments), stage.arguments)

    def _prepare(self) -> list[_Stage]:
        """Compiles the primitives, and makes their arguments."""
        library = self._library
        memories = [library.memory(description.value) for description in self.outer]
        between = [library.memory(description) for description in self.inner]
        in_scratch = list(zip(between, self._places, strict=True))
        every = [*memories, *between]
        stages = []
        for primitive, arguments in self.described:
            scratchpad = library.memory(library.scratchpad(primitive))
            in_scratch.append((scratchpad, self._shared))
            given = [*((argument, every[at]) for argument, at in arguments.items()), (SCRATCHPAD, scratchpad)]
            values = (Argument * len(given))(*(Argument(argument, memory.value) for argument, memory in given))
            stages.append(_Stage(library.compiled(primitive), values))
        self._memories, self._in_scratch, self._stages = memories, in_scratch, stages
        return stages


class _Narrow:
    """A computation whose primitives were made for one thread, and which runs on one."""

    def __init__(self, library: Library, computation: RunnableComputation) -> None:
        self._library, self._computation = library, computation

    @property
    def scratch_bytes(self) -> int:
        return self._computation.scratch_bytes

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        with self._library.one_thread():
            self._computation.run(addresses, scratch, scratch_bytes)


def on_one_thread(make: Callable[[], RunnableComputation]) -> RunnableComputation:
    """Has a computation of the library made that runs on one thread alone.

    Raises:
        NativeError: there is no library.
    """
    found = onednn.library()
    if found is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    with found.one_thread():
        return _Narrow(found, make())


class Computation(Stages):
    """A primitive, and copies from and to the layouts of the caller where the primitive wants others.

    Args:
        primitive: its description.
        given: arguments that are read -> their arrays; `run` takes them in this order.
        results: arguments that are written -> their arrays; they follow.

    Raises:
        NativeError: the library has no quick way to change a layout.
    """

    def __init__(
        self, library: Library, primitive: Handle, given: Mapping[int, Strided], results: Mapping[int, Strided]
    ) -> None:
        self.implementation = library.implementation(primitive)
        arrays = [*given.items(), *results.items()]
        outer = [library.described(array) for _, array in arrays]
        inner: list[int] = []
        before, after = [], []
        places: dict[int, int] = {}
        for at, ((argument, _), mine) in enumerate(zip(arrays, outer, strict=True)):
            wanted = library.argument(primitive, argument)
            places[argument] = at
            if library.same(wanted, mine.value):
                continue
            places[argument] = place = len(arrays) + len(inner)
            inner.append(wanted)
            # what is read is copied before, what is written after
            if at < len(given):
                before.append((library.reorder(mine.value, wanted), {SOURCE: at, DESTINATION: place}))
            else:
                after.append((library.reorder(wanted, mine.value), {SOURCE: place, DESTINATION: at}))
        #: how many of its arrays are copied into or from another layout
        self.reorders = len(inner)
        super().__init__(library, outer, inner, [*before, (primitive, places), *after])


def _aligned(number: int) -> int:
    return -(-number // _ALIGNMENT) * _ALIGNMENT
