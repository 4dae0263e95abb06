"""Variables that are only sent to other tasks: their buffers go as they are, with no program and no copy (§4.2).

Parameters are read in every step of every worker, so that a copy of each would be most of what a step costs a
parameter server. A read that is only sent gives the Send a host array that shows the variable's own buffer, and pins
the variable (docs/decisions/0012-readers-pin-writers-copy.md) until nobody holds that array any more: the socket lets
go of it when its bytes are out. A small value is copied, as its message would do anyway: that is quicker than to pin.
"""

from __future__ import annotations

from itertools import compress, repeat
from typing import Any, Final

import jax
import numpy as np

from anabranch.graph.step_nodes import StepTensor
from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.island_call import IslandCall, acquire, drain, is_locked, pin, release, unpin
from anabranch.runtime.item_call import ItemCall, Recorder
from anabranch.runtime.published_values import Board, PublishedValue, is_on_host, small_content
from anabranch.runtime.step_frame import StepFrame
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall, Island
from anabranch.xla.partitions import Partition
from anabranch.xla.state import known_handle

_READ: Final = "ReadVariableOp"


def is_only_sent(island: Island, partition: Partition) -> bool:
    """Whether an island only reads variables, and each is only sent to other tasks."""
    if any(op.type != _READ or known_handle(op.inputs[0]) is None for op in island.operations):
        return False
    outputs = set(island.outputs)
    if outputs.intersection(partition.fetches):
        return False
    return all(
        isinstance(item, HostCall) and item.operation.op_def.is_transfer and crosses_tasks(item.operation)
        for item in partition.items
        if outputs.intersection(item.inputs)
    )


def pinned_read(call: IslandCall, slots: dict[Any, int], containers: Containers) -> PinnedReadCall:
    """What runs in place of a call of an island that `is_only_sent`."""
    handles = [known_handle(tensor.op.inputs[0]) for tensor in call.island.outputs]
    return PinnedReadCall(call, slots, [containers.variable(handle) for handle in handles if handle is not None])


class PinnedReadCall(ItemCall):
    """In place of a call of an island that `is_only_sent`.

    Args:
        island: runs where a variable has no buffer in the host's memory, and says so where it has no value.
        variables: those that the island's outputs are the values of, in their order.
    """

    def __init__(self, island: IslandCall, slots: dict[Any, int], variables: list[VariableState]) -> None:
        self._island = island
        self.op, self.operations = island.op, island.operations
        self.kind, self.device = island.kind, island.device
        self._variables = variables
        self._slots = [slots[t] for t in island.island.outputs]
        # in the order in which islands lock them
        ordered = {(s.handle.container, s.handle.name): s for s in variables}
        self._locks = [ordered[key].lock for key in sorted(ordered)]

    @property
    def sources(self) -> list[str]:
        """The names of the operations whose results it takes."""
        return self._island.sources

    def release(self) -> None:
        """Releases the island's executables."""
        self._island.release()

    def is_quick(self) -> bool:
        """Whether nobody has locked its variables."""
        return not any(map(is_locked, self._locks))

    def publish(self, board: Board) -> list[tuple[StepTensor, PublishedValue]] | None:
        """Lets other processes see the values from now on; None where one has none that they could."""
        published: list[tuple[StepTensor, PublishedValue]] = []
        for tensor, state in zip(self._island.island.outputs, self._variables, strict=True):
            # nobody changes it between what is shown and the mark that it is shown
            with state.lock:
                slot = board.publish(state)
            if slot is None:
                return None
            published.append((tensor, slot))
        return published

    def run_recorded(self, frame: StepFrame, record: Recorder) -> None:
        """Runs the island, which tells what it did."""
        self._island.run_recorded(frame, record)

    def __call__(self, frame: StepFrame) -> None:
        """Pins the variables, and stores what shows their buffers.

        Raises:
            FailedPreconditionError: a variable has no value.
        """
        taken: list[np.ndarray[Any, Any] | _Pin] = []
        held: list[bool] = []
        undo = map(release, compress(self._locks, held))
        try:
            held.extend(map(acquire, self._locks))
            for state in self._variables:
                value = state.value
                if not is_on_host(value):
                    break
                content = small_content(value)
                if content is None:
                    taken.append(_Pin(state, value))
                    continue
                taken.append(np.frombuffer(content, value.dtype).reshape(value.shape))
                if state.published is not None:
                    # nobody had shown it since it was changed
                    state.published.show(value)
        finally:
            drain(undo)
        if len(taken) < len(self._variables):
            # before anything is raised: an error keeps what its frames hold
            taken.clear()
            self._island(frame)
            return
        for slot, one in zip(self._slots, taken, strict=True):
            frame.values[slot] = one.shown() if isinstance(one, _Pin) else one


class _Pin:
    """Keeps a variable, which is locked when this is made, pinned for as long as anybody holds it or what it shows.

    Args:
        state: the variable.
        value: the variable's, in the host's memory.
    """

    __slots__ = ("__array_interface__", "_noted", "_pins", "_state", "_value")

    def __init__(self, state: VariableState, value: jax.Array) -> None:
        # in a list of its own: pinning and unpinning are a `map` over lists, drawn in one call
        self._state, self._pins = state, [state.pins]
        self._noted: list[None] = []
        self._value = value
        # pinned and noted in one call, so that an exception from outside finds both or neither (see `island_call`)
        self._noted.extend(map(pin, self._pins, repeat(None)))

    def shown(self) -> np.ndarray[Any, Any]:
        """An array that shows the buffer, and keeps it pinned."""
        value = self._value
        # whoever reads by address does not wait for the program that computes the value, as users of the JAX array do
        value.block_until_ready()
        dtype = np.dtype(value.dtype)
        # by its address: an array that JAX gives is kept by JAX, and would forbid the next writer to take the buffer
        self.__array_interface__ = {
            "version": 3,
            "data": (value.unsafe_buffer_pointer(), True),
            # as bytes: the type string of bfloat16 and its kind is that of raw bytes ("<V2"), which `view` mends below
            "shape": (value.size * dtype.itemsize,),
            "typestr": "|u1",
        }
        shown: np.ndarray[Any, Any] = np.asarray(self).view(dtype).reshape(value.shape)
        return shown

    def __del__(self) -> None:
        # without the variable's lock, which the thread that drops the last array may hold itself (the garbage collector
        # runs on any thread, wherever that allocates). Removing None from a list of None runs no Python code, so that
        # nobody sees half of it; nothing is noted where `take` did not pin
        drain(map(unpin, self._pins, self._noted))
