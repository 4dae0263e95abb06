"""Calls of operations that have several kernels, with values, and random ones of all their types.

A call is what a kernel is chosen for, with the values of all inputs. Random ones follow from a seed and an index. They
are of all sizes up to `MOST_BYTES` an array, with lengths that no vector, tile or part ends with, in all layouts, types
and paddings that an operation knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch import kernels
from anabranch.core.dtypes import as_dtype
from anabranch.core.kernels import KernelCase, KernelInput
from anabranch.core.registry import find_op_def
from anabranch.ops import raw
from anabranch.ops.nn.pool import largest_seen, pool_window

Array = np.ndarray[Any, Any]
Random = np.random.Generator

#: bytes of the largest array, and multiplications and additions, of a random call
MOST_BYTES: Final = 1 << 26
_LEAST_BYTES: Final = 1 << 13
MOST_PRODUCTS: Final = 1 << 30
#: larger inputs are placeholders in the graph, not constants
_MOST_OF_A_CONSTANT: Final = 64
#: what is put in the place of a few numbers of an input
SPECIAL: Final = (np.nan, np.inf, -np.inf)


@dataclass(frozen=True)
class Call:
    """An operation with the values of its inputs, flat.

    Attributes:
        attrs: those that do not follow from the inputs.
        types: of the inputs, where NumPy has none of the kind: quint8.
        repeated: the inputs that are the same in all iterations of a loop that the operation is in.
        terms: how many numbers are added up for one of a result.
        is_finite: whether all numbers are.
    """

    op_type: str
    attrs: dict[str, Any]
    values: tuple[Array, ...]
    types: tuple[str, ...] = ()
    repeated: frozenset[int] = frozenset()
    terms: int = 1
    is_finite: bool = True

    def __str__(self) -> str:
        shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in self.values)
        attrs = ", ".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{self.op_type}({shapes}; {attrs})" + (f", repeated {set(self.repeated)}" if self.repeated else "")

    def operation(self) -> Any:
        """The operation, in a graph of its own."""
        op_def = find_op_def(self.op_type)
        assert op_def is not None
        with tf.Graph().as_default():
            types = self.types or tuple(value.dtype.name for value in self.values)
            tensors = [_tensor(value, name) for value, name in zip(self.values, types, strict=True)]
            given = [tensors] if op_def.inputs[0].is_list else tensors
            getattr(raw, self.op_type)(*given, **self.attrs)
            graph = tf.get_default_graph()
            return next(op for op in reversed(graph.get_operations()) if op.type == self.op_type)

    def case(self, op: Any) -> KernelCase:
        """What kernels are offered for."""
        static = op.op_def.static_positions(op)
        inputs = tuple(
            KernelInput(value.shape, value.dtype, value if i in static else None, i in self.repeated)
            for i, value in enumerate(self.values)
        )
        return KernelCase(op.type, op.attrs, inputs, ("CPU",))

    def with_special(self, random: Random) -> Call:
        """The same with a few numbers of an input that are not finite."""
        places = [i for i, value in enumerate(self.values) if value.size > _MOST_OF_A_CONSTANT and _is_real(value)]
        if not places:
            return self
        at = int(random.choice(places))
        spoiled = self.values[at].copy()
        # (a ReLU makes zero of minus infinity, which is right where nothing else was added to it)
        value = np.nan if self.op_type == "_Conv2DBiasRelu" else random.choice(SPECIAL)
        spoiled.flat[random.integers(spoiled.size, size=int(random.integers(1, 4)))] = value
        values = (*self.values[:at], spoiled, *self.values[at + 1 :])
        return replace(derived(replace(self, values=values)), is_finite=False)

    @property
    def reach(self) -> Call | None:
        """A call whose result is above 0 where numbers that are not finite are seen; None: that is not known so."""
        if not ("Conv" in self.op_type and self.op_type[0] != "Q"):
            return None
        ones = [v if v.dtype.kind in "iu" else np.ones(v.shape, np.float32) for v in self.values]
        places = [at for at, v in enumerate(self.values) if _is_real(v) and not np.isfinite(v.astype(np.float32)).all()]
        if self.op_type == "_Conv2DBiasRelu":
            ones[2] = np.zeros_like(ones[2])
            ones[0] = ones[0] * np.float32(2 not in places)
        for at in places:
            ones[at] = (~np.isfinite(self.values[at].astype(np.float32))).astype(np.float32)
        return replace(self, values=tuple(ones), is_finite=True)


def _is_real(value: Array) -> bool:
    return value.dtype.kind == "f" or value.dtype.name == "bfloat16"


def _tensor(value: Array, dtype: str) -> Any:
    if value.size <= _MOST_OF_A_CONSTANT and as_dtype(dtype).as_numpy_dtype == value.dtype:
        return tf.constant(value)
    return tf.placeholder(dtype, value.shape)


def call_of(case: KernelCase, random: Random) -> Call:
    """A call of a case that a program brought."""
    op_def = find_op_def(case.op_type)
    assert op_def is not None
    attrs = {name: value for name, value in case.attrs.items() if name in op_def.attrs and name not in op_def.inferred}
    values = [
        np.asarray(one.value) if one.value is not None else numbers(random, one.shape, one.dtype) for one in case.inputs
    ]
    repeated = frozenset(i for i, one in enumerate(case.inputs) if one.repeated)
    return derived(Call(case.op_type, attrs, tuple(values), repeated=repeated))


def numbers(random: Random, shape: Sequence[int], dtype: Any) -> Array:
    """Random numbers of a type."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(max(limits.min, -128), min(limits.max, 255), tuple(shape), endpoint=True).astype(kind)
    if kind == np.float64:
        return random.standard_normal(tuple(shape))
    return random.standard_normal(tuple(shape), np.float32).astype(kind)


# ---------------------------------------------------------------------- what follows from other inputs
def derived(call: Call) -> Call:
    """The same with inputs that go together, and with the number of its terms."""
    values = list(call.values)
    if call.op_type.startswith("MaxPoolGrad"):
        values[1] = maxima_of(call)
    elif call.op_type.startswith("FusedBatchNormGrad"):
        axes = tuple(axis for axis in range(values[1].ndim) if axis != _channel(call.attrs, values[1].ndim))
        wide = values[1].astype(np.float64)
        with np.errstate(all="ignore"):
            values[3], values[4] = (one.astype(np.float32) for one in (wide.mean(axes), wide.var(axes)))
    elif call.op_type.startswith("FusedBatchNorm") or call.op_type.startswith("_FusedBatchNorm"):
        values[4] = np.abs(values[4])
    made = replace(call, values=tuple(values))
    return replace(made, terms=_terms(made))


def maxima_of(call: Call) -> Array:
    """The maxima whose gradient a call is, by comparing what each position sees."""
    attrs = {"explicit_paddings": [], **call.attrs}
    if call.op_type == "MaxPoolGradV2":
        attrs |= {"ksize": call.values[3].tolist(), "strides": call.values[4].tolist()}
    attrs = {name: value.encode() if isinstance(value, str) else value for name, value in attrs.items()}
    x = call.values[0]
    found: Array = np.asarray(largest_seen(np, x, pool_window(list(x.shape), attrs)))
    return found


def _channel(attrs: dict[str, Any], rank: int) -> int:
    text = attrs.get("data_format", "NHWC")
    return 1 if (text.decode() if isinstance(text, bytes) else text).startswith("NC") else rank - 1


def _terms(call: Call) -> int:
    """How many numbers are added up for one of the result, or more."""
    sizes, attrs, op = [value.size for value in call.values], call.attrs, call.op_type
    shapes = [value.shape for value in call.values]
    if "Conv" in op and "BackpropFilter" in op:
        return sizes[2] // shapes[2][_channel(attrs, len(shapes[2]))]
    if "Conv" in op and "BackpropInput" in op:
        return math.prod(shapes[1][:-2]) * shapes[1][-1]
    if "Conv" in op:
        return math.prod(shapes[1][:-1])
    if "MatMul" in op:
        return int(shapes[0][-2 if attrs.get("transpose_a") or attrs.get("adj_x") else -1])
    if "BatchNorm" in op:
        return sizes[1] // shapes[1][_channel(attrs, len(shapes[1]))] if "Grad" in op else sizes[0] // sizes[1]
    if "Pool" in op:
        return math.prod(call.values[3] if op == "MaxPoolGradV2" else attrs["ksize"])
    return len(sizes)


# ---------------------------------------------------------------------- random calls
def random_call(seed: int, index: int, op_types: Sequence[str] = (), most_bytes: int = MOST_BYTES) -> Call:
    """The call with this index of a seed.

    Args:
        op_types: of which it is; of any where there are none.
    """
    random = np.random.default_rng((seed, index))
    maker = _FAMILIES[int(random.choice(len(_FAMILIES), p=_WEIGHTS))][1]
    names = tuple(op_types) or tuple(name for name, of_name in MAKERS.items() if of_name is maker)
    op_type = names[int(random.integers(len(names)))]
    most = int(_LEAST_BYTES * (most_bytes / _LEAST_BYTES) ** random.uniform())
    while (call := MAKERS[op_type](op_type, random, most)) is None:
        pass
    call = derived(call)
    return call.with_special(random) if random.integers(4) == 0 else call


def _length(random: Random, least: int, most: int) -> int:
    """A length; short ones, multiples of 16 and their neighbours often."""
    found = round(least * (most / least) ** random.uniform())
    if random.integers(2) and found > 8:
        found = found // 16 * 16 + int(random.integers(-1, 2))
    return max(least, min(most, found))


def _fits(shapes: Sequence[Sequence[int]], dtype: Any, most_bytes: int) -> bool:
    largest = max(math.prod(map(int, shape)) for shape in shapes)
    return largest * np.dtype(dtype).itemsize <= most_bytes


def _dtype(random: Random, *names: str) -> Any:
    return as_dtype(str(random.choice(names or ("float32", "bfloat16")))).as_numpy_dtype


def _ordered(layout: str, batch: int, channels: int, spatial: Sequence[int]) -> list[int]:
    return [batch, channels, *spatial] if layout.startswith("NC") else [batch, *spatial, channels]


def _window(random: Random, rank: int) -> tuple[list[int], bool]:
    """The size of a window; and whether it is one that some kernels are for, which take large convolutions only."""
    if rank == 2 and random.integers(3) == 0:
        return [int(length) for length in random.choice(((3, 3), (3, 3), (5, 5), (1, 7), (7, 1)))], True
    return [int(random.choice((1, 1, 2, 3, 3, 4, 5, 7))) for _ in range(rank)], False


def _convolution(op_type: str, random: Random, most_bytes: int) -> Call | None:
    rank = 3 if "3D" in op_type else 2
    layout = str(random.choice(("NDHWC", "NCDHW") if rank == 3 else ("NHWC", "NHWC", "NCHW")))
    size, in_blocks = _window(random, rank)
    most_bytes = min(MOST_BYTES, most_bytes << 4) if in_blocks else most_bytes
    plain = in_blocks or random.integers(2) == 0
    strides = [1 if plain else int(random.integers(1, 4)) for _ in size]
    dilations = [1 if plain or random.integers(2) else int(random.integers(1, 3)) for _ in size]
    if random.integers(12) == 0 and not in_blocks:
        strides = [1] * rank
        spatial = list(size)
    else:
        spatial = [_length(random, 1, 20 if rank == 3 else 128) for _ in size]
    padding = str(random.choice(("SAME", "VALID") if rank == 3 else ("SAME", "SAME", "VALID", "EXPLICIT")))
    attrs: dict[str, Any] = {"padding": padding, "data_format": layout}
    pads = [(0, 0)] * rank
    if padding == "EXPLICIT":
        pads = [(int(random.integers(3)), int(random.integers(3))) for _ in size]
        given = _ordered(layout, 0, 0, range(1, rank + 1))
        attrs["explicit_paddings"] = [pad for axis in given for pad in (pads[axis - 1] if axis else (0, 0))]
    attrs["strides"] = _ordered(layout, 1, 1, strides)
    attrs["dilations"] = _ordered(layout, 1, 1, dilations)
    batch, channels, depth = _length(random, 1, 33), _length(random, 1, 1024), _length(random, 1, 1024)
    depthwise = "Depthwise" in op_type
    if depthwise:
        depth = int(random.choice((1, 1, 2, 3)))
        if len(set(strides)) > 1:
            return None  # such strides have to be equal
    groups = int(random.choice((1, 1, 1, 2, 3, channels)))
    inner = channels
    if not depthwise and groups > 1 and "3D" not in op_type and channels % groups == 0:
        inner, depth = channels // groups, -(-depth // groups) * groups
    outputs = []
    for n, k, s, d, (low, high) in zip(spatial, size, strides, dilations, pads, strict=True):
        span = (k - 1) * d + 1
        outputs.append(-(-n // s) if padding == "SAME" else (n + low + high - span) // s + 1)
    if min(outputs) < 1:
        return None
    dtype = _dtype(random, "float32", "float32", "float32" if in_blocks else "bfloat16")
    data = _ordered(layout, batch, channels, spatial)
    filter = [*size, inner, depth]
    out = _ordered(layout, batch, channels * depth if depthwise else depth, outputs)
    products = math.prod(out) * math.prod(size) * (1 if depthwise else inner)
    if not _fits((data, filter, out), dtype, most_bytes) or products > MOST_PRODUCTS:
        return None
    x, w, grad = (numbers(random, shape, dtype) for shape in (data, filter, out))
    values: list[Array] = [x, w]
    if "BackpropInput" in op_type:
        values = [np.array(data, np.int32), w, grad]
    elif "BackpropFilter" in op_type:
        values = [x, np.array(filter, np.int32), grad]
    elif op_type == "_Conv2DBiasRelu":
        values.append(numbers(random, (depth,), dtype))
    return Call(op_type, attrs, tuple(values))


def _product(op_type: str, random: Random, most_bytes: int) -> Call | None:
    is_large = random.integers(2)
    rows, inner, columns = (_length(random, 1, 4096 if is_large else 64) for _ in range(3))
    turned = [bool(random.integers(2)) for _ in range(2)]
    one, other = [inner, rows] if turned[0] else [rows, inner], [columns, inner] if turned[1] else [inner, columns]
    names = ("transpose_a", "transpose_b")
    repeated: frozenset[int] = frozenset()
    batch: list[int] = []
    if op_type == "MatMul":
        repeated = frozenset([1]) if random.integers(3) == 0 else repeated
    else:
        names = ("adj_x", "adj_y")
        batch = [_length(random, 1, 40) for _ in range(int(random.integers(3)))]
        both = batch
        if op_type != "BatchMatMul" and random.integers(2):
            both = [1 if random.integers(2) else n for n in batch][int(random.integers(len(batch) + 1)) :]
        if random.integers(2):
            one, other = [*batch, *one], [*both, *other]
        else:
            one, other = [*both, *one], [*batch, *other]
    dtype = _dtype(random, "float32", "bfloat16")
    fits = _fits((one, other, [*batch, rows, columns]), dtype, most_bytes)
    if not fits or math.prod(batch) * rows * inner * columns > MOST_PRODUCTS:
        return None
    attrs: dict[str, Any] = dict(zip(names, turned, strict=True))
    if op_type == "BatchMatMulV3":
        attrs["Tout"] = np.dtype(dtype).name
    return Call(op_type, attrs, (numbers(random, one, dtype), numbers(random, other, dtype)), repeated=repeated)


def _pooling(op_type: str, random: Random, most_bytes: int) -> Call | None:
    rank = 3 if "3D" in op_type else 2
    layout = str(random.choice(("NDHWC", "NCDHW") if rank == 3 else ("NHWC", "NHWC", "NCHW")))
    size = [int(random.integers(1, 8 if rank == 2 else 4)) for _ in range(rank)]
    strides = list(size) if random.integers(3) == 0 else [int(random.integers(1, 4)) for _ in size]
    spatial = [_length(random, 1, 20 if rank == 3 else 150) for _ in size]
    padding = str(random.choice(("SAME", "VALID")))
    outputs = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip(spatial, size, strides, strict=True)
    ]
    data = _ordered(layout, _length(random, 1, 33), _length(random, 1, 512), spatial)
    dtype = _dtype(random)
    products = math.prod(data) * math.prod(size)
    if min(outputs) < 1 or not _fits([data], dtype, most_bytes) or products > MOST_PRODUCTS:
        return None
    out = _ordered(layout, data[0], data[_channel({"data_format": layout}, rank + 2)], outputs)
    attrs = {"ksize": _ordered(layout, 1, 1, size), "strides": _ordered(layout, 1, 1, strides)}
    attrs |= {"padding": padding, "data_format": layout}
    levels = int(random.choice((0, 0, 3)))  # whole numbers of which many are equal
    x, grad = numbers(random, data, dtype), numbers(random, out, dtype)
    if levels:
        x = random.integers(0, levels + 1, data).astype(dtype)
    if op_type in ("AvgPool", "AvgPool3D", "MaxPool", "_MaxPoolWithPlaces"):
        return Call(op_type, attrs, (x,))
    if op_type.startswith("AvgPool"):
        return Call(op_type, attrs, (np.array(data, np.int32), grad))
    if op_type == "MaxPoolGradV2":
        windows = (np.array(attrs.pop(name), np.int32) for name in ("ksize", "strides"))
        return Call(op_type, attrs, (x, grad, grad, *windows))
    return Call(op_type, attrs, (x, grad, grad))


def _normalization(op_type: str, random: Random, most_bytes: int) -> Call | None:
    has_volumes = op_type.endswith("V3") and random.integers(3) == 0
    layout = str(random.choice(("NDHWC", "NCDHW") if has_volumes else ("NHWC", "NHWC", "NCHW")))
    channels = _length(random, 1, 2048)
    if random.integers(2):
        channels = -(-channels // 16) * 16
    spatial = [_length(random, 1, 20 if has_volumes else 128) for _ in range(3 if has_volumes else 2)]
    data = _ordered(layout, _length(random, 1, 33), channels, spatial)
    dtype = _dtype(random, "float32", "float32", "bfloat16")
    if op_type in ("FusedBatchNorm", "FusedBatchNormGrad"):
        dtype = np.dtype(np.float32)
    if not _fits([data], dtype, most_bytes):
        return None
    offset, deviation = float(random.choice((0, 0, 1, 30))), float(random.choice((1, 1, 0.01)))
    x = (numbers(random, data, np.float32) * deviation + offset).astype(dtype)
    scale, shift, mean, variance = (numbers(random, (channels,), np.float32) for _ in range(4))
    attrs: dict[str, Any] = {"epsilon": float(random.choice((1e-3, 1e-5))), "data_format": layout}
    if "Grad" not in op_type:
        attrs["exponential_avg_factor"] = float(random.choice((1.0, 0.1)))
        side = (numbers(random, data, dtype),) if "Add" in op_type else ()
        return Call(op_type, attrs, (x, scale, shift, mean, variance, *side))
    third = (np.zeros(0, np.float32),) if op_type.endswith("V3") else ()
    return Call(op_type, attrs, (numbers(random, data, dtype), x, scale, mean, variance, *third))


def _elementwise(op_type: str, random: Random, most_bytes: int) -> Call | None:
    shape = [_length(random, 1, 1 << 14), _length(random, 1, 1 << 11)]
    if not _fits([shape], np.float32, max(most_bytes, 1 << 21)):
        return None
    half = as_dtype("bfloat16").as_numpy_dtype
    if op_type == "Cast":
        kinds = [np.dtype(np.float32), np.dtype(half)]
        one, other = kinds if random.integers(2) else kinds[::-1]
        return Call(op_type, {"DstT": other.name}, (numbers(random, shape, one),))
    count = int(random.integers(2, 5)) if op_type == "AddN" else 2
    values = [numbers(random, shape, half) for _ in range(count)]
    if op_type == "BiasAdd":
        values[1] = values[1][0]
    return Call(op_type, {}, tuple(values))


def _bytes(op_type: str, random: Random, most_bytes: int) -> Call | None:
    """Of quantised numbers; whole numbers come out, which all kernels have to give."""
    op_def = find_op_def(op_type)
    assert op_def is not None
    attrs: dict[str, Any] = {}
    if "Conv2D" in op_type:
        size, spatial = [int(random.integers(1, 4)) for _ in range(2)], [_length(random, 3, 40) for _ in range(2)]
        stride, padding = int(random.integers(1, 3)), str(random.choice(("SAME", "VALID")))
        channels, depth = _length(random, 1, 256), _length(random, 1, 256)
        shapes = [[_length(random, 1, 9), *spatial, channels], [*size, channels, depth]]
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        outputs = [-(-n // stride) if padding == "SAME" else (n - k) // stride + 1 for n, k in zip(spatial, size)]  # noqa: B905
        out = [shapes[0][0], *outputs, depth]
        products = math.prod(out) * math.prod(size) * channels
    else:
        rows, inner, depth = (_length(random, 1, 600) for _ in range(3))
        turned = [bool(random.integers(2)) for _ in range(2)]
        shapes = [[inner, rows] if turned[0] else [rows, inner], [depth, inner] if turned[1] else [inner, depth]]
        attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
        out, products = [rows, depth], rows * inner * depth
    if not _fits([*shapes, out], np.int32, most_bytes) or products > MOST_PRODUCTS >> 2:
        return None
    kinds = [str(random.choice(("quint8", "qint8"))) for _ in range(2)]
    if "Fused" not in op_type and op_type not in ("QuantizedConv2D", "QuantizedMatMul"):
        kinds[1] = "qint8"
    if "MatMulWith" in op_type:
        kinds[0] = "quint8"
    values: list[Array] = []
    types: list[str] = []
    for at, argument in enumerate(op_def.inputs):
        name = argument.name
        if at < 2:
            kind = kinds[at]
            values.append(numbers(random, shapes[at], np.uint8 if kind == "quint8" else np.int8))
        elif name == "bias":
            kind = "float32"
            values.append(numbers(random, (depth,), np.float32))
        elif name == "summand":
            kind = "float32" if op_type.endswith("SumAndRelu") else "qint8" if "Signed" in op_type else "quint8"
            dtype: Any = {"float32": np.float32, "qint8": np.int8, "quint8": np.uint8}[kind]
            values.append(numbers(random, out, dtype))
        else:
            kind = "float32"
            sign = -1 if name.startswith("min") else 1
            values.append(np.float32(sign * random.uniform(0.5, 3)))  # type: ignore[arg-type]
        types.append(kind)
    return Call(op_type, attrs, tuple(map(np.asarray, values)), tuple(types))


Maker = Callable[[str, Random, int], Call | None]

#: what a name has in it that is made so, the first that fits; and how often it is
_FAMILIES: Final[tuple[tuple[str, Maker, float], ...]] = (
    ("Quantized", _bytes, 0.06),
    ("Conv", _convolution, 0.44),
    ("MatMul", _product, 0.18),
    ("Pool", _pooling, 0.16),
    ("BatchNorm", _normalization, 0.12),
    ("", _elementwise, 0.04),
)
_WEIGHTS: Final = [weight for *_, weight in _FAMILIES]
#: gradients that take what a kernel has written down: they follow their operation (`kernel_agreement`)
FOLLOWING: Final = frozenset({"_MaxPoolGradAtPlaces", "_FusedBatchNormReluGrad", "_FusedBatchNormAddReluGrad"})


def _makers() -> dict[str, Maker]:
    every = sorted({op_type for op_types in kernels.MODULES.values() for op_type in op_types} - FOLLOWING)
    return {name: next(maker for word, maker, _ in _FAMILIES if word in name) for name in every}


#: operation type -> what makes a random call of it; every one that has more kernels than its own
MAKERS: Final = _makers()
