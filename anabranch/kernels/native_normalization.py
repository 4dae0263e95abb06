"""Batch normalization by oneDNN, where the extra `native` is installed: training, and its gradient; all data formats.

XLA goes over the data several times, and writes what it sums in float32 to memory in between. The library goes over it
twice in each direction. In float32, and in bfloat16 (with sums, means and variances in float32) on processors that have
instructions for it. Without training there is nothing to gain: XLA fuses what is left with its neighbours.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.crowding import RunnableComputation
from anabranch.kernels.onednn import NativeError, Strided
from anabranch.kernels.onednn_stages import Computation
from anabranch.ops.nn import windows
from anabranch.ops.nn.normalization import running_averages

#: what the texts of these computations begin with
KIND: Final = "normalization"
#: the versions of the operation; those after the first have vectors in float32 whatever the data
VERSIONS: Final = ("", "V2", "V3")


@dataclass(frozen=True, slots=True)
class Normalization:
    """Normalization of batches as the library describes it.

    Attributes:
        backward: whether it is the gradient.
        type: of the data, as the library calls it.
        lengths, strides: of the data (strides in elements): [batch, channels, *spatial].
        epsilon: is added to variances.
        relu: whether ReLU follows.
        added: whether something is added before the ReLU; the library itself cannot do so.
    """

    backward: bool
    type: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    epsilon: float
    relu: bool
    added: bool = False

    @staticmethod
    def of(
        attrs: Mapping[str, Any], shape: Sequence[int], dtype: object, backward: bool, relu: bool
    ) -> Normalization | None:
        """None where the operation does not train, or there is nothing."""
        layout = windows.layout_of(attrs["data_format"])
        if not attrs["is_training"] or len(shape) != layout.rank or 0 in shape:
            return None
        axes = (0, layout.channel, *layout.spatial)
        strides = onednn.row_strides(shape)
        lengths = tuple(int(shape[axis]) for axis in axes)
        places = tuple(strides[axis] for axis in axes)
        return Normalization(backward, onednn.TYPES[str(dtype)], lengths, places, float(attrs["epsilon"]), relu)

    @property
    def text(self) -> str:
        """What `native_calls.prepared` takes; the same in every process."""
        return f"{KIND} {json.dumps(asdict(self), separators=(',', ':'))}"

    @property
    def elements(self) -> int:
        return math.prod(self.lengths)


def mask_bytes(lengths: Sequence[int]) -> int:
    """How many bytes say of each element of an array whether it is positive, a bit each."""
    return -(-math.prod(map(int, lengths)) // 8)


# ---------------------------------------------------------------------- computations
def make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls. Forward: data, scale, offset -> y, mean, variance. Backward: data, gradient, mean,
    variance, scale -> gradients to the data, the scale and the offset. With ReLU what says where it is positive follows
    the results, and the operands of the gradient.
    """
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    values = json.loads(text)
    if values["added"]:
        raise NativeError("the library adds nothing to what it normalizes")
    data = Strided(tuple(values["lengths"]), tuple(values["strides"]), values["type"])
    vector = Strided((data.lengths[1],), (1,))
    described, epsilon, relu = library.described(data), values["epsilon"], values["relu"]
    forward = library.normalization(described, epsilon, relu)
    primitive = forward
    given = {onednn.SOURCE: data, onednn.SCALE: vector, onednn.SHIFT: vector}
    results = {onednn.DESTINATION: data, onednn.MEAN: vector, onednn.VARIANCE: vector}
    if values["backward"]:
        primitive = library.normalization(described, epsilon, relu, hint=forward)
        given = {onednn.SOURCE: data, onednn.DESTINATION_GRADIENT: data}
        given |= dict.fromkeys((onednn.MEAN, onednn.VARIANCE, onednn.SCALE), vector)
        results = {onednn.SOURCE_GRADIENT: data, onednn.SCALE_GRADIENT: vector, onednn.SHIFT_GRADIENT: vector}
    if relu:
        size = mask_bytes(data.lengths)
        if library.size(library.argument(forward, onednn.WORKSPACE)) != size:
            raise NativeError("the library says in another form where a normalization is positive")
        (given if values["backward"] else results)[onednn.WORKSPACE] = Strided((size,), (1,), onednn.UINT8)
    computation: RunnableComputation = Computation(library, primitive, given, results)
    if relu and not values["backward"]:
        computation = _SeeingNaN(computation, data, epsilon)
    sizes = [math.prod(array.lengths) for array in (*given.values(), *results.values())]
    return native_calls.Prepared(computation, tuple(sizes), len(results), spins=True)


class _SeeingNaN:
    """A normalization with ReLU which passes on what is no number; the library takes it for 0.

    A channel that holds some, or an infinity, has a mean or a variance that is not finite. Such channels are computed
    anew.
    """

    def __init__(self, computation: RunnableComputation, data: Strided, epsilon: float) -> None:
        self._computation, self._data, self._epsilon = computation, data, epsilon
        self._vector = Strided((data.lengths[1],), (1,))

    @property
    def scratch_bytes(self) -> int:
        return self._computation.scratch_bytes

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        self._computation.run(addresses, scratch, scratch_bytes)
        x, scale, offset, y, mean, variance, _ = addresses
        vectors = [native_calls.array_at(address, self._vector) for address in (scale, offset, mean, variance)]
        if math.isfinite(sum(float(vector.sum()) for vector in vectors)):
            return
        with np.errstate(all="ignore"):
            lost = ~np.isfinite(vectors).all(0)
            # [channels, 1, ...], as the data are [batch, channels, ...]
            of_lost = [vector[lost].reshape(-1, *[1] * (len(self._data.lengths) - 2)) for vector in vectors]
            factor = of_lost[0] / np.sqrt(of_lost[3] + np.float32(self._epsilon))
            normal = (native_calls.array_at(x, self._data)[:, lost] - of_lost[2]) * factor + of_lost[1]
            native_calls.array_at(y, self._data)[:, lost] = np.maximum(normal, np.float32(0))


native_calls.register_maker(KIND, make)


@functools.lru_cache(1024)
def usable(normalization: Normalization) -> bool:
    """Whether the library has an implementation that is worth while."""
    return normalization.elements <= onednn.MOST_ELEMENTS and native_calls.can_prepare(normalization.text)


# ---------------------------------------------------------------------- the kernels
#: what share of XLA's time it takes, forward and backward, and how many elements XLA's kernels normalize in a second
_SHARES: Final = (0.5, 0.4)
_ELEMENTS_PER_SECOND: Final = 2e8
_CALL_SECONDS: Final = 25e-6


class _Kernels:
    """The kernels of a normalization and of its gradient, in one version.

    Args:
        suffix: what the names of the operations end with.
        relu: whether ReLU follows.
    """

    def __init__(self, name: str, suffix: str, types: dict[str, Any], relu: bool) -> None:
        self._relu = relu
        #: how many reserved outputs the normalization has
        self._third = relu or suffix == "V3"
        for backward, kernel in ((False, self._forward), (True, self._backward)):
            register_kernel(
                f"{name}{'Grad' if backward else ''}{suffix}",
                "onednn",
                device_type="CPU",
                types=types,
                applies=functools.partial(self._takes, backward),
                cost=functools.partial(estimate, backward),
                rough=native_calls.is_rough,
                calls_back=True,
                takes_numpy=True,
            )(kernel)

    def _described(
        self, attrs: Mapping[str, Any], shape: Sequence[int], dtype: object, backward: bool
    ) -> Normalization | None:
        return Normalization.of(attrs, shape, dtype, backward, self._relu)

    def _takes(self, backward: bool, case: KernelCase) -> bool:
        library = onednn.library()
        data = case.inputs[_DATA_AT[backward]]
        if library is None or not library.computes(data.dtype):
            return False
        vectors = case.inputs[2:5] if backward else case.inputs[1:3]
        normalization = self._described(case.attrs, data.shape, data.dtype, backward)
        if normalization is None or (backward and tuple(case.inputs[0].shape) != tuple(data.shape)):
            return False
        # where y is positive is known in this form if this kernel has computed it
        if backward and self._relu and tuple(case.inputs[6].shape) != (mask_bytes(data.shape),):
            return False
        channels = normalization.lengths[1]
        return all(tuple(one.shape) == (channels,) for one in vectors) and usable(normalization)

    def _forward(
        self, x: Array, scale: Array, offset: Array, mean: Array, variance: Array, *, ctx: OperationContext
    ) -> Any:
        one = self._described(ctx.op.attrs, x.shape, x.dtype, backward=False)
        assert one is not None  # `takes` has said so
        vector = (tuple(scale.shape), scale.dtype)
        results: list[Any] = [(tuple(x.shape), x.dtype), vector, vector]
        if self._relu:
            results.append(((mask_bytes(x.shape),), np.uint8))
        y, own_mean, own_variance, *positive = native_calls.call_several(
            ctx.op.name, one.text, (x, scale, offset), results
        )
        running = running_averages(
            own_mean, own_variance, (mean, variance), one.elements // one.lengths[1], ctx.op.attrs
        )
        third = [np.zeros((), scale.dtype)] if self._third else []
        return [y, *running, own_mean, own_variance, *third, *positive]

    def _backward(
        self, grad: Array, x: Array, scale: Array, mean: Array, variance: Array, *rest: Array, ctx: OperationContext
    ) -> Any:
        one = self._described(ctx.op.attrs, x.shape, x.dtype, backward=True)
        assert one is not None  # `takes` has said so
        vector = (tuple(scale.shape), scale.dtype)
        results = [(tuple(x.shape), x.dtype), vector, vector]
        given = (x, grad, mean, variance, scale, *(rest[1:] if self._relu else ()))
        spare = [np.zeros(0, scale.dtype)] * 2
        return [*native_calls.call_several(ctx.op.name, one.text, given, results), *spare]


#: where the data stand among the inputs of the normalization, and of its gradient
_DATA_AT: Final = (0, 1)


def estimate(backward: bool, case: KernelCase) -> float:
    elements = math.prod(case.inputs[_DATA_AT[backward]].shape)
    return _SHARES[backward] + _CALL_SECONDS * _ELEMENTS_PER_SECOND / elements


_FLOATS: Final = {"T": [dtypes.float32, dtypes.bfloat16], "U": [dtypes.float32]}

for _version in VERSIONS:
    _Kernels("FusedBatchNorm", _version, _FLOATS if _version else {"T": [dtypes.float32]}, relu=False)
_Kernels("_FusedBatchNormRelu", "", _FLOATS, relu=True)
