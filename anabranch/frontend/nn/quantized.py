"""tf.nn.quantized_*: layers of numbers of few bits."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def quantized_conv2d(
    input: TensorLike,
    filter: TensorLike,
    min_input: TensorLike,
    max_input: TensorLike,
    min_filter: TensorLike,
    max_filter: TensorLike,
    strides: Sequence[int],
    padding: str,
    out_type: DTypeLike = dtypes.qint32,
    dilations: Sequence[int] = (1, 1, 1, 1),
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A convolution of bytes, whose sums have 32 bits.

    Args:
        input: quint8 or qint8, shape [batch, rows, columns, channels].
        filter: quint8 or qint8, shape [rows, columns, channels, outputs].
        min_input, max_input, min_filter, max_filter: float32 scalars: the ranges of both, as `tf.quantization.quantize`
            gives them.
        strides: [1, stride, stride, 1].
        padding: "SAME" or "VALID".
        out_type: a quantised dtype.
        dilations: [1, 1, 1, 1].
        name: of the operation.

    Returns:
        `output`, and its range: `min_output`, `max_output`, float32 scalars. `tf.raw_ops.QuantizeDownAndShrinkRange`
        makes bytes of it again.

    Raises:
        ValueError: the shapes do not fit.
        InvalidArgumentError: (in the step) strides and dilations are others than these.
    """
    return raw.QuantizedConv2D(  # type: ignore[no-any-return]
        input,
        filter,
        min_input,
        max_input,
        min_filter,
        max_filter,
        strides=strides,
        padding=padding,
        out_type=out_type,
        dilations=dilations,
        name=name,
    )


def quantized_max_pool(
    input: TensorLike,
    min_input: TensorLike,
    max_input: TensorLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest number that a window sees.

    Args:
        input: a quantised dtype, shape [batch, rows, columns, channels].
        min_input, max_input: float32 scalars: its range.
        ksize, strides: of the window, four numbers, the first and the last of them 1.
        padding: "SAME" or "VALID".
        name: of the operation.

    Returns:
        `output`, of the dtype of `input`, and its range, which is that of `input`: `min_output`, `max_output`.

    Raises:
        ValueError: the window does not fit.
        InvalidArgumentError: (in the step) it reaches over images or channels.
    """
    return raw.QuantizedMaxPool(  # type: ignore[no-any-return]
        input, min_input, max_input, ksize=ksize, strides=strides, padding=padding, name=name
    )


def quantized_avg_pool(
    input: TensorLike,
    min_input: TensorLike,
    max_input: TensorLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of the numbers that a window sees, cut off to an integer.

    Args, returns and errors are those of `quantized_max_pool`.
    """
    return raw.QuantizedAvgPool(  # type: ignore[no-any-return]
        input, min_input, max_input, ksize=ksize, strides=strides, padding=padding, name=name
    )


def quantized_relu_x(
    features: TensorLike,
    max_value: TensorLike,
    min_features: TensorLike,
    max_features: TensorLike,
    out_type: DTypeLike = dtypes.quint8,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers limited to what stands for 0 to `max_value`.

    Args:
        features: a quantised dtype, any shape.
        max_value: float32 scalar.
        min_features, max_features: float32 scalars: the range of `features`.
        out_type: the dtype of `features`.
        name: of the operation.

    Returns:
        `activations`, of the dtype and shape of `features`, and its range, which is that of `features`:
        `min_activations`, `max_activations`.

    Raises (in the step):
        InvalidArgumentError: `out_type` is another dtype.
    """
    return raw.QuantizedReluX(  # type: ignore[no-any-return]
        features, max_value, min_features, max_features, out_type=out_type, name=name
    )
