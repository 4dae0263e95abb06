"""Pooling layers: the largest value, or the mean, of each window."""

from __future__ import annotations

from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import PerAxis
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.layers.utils import (
    conv_output_length,
    convert_data_format,
    normalize_data_format,
    normalize_padding,
    normalize_tuple,
)
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class _Pooling(Layer):
    """Base of the pooling layers.

    Args:
        pool_size: the window's size: one integer, or one per spatial dimension.
        strides: steps between windows, likewise.
        padding: "valid" or "same".
        data_format: "channels_last" (default) or "channels_first".
        name: see `Layer`.
    """

    rank: int
    _kind: str

    def __init__(
        self,
        pool_size: PerAxis,
        strides: PerAxis,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = normalize_tuple(pool_size, self.rank, "pool_size")
        if strides is None:
            raise ValueError("Argument `strides` must not be None; pass `pool_size` for windows that touch each other.")
        self.strides = normalize_tuple(strides, self.rank, "strides")
        self.padding = normalize_padding(padding)
        self.data_format = normalize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Tensor) -> Tensor:
        if self.rank > 1:
            return self._pool(inputs, self.pool_size, self.strides)
        # a line is an image of width 1
        axis = 2 if self.data_format == "channels_last" else 3
        pooled = self._pool(raw.ExpandDims(inputs, axis), (*self.pool_size, 1), (*self.strides, 1))
        result: Tensor = raw.Squeeze(pooled, squeeze_dims=[axis])
        return result

    def _pool(self, inputs: Tensor, size: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        def full(sizes: tuple[int, ...]) -> list[int]:
            return [1, *sizes, 1] if self.data_format == "channels_last" else [1, 1, *sizes]

        op = getattr(raw, self._kind + ("3D" if self.rank == 3 else ""))
        pooled: Tensor = op(
            inputs,
            ksize=full(size),
            strides=full(strides),
            padding=self.padding.upper(),
            data_format=convert_data_format(self.data_format, len(size) + 2),
        )
        return pooled

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        dims = TensorShape(input_shape).as_list()
        first = 1 if self.data_format == "channels_last" else 2
        for i, (size, stride) in enumerate(zip(self.pool_size, self.strides, strict=True)):
            dims[first + i] = conv_output_length(dims[first + i], size, self.padding, stride)
        return TensorShape(dims)


class MaxPooling1D(_Pooling):
    """The largest value of each window along one dimension; inputs [batch, length, channels]."""

    rank, _kind = 1, "MaxPool"


class AveragePooling1D(_Pooling):
    """The mean of each window along one dimension; inputs [batch, length, channels]."""

    rank, _kind = 1, "AvgPool"


class MaxPooling2D(_Pooling):
    """The largest value of each window of an image; inputs [batch, height, width, channels]."""

    rank, _kind = 2, "MaxPool"


class AveragePooling2D(_Pooling):
    """The mean of each window of an image; inputs [batch, height, width, channels]."""

    rank, _kind = 2, "AvgPool"


class MaxPooling3D(_Pooling):
    """The largest value of each window of a volume; inputs [batch, depth, height, width, channels]."""

    rank, _kind = 3, "MaxPool"


class AveragePooling3D(_Pooling):
    """The mean of each window of a volume; inputs [batch, depth, height, width, channels]."""

    rank, _kind = 3, "AvgPool"


# ---------------------------------------------------------------------- functions
def max_pooling1d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Calls a new `MaxPooling1D` layer."""
    result: Tensor = MaxPooling1D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling1d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Calls a new `AveragePooling1D` layer."""
    result: Tensor = AveragePooling1D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def max_pooling2d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The greatest element under each position of a window over images.

    Args:
        inputs: [batch, height, width, channels], or [batch, channels, height, width] with "channels_first".
        pool_size, strides: the window and its steps: an integer, or two (height, width).
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first".
        name: of the operation.

    Returns:
        Images with the heights and widths of the windows' positions.

    Raises:
        ValueError: an unknown padding or format, or images of another rank.

    Example:
        >>> x = np.arange(16.0, dtype=np.float32).reshape([1, 4, 4, 1])
        >>> sess.run(tf.layers.max_pooling2d(x, 2, 2))[0, :, :, 0]
        array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    result: Tensor = MaxPooling2D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling2d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Calls a new `AveragePooling2D` layer."""
    result: Tensor = AveragePooling2D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def max_pooling3d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Calls a new `MaxPooling3D` layer."""
    result: Tensor = MaxPooling3D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling3d(
    inputs: TensorLike,
    pool_size: PerAxis,
    strides: PerAxis,
    padding: str = "valid",
    data_format: str | None = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Calls a new `AveragePooling3D` layer."""
    result: Tensor = AveragePooling3D(pool_size, strides, padding, data_format, name)(inputs)
    return result
