"""Uses of operations that compute with quantised tensors, for `make_kernel_fixtures.py` and for the tests beside it.

Each case is a function of the module (`anabranch`, or genuine TensorFlow's `compat.v1`) and of a generator of random
inputs that returns what to fetch. `CASES` are computed by TensorFlow's own kernels, `FUSED` by those of oneDNN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Inputs = np.random.RandomState
Case = Callable[[Any, Inputs], Any]
CASES: dict[str, Case] = {}
FUSED: dict[str, Case] = {}

PLAIN = {"quint8": np.uint8, "qint8": np.int8, "qint32": np.int32}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def fused(build: Case) -> Case:
    FUSED[build.__name__] = build
    return build


def quantised(tf: Any, r: Inputs, shape: Any, dtype: str) -> Any:
    """Random numbers of a quantised dtype."""
    info = np.iinfo(PLAIN[dtype])
    numbers = r.randint(info.min, int(info.max) + 1, shape, np.int64).astype(PLAIN[dtype])
    return tf.bitcast(tf.constant(numbers), getattr(tf, dtype))


def ends(r: Inputs, *names: str) -> dict[str, Any]:
    """A random range for each name, most of them with zero in it."""
    given = {}
    for name in names:
        given[f"min_{name}"] = np.float32(-r.rand() * 4 if r.rand() < 0.8 else r.rand())
        given[f"max_{name}"] = np.float32(given[f"min_{name}"] + 0.2 + r.rand() * 5)
    return given


# ---------------------------------------------------------------------- arithmetic
@case
def matrix_products(tf: Any, r: Inputs) -> Any:
    fetched = []
    for m, k, n, turn_a, turn_b in ((3, 4, 5, False, False), (2, 700, 3, True, False), (1, 6, 4, True, True)):
        a = quantised(tf, r, (k, m) if turn_a else (m, k), "quint8")
        b = quantised(tf, r, (n, k) if turn_b else (k, n), "quint8")
        fetched += tf.raw_ops.QuantizedMatMul(a=a, b=b, transpose_a=turn_a, transpose_b=turn_b, **ends(r, "a", "b"))
    return fetched


def elementwise(tf: Any, r: Inputs, name: str) -> Any:
    fetched = []
    for x, y in (
        ((), (7,)),
        ((2, 3), ()),
        ((9,), (9,)),
        ((2, 5), (5,)),
        ((3,), (4, 3)),
        ((2, 3), (2, 3)),
        ((1,), (1,)),
    ):
        inputs = {"x": quantised(tf, r, x, "quint8"), "y": quantised(tf, r, y, "quint8")}
        fetched += getattr(tf.raw_ops, name)(**inputs, **ends(r, "x", "y"))
    return fetched


@case
def sums(tf: Any, r: Inputs) -> Any:
    return elementwise(tf, r, "QuantizedAdd")


@case
def products(tf: Any, r: Inputs) -> Any:
    return elementwise(tf, r, "QuantizedMul")


@case
def biases(tf: Any, r: Inputs) -> Any:
    fetched = []
    for dtype in ("quint8", "qint8"):
        for shape in ((2, 3), (2, 2, 4, 5)):
            x, b = quantised(tf, r, shape, dtype), quantised(tf, r, shape[-1:], dtype)
            fetched += tf.raw_ops.QuantizedBiasAdd(input=x, bias=b, out_type=tf.qint32, **ends(r, "input", "bias"))
    return fetched


@case
def activations(tf: Any, r: Inputs) -> Any:
    fetched = []
    for dtype in ("quint8", "qint32"):
        for op in (tf.raw_ops.QuantizedRelu, tf.raw_ops.QuantizedRelu6):
            for _ in range(3):
                x = quantised(tf, r, (3, 5), dtype)
                fetched += op(features=x, out_type=getattr(tf, dtype), **ends(r, "features"))
    return fetched


# ---------------------------------------------------------------------- ranges
def inputs_of_requantising(tf: Any, r: Inputs) -> dict[str, Any]:
    numbers = (r.randn(4, 6) * 2.0 ** r.randint(8, 31)).clip(-(2**31), 2**31 - 1).astype(np.int32)
    most = np.float32(2.0 ** r.randint(0, 17))
    return {"input": tf.bitcast(tf.constant(numbers), tf.qint32), "input_min": -most, "input_max": most}


@case
def shrunk_ranges(tf: Any, r: Inputs) -> Any:
    fetched = []
    for _ in range(4):
        given = inputs_of_requantising(tf, r)
        fetched += tf.raw_ops.QuantizeDownAndShrinkRange(out_type=tf.quint8, **given)
        fetched += tf.raw_ops.RequantizationRange(**given)
    return fetched


@case
def other_ranges(tf: Any, r: Inputs) -> Any:
    fetched = []
    for dtype in (tf.quint8, tf.qint8):
        for _ in range(3):
            given = inputs_of_requantising(tf, r)
            least = np.float32(-r.rand() * given["input_max"])
            most = np.float32(r.rand() * given["input_max"])
            wanted = {"requested_output_min": least, "requested_output_max": most}
            fetched += tf.raw_ops.Requantize(out_type=dtype, **given, **wanted)
    return fetched


# ---------------------------------------------------------------------- images
@case
def convolutions(tf: Any, r: Inputs) -> Any:
    fetched = []
    for length, window, stride in ((5, 3, 1), (6, 2, 2), (9, 1, 4), (11, 2, 5), (7, 3, 2)):
        for padding in ("SAME", "VALID"):
            x = quantised(tf, r, (2, length, length + 1, 3), "quint8")
            w = quantised(tf, r, (window, window, 3, 4), "quint8")
            given = {"strides": [1, stride, stride, 1], "padding": padding}
            spans = {"min_input": np.float32(-r.rand()), "max_input": np.float32(0.5 + r.rand())}
            fetched += tf.raw_ops.QuantizedConv2D(input=x, filter=w, **spans, **ends(r, "filter"), **given)
    return fetched


@case
def pooling(tf: Any, r: Inputs) -> Any:
    fetched = []
    for op in (tf.raw_ops.QuantizedMaxPool, tf.raw_ops.QuantizedAvgPool):
        for window, stride, padding in ((2, 2, "SAME"), (3, 2, "SAME"), (3, 1, "VALID"), (2, 3, "VALID")):
            given = {"ksize": [1, window, window, 1], "strides": [1, stride, stride, 1], "padding": padding}
            fetched += op(input=quantised(tf, r, (2, 5, 6, 3), "quint8"), **ends(r, "input"), **given)
    return fetched


@case
def joined(tf: Any, r: Inputs) -> Any:
    fetched = []
    for dtype in ("quint8", "qint32"):
        for axis in (0, 1):
            shapes = [(2, 3), (4, 3), (1, 3)] if axis == 0 else [(2, 3), (2, 1), (2, 4)]
            spans = [ends(r, "x") for _ in shapes]
            fetched += tf.raw_ops.QuantizedConcat(
                concat_dim=axis,
                values=[quantised(tf, r, shape, dtype) for shape in shapes],
                input_mins=[span["min_x"] for span in spans],
                input_maxes=[span["max_x"] for span in spans],
            )
    return fetched


@case
def reshaped(tf: Any, r: Inputs) -> Any:
    x = quantised(tf, r, (2, 6), "quint8")
    return tf.raw_ops.QuantizedReshape(tensor=x, shape=[3, -1], input_min=-1.0, input_max=2.0)


@case
def resized(tf: Any, r: Inputs) -> Any:
    fetched = []
    for size in ((7, 4), (3, 9), (5, 6)):
        for corners, centres in ((False, False), (True, False), (False, True)):
            given = {"size": size, "align_corners": corners, "half_pixel_centers": centres, "min": -1.0, "max": 2.0}
            for dtype, channels in (("quint8", 3), ("qint32", 2)):
                x = quantised(tf, r, (2, 5, 6, channels), dtype)
                fetched += tf.raw_ops.QuantizedResizeBilinear(images=x, **given)
            x = tf.constant(r.randn(1, 5, 6, 2).astype(np.float32))
            fetched += tf.raw_ops.QuantizedResizeBilinear(images=x, **given)
    return fetched


@case
def normalized_instances(tf: Any, r: Inputs) -> Any:
    fetched = []
    for attrs in ({}, {"output_range_given": True, "given_y_min": -1.5, "given_y_max": 2.0}):
        x = quantised(tf, r, (2, 5, 6, 3), "quint8")
        fetched += tf.raw_ops.QuantizedInstanceNorm(x=x, x_min=-1.0, x_max=3.0, **attrs)
    return fetched


@case
def normalized_batches(tf: Any, r: Inputs) -> Any:
    fetched = []
    for scaled in (True, False):
        given = {"t": quantised(tf, r, (2, 3, 4, 5), "quint8"), "t_min": -2.0, "t_max": 9.0}
        for name, least in (("m", -1.0), ("v", 0.1), ("beta", -2.0), ("gamma", 0.0)):
            given |= {name: quantised(tf, r, (5,), "quint8"), f"{name}_min": least, f"{name}_max": 3.0}
        fetched += tf.raw_ops.QuantizedBatchNormWithGlobalNormalization(
            out_type=tf.qint32, variance_epsilon=0.01, scale_after_normalization=scaled, **given
        )
    return fetched


# ---------------------------------------------------------------------- what oneDNN computes
def images_and_filter(tf: Any, r: Inputs, depthwise: bool = False, channels: bool = False) -> dict[str, Any]:
    most, filter_end = np.float32(0.5 + r.rand() * 3), np.float32(0.5 + r.rand())
    if channels:
        filter_end = (0.5 + r.rand(4)).astype(np.float32)
    return {
        "input": quantised(tf, r, (2, 5, 6, 3), "quint8"),
        "filter": quantised(tf, r, (3, 2, 3, 1 if depthwise else 4), "qint8"),
        "min_input": np.float32(0),
        "max_input": most,
        "min_filter": -filter_end,
        "max_filter": filter_end,
        "strides": [1, 1, 1, 1],
        "padding": "SAME" if r.rand() < 0.5 else "VALID",
    }


def frozen(r: Inputs) -> dict[str, Any]:
    return {"min_freezed_output": np.float32(-4 * r.rand()), "max_freezed_output": np.float32(0.5 + 6 * r.rand())}


@fused
def channels_alone(tf: Any, r: Inputs) -> Any:
    fetched: list[Any] = []
    x = quantised(tf, r, (2, 3, 3, 4), "qint32")
    spans = {"input_min": -(0.1 + r.rand(4)).astype(np.float32), "input_max": (0.1 + r.rand(4)).astype(np.float32)}
    for clip in (0.3, 5.0):
        fetched += tf.raw_ops.RequantizationRangePerChannel(input=x, clip_value_max=clip, **spans)
    wanted = {"requested_output_min": np.float32(-0.7), "requested_output_max": np.float32(0.9)}
    for dtype in (tf.qint8, tf.quint8):
        fetched += tf.raw_ops.RequantizePerChannel(input=x, out_type=dtype, **spans, **wanted)
    return fetched


@fused
def convolutions_and_more(tf: Any, r: Inputs) -> Any:
    fetched = list(tf.raw_ops.QuantizedConv2DAndRelu(**images_and_filter(tf, r)))
    fetched += tf.raw_ops.QuantizedConv2DAndRequantize(**images_and_filter(tf, r), **frozen(r))
    fetched += tf.raw_ops.QuantizedConv2DAndReluAndRequantize(**images_and_filter(tf, r), **frozen(r))
    return fetched


@fused
def convolutions_with_bias(tf: Any, r: Inputs) -> Any:
    fetched = []
    for channels in (False, True):
        # TensorFlow 2 scales sums of 32 bits by their channel's range, and gives that range with them, too
        whole = () if channels else (tf.raw_ops.QuantizedConv2DWithBias, tf.raw_ops.QuantizedConv2DWithBiasAndRelu)
        for op in whole:
            bias = r.randn(4).astype(np.float32)
            fetched += op(bias=bias, **images_and_filter(tf, r, channels=channels))
        for op in (
            tf.raw_ops.QuantizedConv2DWithBiasAndRequantize,
            tf.raw_ops.QuantizedConv2DWithBiasAndReluAndRequantize,
        ):
            bias = r.randn(4).astype(np.float32)
            fetched += op(bias=bias, **images_and_filter(tf, r, channels=channels), **frozen(r))
    return fetched


@fused
def convolutions_of_channels(tf: Any, r: Inputs) -> Any:
    fetched = list(tf.raw_ops.QuantizedDepthwiseConv2D(**images_and_filter(tf, r, depthwise=True)))
    for op in (tf.raw_ops.QuantizedDepthwiseConv2DWithBias, tf.raw_ops.QuantizedDepthwiseConv2DWithBiasAndRelu):
        fetched += op(bias=r.randn(3).astype(np.float32), **images_and_filter(tf, r, depthwise=True))
    fetched += tf.raw_ops.QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize(
        bias=r.randn(3).astype(np.float32), **images_and_filter(tf, r, depthwise=True), **frozen(r)
    )
    return fetched


@fused
def matrix_products_with_bias(tf: Any, r: Inputs) -> Any:
    fetched = []
    for name in ("", "AndRelu", "AndRequantize", "AndReluAndRequantize"):
        end = np.float32(0.5 + r.rand())
        fetched += getattr(tf.raw_ops, f"QuantizedMatMulWithBias{name}")(
            a=quantised(tf, r, (3, 7), "quint8"),
            b=quantised(tf, r, (7, 4), "qint8"),
            bias=r.randn(4).astype(np.float32),
            # TensorFlow 2 adds what a minimum below 0 asks for in a wrong scale
            min_a=np.float32(0),
            max_a=np.float32(0.3 + 3 * r.rand()),
            min_b=-end,
            max_b=end,
            **(frozen(r) if "Requantize" in name else {}),
        )
    return fetched
