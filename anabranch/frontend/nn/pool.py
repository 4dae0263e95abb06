"""Pooling of one to three spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from anabranch.core.dtypes import DTypeLike, as_dtype, int64 as int64_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import Padding, PerAxis, one_of
from anabranch.frontend.arrays.rearranging import batch_to_space_nd, required_space_to_batch_paddings, space_to_batch_nd
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.conv_arguments import FORMATS, channels_last, per_axis
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _window(ksize: PerAxis, strides: PerAxis, data_format: str | None, spatial: int) -> dict[str, Any]:
    last = channels_last(data_format, spatial)
    return {
        "ksize": per_axis(ksize, spatial, last, "ksize"),
        "strides": per_axis(strides, spatial, last, "strides"),
        "data_format": FORMATS[spatial][0 if last else 1],
    }


def max_pool(
    value: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """The largest element under each position of a window.

    Args:
        value: images [batch, height, width, channels] (or "NCHW"), any real dtype.
        ksize, strides: the window and its steps: one number, two (height, width), or four (one per axis).
        padding: "SAME", "VALID", or four pairs of paddings.
        data_format: "NHWC" or "NCHW".
        name: of the operation.
        input: another name of `value`.

    Returns:
        A tensor of the dtype of `value`: [batch, out height, out width, channels], or in "NCHW".

    Raises:
        ValueError: shapes or attributes that do not go together.

    Example:
        >>> image = np.arange(16.0, dtype=np.float32).reshape([1, 4, 4, 1])
        >>> pooled = tf.nn.max_pool(image, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        >>> sess.run(pooled)[0, :, :, 0]
        array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    value = one_of("input", input, "value", value)
    with name_scope(name, "MaxPool", [value]) as scope:
        how = _window(ksize, strides, "NHWC" if data_format is None else data_format, 2)
        if not isinstance(padding, str | bytes):
            how["explicit_paddings"] = [int(p) for pair in padding for p in pair]
            padding = "EXPLICIT"
        result: Tensor = raw.MaxPool(convert_to_tensor(value, name="value"), padding=padding, name=scope, **how)
        return result


def max_pool2d(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The same as `max_pool`."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return max_pool(input, ksize, strides, padding, data_format, name=scope)


def avg_pool(
    value: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """The mean of the elements under each position of a window (padding does not count); arguments as `max_pool`.

    Args:
        value: images [batch, height, width, channels] (or "NCHW"), floating.
        ksize, strides: the window and its steps: one number, two (height, width), or four (one per axis).
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        name: of the operation.
        input: another name of `value`.

    Returns:
        A tensor of the dtype of `value`: [batch, out height, out width, channels], or in "NCHW".

    Raises:
        ValueError: shapes or attributes that do not go together.

    Example:
        >>> image = np.arange(16.0, dtype=np.float32).reshape([1, 4, 4, 1])
        >>> pooled = tf.nn.avg_pool(image, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        >>> sess.run(pooled)[0, :, :, 0]
        array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """
    value = one_of("input", input, "value", value)
    with name_scope(name, "AvgPool", [value]) as scope:
        how = _window(ksize, strides, data_format, 2)
        result: Tensor = raw.AvgPool(convert_to_tensor(value, name="value"), padding=padding, name=scope, **how)
        return result


avg_pool2d = avg_pool


def max_pool3d(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """The largest element under a window; volumes [batch, depth, height, width, channels] (or "NCDHW")."""
    with name_scope(name, "MaxPool3D", [input]) as scope:
        result: Tensor = raw.MaxPool3D(input, padding=padding, name=scope, **_window(ksize, strides, data_format, 3))
        return result


def avg_pool3d(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """The mean under a window; volumes [batch, depth, height, width, channels] (or "NCDHW")."""
    with name_scope(name, "AvgPool3D", [input]) as scope:
        result: Tensor = raw.AvgPool3D(input, padding=padding, name=scope, **_window(ksize, strides, data_format, 3))
        return result


def max_pool1d(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """The largest element under a window; sequences [batch, width, channels] (or "NCW")."""
    return _pool1d(max_pool, "MaxPool1d", input, ksize, strides, padding, data_format, name)


def avg_pool1d(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """The mean under a window; sequences [batch, width, channels] (or "NCW")."""
    return _pool1d(avg_pool, "AvgPool1D", input, ksize, strides, padding, data_format, name)


def _pool1d(
    function: Callable[..., Any],
    default_name: str,
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None,
    name: str | None,
) -> Tensor:
    """Sequences are images of height 1."""
    with name_scope(name, default_name, [input]) as scope:
        last = channels_last(data_format, 1)
        at = 1 if last else 2
        sizes = [per_axis(value, 1, last, what) for value, what in ((ksize, "ksize"), (strides, "strides"))]
        window, steps = ([*s[:at], 1, *s[at:]] for s in sizes)
        images = raw.ExpandDims(convert_to_tensor(input, name="input"), np.int32(at))
        pooled = function(images, window, steps, padding, data_format="NHWC" if last else "NCHW")
        result: Tensor = raw.Squeeze(pooled, squeeze_dims=[at], name=scope)
        return result


def max_pool_v2(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Max pooling of one to three spatial dimensions, by the rank of the input."""
    return _by_rank({1: max_pool1d, 2: max_pool2d, 3: max_pool3d}, input, ksize, strides, padding, data_format, name)


def avg_pool_v2(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Average pooling of one to three spatial dimensions, by the rank of the input."""
    return _by_rank({1: avg_pool1d, 2: avg_pool, 3: avg_pool3d}, input, ksize, strides, padding, data_format, name)


def _by_rank(
    functions: dict[int, Any],
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None,
    name: str | None,
) -> Tensor:
    data = convert_to_tensor(input, name="input")
    spatial = (data.shape.ndims if data.shape.ndims is not None else len(data_format or "")) - 2
    if spatial not in functions:
        raise ValueError(
            f"Input tensor must be of rank 3, 4 or 5 but was {data.shape.ndims}. (Its shape is {data.shape}.)"
        )
    pooled: Tensor = functions[spatial](data, ksize, strides, padding, data_format or FORMATS[spatial][0], name)
    return pooled


class MaximaAndPlaces(NamedTuple):
    """The maxima of windows, and where they stand."""

    output: Tensor
    argmax: Tensor


def max_pool_with_argmax(
    input: TensorLike,
    ksize: PerAxis,
    strides: PerAxis,
    padding: Padding,
    data_format: str = "NHWC",
    Targmax: DTypeLike | None = None,
    name: str | None = None,
    output_dtype: DTypeLike | None = None,
    include_batch_in_index: bool = False,
) -> MaximaAndPlaces:
    """Max pooling, and where each maximum stands in its flattened image, (y * width + x) * channels + channel.

    Args:
        Targmax: int32 or int64 (the default), the dtype of the places; `output_dtype` is another name.
        include_batch_in_index: places count through the whole batch.

    Returns:
        A named tuple: `output` and `argmax`.

    Raises:
        ValueError: `data_format` is not "NHWC".
    """
    if data_format != "NHWC":
        raise ValueError(f"Data formats other than 'NHWC' are not yet supported, got {data_format!r}")
    dtype = one_of("output_dtype", output_dtype, "Targmax", Targmax)
    how = _window(ksize, strides, data_format, 2)
    del how["data_format"]
    return MaximaAndPlaces(
        *raw.MaxPoolWithArgmax(
            input,
            padding=padding,
            Targmax=int64_dtype if dtype is None else as_dtype(dtype),
            include_batch_in_index=include_batch_in_index,
            name=name,
            **how,
        )
    )


# ---------------------------------------------------------------------- any dimension
def pool(
    input: TensorLike,
    window_shape: Iterable[SupportsIndex],
    pooling_type: str,
    padding: str,
    dilation_rate: Iterable[SupportsIndex] | None = None,
    strides: Iterable[SupportsIndex] | None = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Iterable[SupportsIndex] | None = None,
) -> Tensor:
    """Pooling of one to three spatial dimensions, possibly with a dilated window.

    Args:
        input: rank N + 2, with N spatial dimensions.
        window_shape, strides, dilation_rate: N numbers each; strides and dilations are not both greater than 1.
        pooling_type: "MAX" or "AVG".
        padding: "SAME" (only without dilation) or "VALID".
        dilations: another name of `dilation_rate`.

    Raises:
        ValueError: another pooling type or padding, or arguments that do not go together.
    """
    rates = one_of("dilations", dilations, "dilation_rate", dilation_rate)
    window = [int(k) for k in window_shape]
    spatial = len(window)
    if spatial not in FORMATS or pooling_type not in ("MAX", "AVG") or padding not in ("SAME", "VALID"):
        raise ValueError(f"cannot pool by {pooling_type!r} with padding {padding!r} under a window {window}")
    steps = [int(s) for s in strides] if strides is not None else [1] * spatial
    rates = [int(r) for r in rates] if rates is not None else [1] * spatial
    if max(steps) > 1 and max(rates) > 1:
        raise ValueError(f"strides > 1 not supported in conjunction with dilation_rate > 1: {steps} and {rates}")
    function = max_pool_v2 if pooling_type == "MAX" else avg_pool_v2
    data_format = data_format or FORMATS[spatial][0]
    with name_scope(name, f"{pooling_type.lower()}_pool", [input]) as scope:
        data = convert_to_tensor(input, name="input")
        data.shape.assert_is_compatible_with([None] * (spatial + 2))
        if max(rates) == 1:
            return function(data, window, steps, padding, data_format, name=scope)
        if padding == "SAME":
            raise ValueError("pooling with SAME padding is not implemented for dilation_rate > 1")
        return _dilated(function, data, window, rates, data_format)


def _dilated(
    function: Callable[..., Any], data: Tensor, window: list[int], rates: list[int], data_format: str
) -> Tensor:
    """Each residue class of positions becomes an image of its own, which is pooled without dilation."""
    spatial = len(window)
    if not channels_last(data_format, spatial):
        moved = raw.Transpose(data, np.array([0, *range(2, spatial + 2), 1], np.int32))
        pooled = _dilated(function, moved, window, rates, FORMATS[spatial][0])
        result: Tensor = raw.Transpose(pooled, np.array([0, spatial + 1, *range(1, spatial + 1)], np.int32))
        return result
    lengths = raw.Slice(raw.Shape(data), np.array([1], np.int32), np.array([spatial], np.int32))
    paddings, crops = required_space_to_batch_paddings(lengths, np.array(rates, np.int32))
    pooled = function(space_to_batch_nd(data, rates, paddings), window, [1] * spatial, "VALID", data_format)
    return batch_to_space_nd(pooled, rates, crops)
