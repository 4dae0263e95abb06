"""Windows: what a frame is multiplied with before it is transformed."""

from __future__ import annotations

import math

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import cos
from anabranch.frontend.arithmetic.reduction import range as range_
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def hann_window(
    window_length: TensorLike, periodic: bool = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Tensor:
    """A Hann window: ``0.5 - 0.5 * cos(2 * pi * i / n)``.

    Args:
        window_length: how long it is, a scalar.
        periodic: whether `n` is the window's length, if that is even (for spectra), rather than one less (for filters).
        dtype: a floating-point type.

    Returns:
        A tensor of shape [window_length].

    Raises:
        ValueError: the type is not a floating-point type.

    Example:
        >>> sess.run(tf.signal.hann_window(4))
        array([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    return _raised_cosine(0.5, window_length, periodic, dtype, name or "hann_window")


def hamming_window(
    window_length: TensorLike, periodic: bool = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Tensor:
    """A Hamming window: ``0.54 - 0.46 * cos(2 * pi * i / n)``; arguments, result and errors as of `hann_window`.

    Example:
        >>> sess.run(tf.signal.hamming_window(4))
        array([0.08, 0.54, 1.  , 0.54], dtype=float32)
    """
    return _raised_cosine(0.54, window_length, periodic, dtype, name or "hamming_window")


def _raised_cosine(mean: float, window_length: TensorLike, periodic: bool, dtype: DTypeLike, name: str) -> Tensor:
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise ValueError(f"a window has a floating-point type, not {kind.name}; cast it afterwards")
    with name_scope(name, name, [window_length]) as scope:
        length = convert_to_tensor(window_length, dtypes.int32, name="window_length")
        known = constant_value(length)
        if known is not None and int(known) == 1:
            result: Tensor = raw.Fill([1], convert_to_tensor(1, kind), name=scope)
            return result
        is_even = 1 - raw.FloorMod(length, 2)
        period = cast(length + is_even - 1 if periodic else length - 1, kind)
        phase = cast(range_(length), kind) * convert_to_tensor(2 * math.pi, kind) / period
        window: Tensor = raw.Sub(convert_to_tensor(mean, kind), (1 - mean) * cos(phase), name=scope)
        return window
