"""tf.quantization: numbers that few bits could hold, in floats and in the quantised dtypes."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def fake_quant_with_min_max_args(
    inputs: TensorLike,
    min: float = -6,
    max: float = 6,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:
    """Moves each number to the nearest that `num_bits` bits can tell apart in a range.

    The range is moved a little where it must be so that zero is one of the numbers. The gradient is that of the
    identity within the range, and zero outside.

    Args:
        inputs: float32, any shape.
        min, max: the range; Python numbers.
        num_bits: 2 to 16.
        narrow_range: whether the lowest of the numbers is left out.
        name: of the operation.

    Returns:
        float32, the shape of `inputs`.

    Raises:
        ValueError: the range is empty, or `num_bits` is not between 2 and 16.
    """
    return raw.FakeQuantWithMinMaxArgs(  # type: ignore[no-any-return]
        inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def fake_quant_with_min_max_args_gradient(
    gradients: TensorLike,
    inputs: TensorLike,
    min: float = -6,
    max: float = 6,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:
    """The gradient of `fake_quant_with_min_max_args`: `gradients` where `inputs` are within the range, else zero.

    Args:
        gradients: float32, the shape of `inputs`.
        inputs, min, max, num_bits, narrow_range, name: as for `fake_quant_with_min_max_args`.

    Returns:
        float32, the shape of `inputs`.
    """
    return raw.FakeQuantWithMinMaxArgsGradient(  # type: ignore[no-any-return]
        gradients, inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def fake_quant_with_min_max_vars(
    inputs: TensorLike,
    min: TensorLike,
    max: TensorLike,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:
    """As `fake_quant_with_min_max_args`, with a range that may be learnt.

    Gradients of what lies below the range flow to `min`, of what lies above it to `max`.

    Args:
        inputs: float32, any shape.
        min, max: float32 scalars.
        num_bits, narrow_range, name: as for `fake_quant_with_min_max_args`.

    Returns:
        float32, the shape of `inputs`; zeros where `min` and `max` are both zero.

    Raises (in the step):
        InvalidArgumentError: `min` is larger than `max`.
    """
    return raw.FakeQuantWithMinMaxVars(  # type: ignore[no-any-return]
        inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def fake_quant_with_min_max_vars_gradient(
    gradients: TensorLike,
    inputs: TensorLike,
    min: TensorLike,
    max: TensorLike,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `fake_quant_with_min_max_vars`.

    Args:
        gradients: float32, the shape of `inputs`.
        inputs, min, max, num_bits, narrow_range, name: as for `fake_quant_with_min_max_vars`.

    Returns:
        `backprops_wrt_input`, the shape of `inputs`; `backprop_wrt_min` and `backprop_wrt_max`, scalars.
    """
    return raw.FakeQuantWithMinMaxVarsGradient(  # type: ignore[no-any-return]
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def fake_quant_with_min_max_vars_per_channel(
    inputs: TensorLike,
    min: TensorLike,
    max: TensorLike,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:
    """As `fake_quant_with_min_max_vars`, with a range for each channel.

    Args:
        inputs: float32, shape [..., channels].
        min, max: float32, shape [channels].
        num_bits, narrow_range, name: as for `fake_quant_with_min_max_args`.

    Returns:
        float32, the shape of `inputs`.

    Raises (in the step):
        InvalidArgumentError: an element of `min` is larger than that of `max`.
    """
    return raw.FakeQuantWithMinMaxVarsPerChannel(  # type: ignore[no-any-return]
        inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: TensorLike,
    inputs: TensorLike,
    min: TensorLike,
    max: TensorLike,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `fake_quant_with_min_max_vars_per_channel`.

    Args:
        gradients: float32, the shape of `inputs`.
        inputs, min, max, num_bits, narrow_range, name: as for `fake_quant_with_min_max_vars_per_channel`.

    Returns:
        `backprops_wrt_input`, the shape of `inputs`; `backprop_wrt_min` and `backprop_wrt_max`, shape [channels].
    """
    return raw.FakeQuantWithMinMaxVarsPerChannelGradient(  # type: ignore[no-any-return]
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


def quantize_and_dequantize(
    input: TensorLike,
    input_min: TensorLike,
    input_max: TensorLike,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
) -> Tensor:
    """Moves each number to the nearest multiple of one step, of which zero is one and the largest fills the range.

    The gradient is that of the identity.

    Args:
        input: floating, any shape.
        input_min, input_max: scalars of the dtype of `input`: the range, where `range_given`; else it is that of
            `input`.
        signed_input: whether the multiples may be negative.
        num_bits: of the multiples.
        range_given: see above.
        round_mode: "HALF_TO_EVEN" or "HALF_UP".
        name: of the operation.
        narrow_range: whether the lowest negative multiple is left out.

    Returns:
        The dtype and shape of `input`.

    Raises (in the step):
        InvalidArgumentError: the range that was given is empty.
    """
    return raw.QuantizeAndDequantizeV2(  # type: ignore[no-any-return]
        input,
        input_min,
        input_max,
        signed_input=signed_input,
        num_bits=num_bits,
        range_given=range_given,
        round_mode=round_mode,
        narrow_range=narrow_range,
        name=name,
    )


def quantize(
    input: TensorLike,
    min_range: TensorLike,
    max_range: TensorLike,
    T: DTypeLike,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of a quantised dtype that stand for floats of a range.

    Args:
        input: float32, any shape.
        min_range, max_range: float32 scalars. The range is widened so that it has zero in it and is not empty.
        T: a quantised dtype: tf.quint8, tf.qint8, ...
        mode: "MIN_COMBINED" (all numbers cover the range), "MIN_FIRST" (and zero is one of them) or "SCALED" (the
            number zero stands for zero).
        round_mode: "HALF_AWAY_FROM_ZERO", or, with "SCALED", "HALF_TO_EVEN".
        name: of the operation.

    Returns:
        `output`, of dtype `T` and the shape of `input`, and the range that it covers: `output_min`, `output_max`.

    Raises (in the step):
        InvalidArgumentError: `min_range` is larger than `max_range`, or the modes do not go together.
    """
    return raw.QuantizeV2(  # type: ignore[no-any-return]
        input, min_range, max_range, T=T, mode=mode, round_mode=round_mode, name=name
    )


def quantize_v2(
    input: TensorLike,
    min_range: TensorLike,
    max_range: TensorLike,
    T: DTypeLike,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `quantize`, with its arguments in an older order."""
    return quantize(input, min_range, max_range, T, mode, round_mode, name)


def dequantize(
    input: TensorLike,
    min_range: TensorLike,
    max_range: TensorLike,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
) -> Tensor:
    """The floats that numbers of a quantised dtype stand for.

    Args:
        input: a quantised dtype, any shape.
        min_range, max_range: float32 scalars, as `quantize` gives them.
        mode: as for `quantize`.
        name: of the operation.

    Returns:
        float32, the shape of `input`.
    """
    return raw.Dequantize(  # type: ignore[no-any-return]
        input, min_range, max_range, mode=mode, dtype=dtypes.float32, name=name
    )


def quantized_concat(
    concat_dim: TensorLike,
    values: Sequence[TensorLike],
    input_mins: Sequence[TensorLike],
    input_maxes: Sequence[TensorLike],
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Joins quantised tensors along an axis, in a range that has all of theirs, and zero, in it.

    Args:
        concat_dim: int32 scalar, 0 or more: the axis.
        values: two tensors or more of one quantised dtype, whose shapes are equal besides the axis.
        input_mins, input_maxes: for each, its range: float32 scalars.
        name: of the operation.

    Returns:
        `output`, of the dtype of `values`, and its range: `output_min`, `output_max`, float32 scalars. That of a
        signed dtype reaches as far below zero as above.

    Raises:
        ValueError: the shapes do not fit.
    """
    return raw.QuantizedConcat(  # type: ignore[no-any-return]
        concat_dim, values, input_mins, input_maxes, name=name
    )
