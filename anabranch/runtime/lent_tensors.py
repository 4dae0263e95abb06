"""Tensors of other libraries in an accelerator's memory: fed as they lie there, and given by steps without a copy.

DLPack says where a tensor lies, and lends its memory. One in the host's memory is an array of NumPy like any other
(`frontend.feeds`). One in the memory of an accelerator becomes an array of JAX over the same memory. It stays there if
all that reads it in a step are islands of that accelerator, goes over to another one whose islands read it, and is
copied to the host for whatever else reads it.

A step has read what it was fed when `Session.run` returns, so that the lender may write there again from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import jax
import numpy as np

from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepTensor
from anabranch.runtime.devices import XlaDevice
from anabranch.runtime.fetched_values import fetched_value
from anabranch.xla.islands import Island
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.partitions import Partition

#: DLPack's numbers of devices whose memory the host reads: CPU, memory of the host that CUDA and ROCm have pinned
_OF_THE_HOST: Final = frozenset({1, 3, 11})


class DlpackTensor(Protocol):
    """A tensor of another library, as DLPack defines it."""

    def __dlpack__(self, **arguments: object) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def lent_array(value: DlpackTensor) -> jax.Array | None:
    """A tensor in an accelerator's memory as an array over that memory; None for what lies in the host's.

    Raises:
        ValueError: JAX does not reach that memory, or cannot describe the tensor (its strides, or its gradient).
    """
    try:
        kind = int(value.__dlpack_device__()[0])
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # it does not say where it is: whoever takes it otherwise may know more
    if kind in _OF_THE_HOST:
        return None
    if isinstance(value, jax.Array):
        return value
    try:
        array: jax.Array = in_wide_types(jax.dlpack.from_dlpack, value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"a tensor in the memory of an accelerator (DLPack's device type {kind}) cannot be taken as it lies there: "
            f"{(str(error) or type(error).__name__).splitlines()[0].rstrip('.')}"
        ) from error
    return array


def lent_to_host(value: DlpackTensor) -> TensorValue | None:
    """Like `lent_array`, for who has no accelerator: a copy on the host of what lies in an accelerator's memory."""
    array = lent_array(value)
    return None if array is None else np.asarray(array)


class LentFeeds:
    """Takes a step's feeds to where they are read.

    Args:
        partition: the step's only one.
        devices: the session's, by their names.
    """

    def __init__(self, partition: Partition, devices: Mapping[str, XlaDevice]) -> None:
        readers: dict[StepTensor, set[str | None]] = {tensor: set() for tensor in partition.feeds}
        for item in partition.items:
            # what is not compiled for the device reads arrays of the host
            reader = (item.device or partition.default_device) if isinstance(item, Island) else None
            for tensor in item.inputs:
                if tensor in readers:
                    readers[tensor].add(reader)
        self._places = [_only_place(readers[tensor], devices) for tensor in partition.feeds]

    def __call__(self, feeds: Sequence[TensorValue]) -> Sequence[TensorValue]:
        """The feeds, each where it is read; what lies in the host's memory stays there."""
        if not any(isinstance(value, jax.Array) for value in feeds):
            return feeds
        return [_taken_to(*pair) for pair in zip(self._places, feeds, strict=True)]


def _only_place(readers: set[str | None], devices: Mapping[str, XlaDevice]) -> XlaDevice | None:
    """The accelerator whose islands alone read a feed; None: it is read on the host."""
    if len(readers) != 1:
        return None
    (name,) = readers
    device = None if name is None else devices.get(name)
    return device if device is not None and device.is_far else None


def _taken_to(place: XlaDevice | None, value: TensorValue) -> TensorValue:
    if not isinstance(value, jax.Array):
        return value
    if place is None:
        return np.asarray(value)
    return value if value.devices() == {place.xla_device} else place.put(value)


class KeptFetches:
    """Gives fetches where they are asked for, each in memory that nobody else writes to.

    Args:
        partition: the step's only one.
        places: the device of each fetch that is to stay on one, by its position. The others come to the host.
    """

    def __init__(self, partition: Partition, places: Mapping[int, XlaDevice]) -> None:
        self._places = [places.get(position) for position in range(len(partition.fetches))]
        computed = {tensor for item in partition.items if isinstance(item, Island) for tensor in item.outputs}
        #: whether a program has made a fetch's array for this step alone; of two fetches of one tensor the first
        self._is_own: list[bool] = []
        for tensor in partition.fetches:
            self._is_own.append(tensor in computed)
            computed.discard(tensor)

    def __call__(self, values: Sequence[TensorValue]) -> list[TensorValue]:
        """Arrays of JAX in the memory of the devices asked for; of the host's processor, and else, arrays of NumPy."""
        return [_kept(*one) for one in zip(self._places, values, self._is_own, strict=True)]


def _kept(place: XlaDevice | None, value: TensorValue, is_own: bool) -> TensorValue:
    if place is None or not place.is_far or not isinstance(value, jax.Array | np.ndarray | np.generic):
        return fetched_value(value)
    if isinstance(value, jax.Array) and value.devices() == {place.xla_device}:
        return value if is_own else in_wide_types(jax.numpy.array, value)
    return place.put(value)
