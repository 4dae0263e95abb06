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
from anabranch.core.kernel_context import KernelOperation, OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.onednn import Computation, NativeError, Stages, Strided
from anabranch.ops.nn import windows
from anabranch.ops.nn.normalization import running_averages

#: what the texts of these computations begin with
_KIND: Final = "normalization"
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
        relu: whether ReLU follows (forward only). The library takes NaN for negative.
    """

    backward: bool
    type: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    epsilon: float
    relu: bool = False

    @staticmethod
    def of(
        attrs: Mapping[str, Any], shape: Sequence[int], dtype: object, backward: bool, relu: bool = False
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
        return f"{_KIND} {json.dumps(asdict(self), separators=(',', ':'))}"

    @property
    def elements(self) -> int:
        return math.prod(self.lengths)


# ---------------------------------------------------------------------- computations
def _make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls. Forward: data, scale, offset -> y, mean, variance. Backward: data, gradient, mean,
    variance, scale -> gradients to the data, the scale and the offset.
    """
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    values = json.loads(text)
    data = Strided(tuple(values["lengths"]), tuple(values["strides"]), values["type"])
    vector = Strided((data.lengths[1],), (1,))
    described, epsilon = library.described(data), values["epsilon"]
    forward = library.normalization(described, epsilon, relu=values["relu"])
    if values["relu"]:
        return _with_relu(library, forward, described, data)
    primitive = forward
    given = {onednn.SOURCE: data, onednn.SCALE: vector, onednn.SHIFT: vector}
    results = {onednn.DESTINATION: data, onednn.MEAN: vector, onednn.VARIANCE: vector}
    if values["backward"]:
        primitive = library.normalization(described, epsilon, hint=forward)
        given = {onednn.SOURCE: data, onednn.DESTINATION_GRADIENT: data}
        given |= dict.fromkeys((onednn.MEAN, onednn.VARIANCE, onednn.SCALE), vector)
        results = {onednn.SOURCE_GRADIENT: data, onednn.SCALE_GRADIENT: vector, onednn.SHIFT_GRADIENT: vector}
    computation = Computation(library, primitive, given, results)
    sizes = [math.prod(array.lengths) for array in (*given.values(), *results.values())]
    return native_calls.Prepared(computation, tuple(sizes), len(results))


def _with_relu(
    library: onednn.Library, primitive: onednn.Handle, described: onednn.Handle, data: Strided
) -> native_calls.Prepared:
    """The same forward, and ReLU of y. Which numbers were positive is written down as well, and read by nobody."""
    vector = library.described(Strided((data.lengths[1],), (1,)))
    outer = {onednn.SOURCE: described, onednn.SCALE: vector, onednn.SHIFT: vector}
    outer |= {onednn.DESTINATION: described, onednn.MEAN: vector, onednn.VARIANCE: vector}
    inner = [library.argument(primitive, onednn.WORKSPACE)]
    places = {argument: at for at, argument in enumerate((*outer, onednn.WORKSPACE))}
    stages = Stages(library, list(outer.values()), inner, [(primitive, places)])
    elements, channels = math.prod(data.lengths), data.lengths[1]
    return native_calls.Prepared(stages, (elements, channels, channels) * 2, 3)


native_calls.register_maker(_KIND, _make)


@functools.lru_cache(1024)
def _usable(normalization: Normalization) -> bool:
    """Whether the library has an implementation that is worth while."""
    return normalization.elements <= onednn.MOST_ELEMENTS and native_calls.can_prepare(normalization.text)


# ---------------------------------------------------------------------- the kernels
#: what share of XLA's time it takes, forward and backward, and how many elements XLA's kernels normalize in a second
_SHARES: Final = (0.5, 0.4)
_ELEMENTS_PER_SECOND: Final = 2e8
_CALL_SECONDS: Final = 25e-6


def takes(case: KernelCase, backward: bool = False, relu: bool = False) -> bool:
    """Whether the library computes a normalization, or its gradient; `relu`: and ReLU after it."""
    library = onednn.library()
    # where the data stands among the inputs
    data = case.inputs[1 if backward else 0]
    if library is None or not library.computes(data.dtype):
        return False
    vectors = case.inputs[2:5] if backward else case.inputs[1:3]
    normalization = Normalization.of(case.attrs, data.shape, data.dtype, backward, relu)
    if normalization is None or (backward and tuple(case.inputs[0].shape) != tuple(data.shape)):
        return False
    channels = normalization.lengths[1]
    return all(tuple(one.shape) == (channels,) for one in vectors) and _usable(normalization)


def forward(inputs: Sequence[Array], op: KernelOperation, version: str, relu: bool = False) -> list[Any]:
    """The results of a normalization; `relu`: the first one's positive part, where nothing is NaN."""
    x, scale, offset, mean, variance = inputs
    one = Normalization.of(op.attrs, x.shape, x.dtype, False, relu)
    assert one is not None  # `takes` has said so
    vector = (tuple(scale.shape), scale.dtype)
    results = [(tuple(x.shape), x.dtype), vector, vector]
    y, own_mean, own_variance = native_calls.call_several(op.name, one.text, (x, scale, offset), results)
    running = running_averages(own_mean, own_variance, (mean, variance), one.elements // one.lengths[1], op.attrs)
    third = [np.zeros((), scale.dtype)] if version == "V3" else []
    return [y, *running, own_mean, own_variance, *third]


def _register(version: str, backward: bool) -> None:
    def estimate(case: KernelCase) -> float:
        elements = math.prod(case.inputs[1 if backward else 0].shape)
        return _SHARES[backward] + _CALL_SECONDS * _ELEMENTS_PER_SECOND / elements

    def forward_kernel(*inputs: Array, ctx: OperationContext) -> Any:
        return forward(inputs, ctx.op, version)

    def backward_kernel(
        grad: Array, x: Array, scale: Array, mean: Array, variance: Array, *_: Array, ctx: OperationContext
    ) -> Any:
        one = Normalization.of(ctx.op.attrs, x.shape, x.dtype, True)
        assert one is not None  # `takes` has said so
        vector = (tuple(scale.shape), scale.dtype)
        results = [(tuple(x.shape), x.dtype), vector, vector]
        given = (x, grad, mean, variance, scale)
        spare = [np.zeros(0, scale.dtype)] * 2
        return [*native_calls.call_several(ctx.op.name, one.text, given, results), *spare]

    types: dict[str, Any] = {"T": [dtypes.float32, dtypes.bfloat16], "U": [dtypes.float32]}
    register_kernel(
        f"FusedBatchNorm{'Grad' if backward else ''}{version}",
        "onednn",
        device_type="CPU",
        types=types if version else {"T": [dtypes.float32]},
        applies=functools.partial(takes, backward=backward),
        cost=estimate,
        rough=True,
        calls_back=True,
        takes_numpy=True,
    )(backward_kernel if backward else forward_kernel)


for _version in VERSIONS:
    for _backward in (False, True):
        _register(_version, _backward)
