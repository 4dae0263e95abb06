"""Pooling by oneDNN, where the extra `native` is installed: averages, and the gradients of averages and of maxima.

In float32 and in bfloat16, in all data formats. The gradient of a maximum finds the maxima again, in one pass that
remembers their places (unless those are known), and then puts each value at its place: XLA compares every element once
for each window that sees it. Where data has no number (NaN), the maximum has no place, and the gradient of that window
is zero, as by the operation's own kernel. The kernels of maxima, and of their gradient where the places are known, are
in `native_maxima`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import numpy as np
from jax import numpy as jnp

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, KernelInput, register_kernel
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.onednn import NativeError, Strided
from anabranch.kernels.onednn_stages import Computation, Stages
from anabranch.ops.nn import windows
from anabranch.ops.nn.ordered_bits import has_numbers_alone
from anabranch.ops.nn.pool import largest_seen, pool_window
from anabranch.ops.nn.sliding import Window

#: what the texts of these computations begin with
KIND: Final = "pooling"
_AVERAGE, _AVERAGE_GRADIENT, MAXIMUM_GRADIENT, LARGEST, GRADIENT_AT_PLACES = range(5)
#: summands of a sum in bfloat16 that may be rounded after each
_MOST_SUMS: Final = 9


@dataclass(frozen=True, slots=True)
class Pooling:
    """Pooling as the library describes it; lengths in the library's order of axes.

    Attributes:
        what: 0: averages, 1: their gradient, 2: the gradient of maxima, 3: maxima of what are numbers, and
            their places, 4: their gradient from these.
        type: of the arrays, as the library calls it.
        data, output: lengths and strides (elements) of [batch, channels, *spatial].
        size, strides, low, high: of each spatial axis.
    """

    what: int
    type: int
    data: tuple[tuple[int, ...], tuple[int, ...]]
    output: tuple[tuple[int, ...], tuple[int, ...]]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def of(what: int, type: int, window: Window, data_format: bytes) -> Pooling | None:
        """None where the window spans batch or channels, lies in the padding alone, or there is nothing."""
        layout = windows.layout_of(data_format)
        axes = (0, layout.channel, *layout.spatial)
        if 0 in (*window.lengths, *window.outputs) or window.size[0] != 1 or window.size[layout.channel] != 1:
            return None
        if window.strides[0] != 1 or window.strides[layout.channel] != 1:
            return None
        size, pads = layout.pick(window.size), layout.pick(window.pads)
        if any(max(pair) >= taps for pair, taps in zip(pads, size, strict=True)):
            return None
        low, high = zip(*pads, strict=True)
        arrays = (_placed(window.lengths, axes), _placed(window.outputs, axes))
        return Pooling(what, type, *arrays, *map(_integers, (size, layout.pick(window.strides), low, high)))

    @property
    def text(self) -> str:
        """What `native_calls.prepared` takes; the same in every process."""
        # flat: `asdict` would copy each tuple of numbers, again and again, which a network's first step would feel
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return f"{KIND} {json.dumps(values, separators=(',', ':'))}"

    @property
    def exact(self) -> bool:
        """Whether sums are rounded seldom enough: gradients of channels that lie last are rounded at each addition."""
        windows_of_one = math.prod(-(-taps // stride) for taps, stride in zip(self.size, self.strides, strict=True))
        channels_last = self.data[1][1] == 1
        return (
            self.type == onednn.FLOAT32
            or self.what in {_AVERAGE, LARGEST}
            or not channels_last
            or windows_of_one <= _MOST_SUMS
        )

    @property
    def seen(self) -> int:
        """How many elements all positions of the window see."""
        return math.prod(self.output[0]) * math.prod(self.size)


def _placed(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = onednn.row_strides(shape)
    return tuple(int(shape[axis]) for axis in axes), tuple(strides[axis] for axis in axes)


def _integers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, values))


# ---------------------------------------------------------------------- computations
def make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls: the computation of a text, without its first word."""
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    values = json.loads(text)
    data, output = (_strided(values[name], values["type"]) for name in ("data", "output"))
    described = library.described(data), library.described(output)
    window = [onednn.dimensions(values[name]) for name in ("strides", "size")]
    window += [onednn.dimensions([0] * len(values["size"])), *(onednn.dimensions(values[n]) for n in ("low", "high"))]
    kind = onednn.AVERAGE if values["what"] in {_AVERAGE, _AVERAGE_GRADIENT} else onednn.MAXIMUM
    arguments = (kind, *(each.value for each in described), *window)
    forward = library.pooling(*arguments)
    sizes = [math.prod(array.lengths) for array in (data, output)]
    if values["what"] in {LARGEST, GRADIENT_AT_PLACES}:
        places = library.layout(forward, onednn.WORKSPACE)
        # and a byte for whether all data are numbers
        bytes = library.size(places.value) + 1
        if values["what"] == LARGEST:
            named = {onednn.SOURCE: 0, onednn.DESTINATION: 1, onednn.WORKSPACE: 2}
            stages = Stages(library, (*described, places), [], [(forward, named)])
            largest = Largest(stages, data, output, bytes, _window(values))
            return native_calls.Prepared(largest, (*sizes, bytes), 2)
        named = {onednn.DESTINATION_GRADIENT: 0, onednn.WORKSPACE: 1, onednn.SOURCE_GRADIENT: 2}
        backward = library.pooling(*arguments, hint=forward)
        stages = Stages(library, (described[1], places, described[0]), [], [(backward, named)])
        return native_calls.Prepared(AtPlaces(stages, output, bytes), (sizes[1], bytes, sizes[1], sizes[0]))
    if values["what"] == _AVERAGE:
        computation = Computation(library, forward, {onednn.SOURCE: data}, {onednn.DESTINATION: output})
        return native_calls.Prepared(computation, tuple(sizes))
    backward = library.pooling(*arguments, hint=forward)
    if values["what"] == _AVERAGE_GRADIENT:
        given, result = {onednn.DESTINATION_GRADIENT: output}, {onednn.SOURCE_GRADIENT: data}
        return native_calls.Prepared(Computation(library, backward, given, result), tuple(reversed(sizes)))
    return native_calls.Prepared(_maximum_gradient(library, forward, backward, *described), (*sizes, sizes[0]))


def _strided(placed: list[list[int]], type: int) -> Strided:
    lengths, strides = map(tuple, placed)
    return Strided(lengths, strides, type)


def _maximum_gradient(
    library: onednn.Library,
    forward: onednn.Handle,
    backward: onednn.Handle,
    data: onednn.Handle,
    output: onednn.Handle,
) -> Stages:
    """From data and what comes in for the maxima to what goes to the data; between them maxima and their places."""
    one, grad, result, maxima, places = range(5)
    first = {onednn.SOURCE: one, onednn.DESTINATION: maxima, onednn.WORKSPACE: places}
    second = {onednn.DESTINATION_GRADIENT: grad, onednn.WORKSPACE: places, onednn.SOURCE_GRADIENT: result}
    inner = [output.value, library.argument(forward, onednn.WORKSPACE)]
    return Stages(library, (data, output, data), inner, [(forward, first), (backward, second)])


def _window(values: Mapping[str, Any]) -> Window:
    """The window over data in the library's order of axes, [batch, channels, *spatial]."""
    size, strides = ((1, 1, *values[name]) for name in ("size", "strides"))
    pads = ((0, 0), (0, 0), *zip(values["low"], values["high"], strict=True))
    return Window(size, strides, (1,) * len(size), pads, tuple(values["data"][0]), tuple(values["output"][0]))


class Largest:
    """Maxima and their places, of data that may hold what is no number, or minus infinity, which the library skips."""

    def __init__(self, stages: Stages, data: Strided, output: Strided, bytes: int, window: Window) -> None:
        self.stages, self._data, self._output, self._bytes, self._window = stages, data, output, bytes, window

    @property
    def scratch_bytes(self) -> int:
        return self.stages.scratch_bytes

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        data, _, places = addresses
        self.stages.run(addresses, scratch, scratch_bytes)
        # in the order in which they lie
        skipped = not has_numbers_alone(native_calls.array_at(data, _flat(self._data)), bounded=True)
        if skipped:
            self.compute_maxima(addresses)
        _mark_at(places, self._bytes).value = skipped

    def compute_maxima(self, addresses: Sequence[int]) -> None:
        """Computes the maxima as the operation's own kernel does."""
        data, output, _ = addresses
        seen = native_calls.array_at(data, self._data)
        native_calls.array_at(output, self._output)[:] = largest_seen(np, seen, self._window)


class AtPlaces:
    """The gradient of maxima from their places; that of a maximum that is no number is zero."""

    def __init__(self, stages: Stages, output: Strided, bytes: int) -> None:
        self.stages, self._output, self._bytes = stages, _flat(output), bytes

    @property
    def scratch_bytes(self) -> int:
        return self.stages.scratch_bytes

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        grad, places, maxima, result = addresses
        if _mark_at(places, self._bytes).value:
            seen = ~np.isnan(native_calls.array_at(maxima, self._output))
            kept = np.where(seen, (given := native_calls.array_at(grad, self._output)), given.dtype.type(0))
            self.stages.run([kept.ctypes.data, places, result], scratch, scratch_bytes)
        else:
            self.stages.run([grad, places, result], scratch, scratch_bytes)


def _flat(array: Strided) -> Strided:
    return Strided((math.prod(array.lengths),), (1,), array.type)


def _mark_at(places: int, bytes: int) -> ctypes.c_uint8:
    """What says whether the library has skipped something: the last byte of the places."""
    return ctypes.c_uint8.from_address(places + bytes - 1)


native_calls.register_maker(KIND, make)


@functools.lru_cache(1024)
def usable(pooling: Pooling) -> bool:
    """Whether the library has an implementation that is worth while."""
    elements = max(math.prod(array[0]) for array in (pooling.data, pooling.output))
    return elements <= onednn.MOST_ELEMENTS and pooling.exact and native_calls.can_prepare(pooling.text)


# ---------------------------------------------------------------------- the kernels
#: what share of XLA's time the three take, in float32 and in bfloat16. In programs XLA makes a padded copy of an
#: average's gradient for each tap, which it does not where that is measured alone
_SHARES: Final = {onednn.FLOAT32: (0.6, 0.6, 0.25), onednn.BFLOAT16: (0.4, 0.4, 0.1)}
#: the same where windows stand side by side, whose elements XLA adds or compares once
_DISJOINT_SHARES: Final = {onednn.FLOAT32: (1.3, 1.1, 1.1), onednn.BFLOAT16: (1.3, 1.1, 0.6)}
#: elements that XLA's kernels see per second, of averages and of the gradient of maxima
_SEEN_PER_SECOND: Final = (5e9, 3e9, 3e8)
_CALL_SECONDS: Final = 25e-6


def cost(pooling: Pooling) -> float:
    """What share of XLA's time it takes, of averages, their gradient, and the gradient of maxima."""
    share = (_DISJOINT_SHARES if pooling.size == pooling.strides else _SHARES)[pooling.type][pooling.what]
    return share + _CALL_SECONDS * _SEEN_PER_SECOND[pooling.what] / pooling.seen


class Pooled(NamedTuple):
    """An operation that pools.

    Attributes:
        what: what it computes.
        operands: the inputs that the call reads; the last one tells the type.
        shape: the input that has the data's shape, or (where it is static) is it.
        pooled: the inputs that are shaped as the pooled data.
        sizes: the inputs that are the window's size and strides, where they are no attributes.
    """

    op_type: str
    what: int
    operands: tuple[int, ...]
    shape: int
    pooled: tuple[int, ...] = ()
    sizes: tuple[int, int] | None = None

    def pooling(self, attrs: Mapping[str, Any], inputs: Sequence[KernelInput]) -> Pooling | None:
        """What is computed; None where the library cannot, or the operation's own kernel refuses it."""
        given = dict(attrs)
        if self.sizes is not None:
            size, strides = (inputs[at].value for at in self.sizes)
            if size is None or strides is None:
                return None
            given["ksize"], given["strides"] = [int(n) for n in size], [int(n) for n in strides]
        data = inputs[self.shape]
        shape = data.shape if self.shape in self.operands else data.value
        if shape is None or len(shape) != windows.layout_of(attrs["data_format"]).rank:
            return None
        try:
            window = pool_window([int(n) for n in shape], given)
        except ValueError:
            return None
        if any(tuple(inputs[at].shape) != tuple(window.outputs) for at in self.pooled):
            return None
        dtype = inputs[self.operands[-1]].dtype
        return Pooling.of(self.what, onednn.TYPES[str(dtype)], window, attrs["data_format"])


OPERATIONS: Final = (
    Pooled("AvgPool", _AVERAGE, (0,), 0),
    Pooled("AvgPool3D", _AVERAGE, (0,), 0),
    Pooled("AvgPoolGrad", _AVERAGE_GRADIENT, (1,), 0, (1,)),
    Pooled("AvgPool3DGrad", _AVERAGE_GRADIENT, (1,), 0, (1,)),
    Pooled("MaxPoolGrad", MAXIMUM_GRADIENT, (0, 2), 0, (1, 2)),
    Pooled("MaxPoolGradV2", MAXIMUM_GRADIENT, (0, 2), 0, (1, 2), (3, 4)),
)


def _register(operation: Pooled) -> None:
    def takes(case: KernelCase) -> bool:
        library = onednn.library()
        if library is None or not library.computes(case.inputs[operation.operands[-1]].dtype):
            return False
        pooling = operation.pooling(case.attrs, case.inputs)
        return pooling is not None and usable(pooling)

    def estimate(case: KernelCase) -> float:
        pooling = operation.pooling(case.attrs, case.inputs)
        assert pooling is not None  # `takes` has said so
        return cost(pooling)

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        static = {operation.shape, *(operation.sizes or ())} - set(operation.operands)
        described = [
            KernelInput(tuple(value.shape), value.dtype, value if at in static else None)
            for at, value in enumerate(inputs)
        ]
        pooling = operation.pooling(ctx.op.attrs, described)
        assert pooling is not None  # `takes` has said so
        given = [inputs[at] for at in operation.operands]
        shape = result_shape(pooling, ctx.op.attrs["data_format"])
        if pooling.what == MAXIMUM_GRADIENT:
            given[1] = where_a_number(inputs[1], given[1])
        return native_calls.call(ctx.op.name, pooling.text, given, shape, given[-1].dtype)

    register_kernel(
        operation.op_type,
        "onednn",
        device_type="CPU",
        types={"T": [dtypes.float32, dtypes.bfloat16]},
        applies=takes,
        cost=estimate,
        rough=native_calls.is_rough,
        calls_back=True,
        takes_numpy=True,
    )(kernel)


def where_a_number(maxima: Array, grad: Array) -> Array:
    """The gradients of maxima; zero of those that are no number, which are seen nowhere."""
    xp: ArrayLibrary = np if isinstance(grad, np.ndarray) else jnp
    if xp is np and has_numbers_alone(maxima):
        return grad
    return xp.where(xp.isnan(maxima), np.zeros((), grad.dtype), grad)


def result_shape(pooling: Pooling, data_format: bytes) -> tuple[int, ...]:
    """The shape of what is computed, in the order of axes that the program has."""
    batch, channels, *spatial = (pooling.output if pooling.what in {_AVERAGE, LARGEST} else pooling.data)[0]
    layout = windows.layout_of(data_format)
    return tuple(int(n) for n in layout.shape(batch, channels, spatial))


for _operation in OPERATIONS:
    _register(_operation)
