"""Short-time Fourier transforms, and signals from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import square
from anabranch.frontend.arithmetic.reduction import reduce_sum
from anabranch.frontend.arithmetic.spectral import irfft, rfft
from anabranch.frontend.arrays.layout import pad, tile
from anabranch.frontend.arrays.shapes import reshape, shape
from anabranch.frontend.framework import name_scope
from anabranch.frontend.signal.frames import frame, overlap_and_add
from anabranch.frontend.signal.windows import hann_window
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: makes a window of a length, and of a type that it is given as `dtype`
WindowFunction: TypeAlias = Callable[..., Any]


def stft(
    signals: TensorLike,
    frame_length: TensorLike,
    frame_step: TensorLike,
    fft_length: TensorLike | None = None,
    window_fn: WindowFunction | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """The short-time Fourier transform: the spectra of a signal's frames, each multiplied with a window before.

    Args:
        signals: shape [..., samples], float32 or float64.
        frame_length: samples of a frame.
        frame_step: samples between the beginnings of two frames.
        fft_length: samples that are transformed, frames being cut or padded with zeros; default: the least power of
            two that is not less than `frame_length`.
        window_fn: makes the window, of a length and a `dtype`; None: there is none.
        pad_end: whether zeros complete the frames that end after the signal.

    Returns:
        A complex tensor of shape [..., frames, fft_length // 2 + 1].

    Example:
        >>> spectra = tf.signal.stft(tf.ones([16]), frame_length=8, frame_step=4)
        >>> spectra.shape
        TensorShape([Dimension(3), Dimension(5)])
    """
    with name_scope(name, "stft", [signals, frame_length, frame_step]):
        x = convert_to_tensor(signals, name="signals")
        x.shape.with_rank_at_least(1)
        length = _length(frame_length, "frame_length")
        frames = frame(x, length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=frames.dtype)
        return rfft(frames, [_fft_length(length, fft_length)])


def inverse_stft(
    stfts: TensorLike,
    frame_length: TensorLike,
    frame_step: TensorLike,
    fft_length: TensorLike | None = None,
    window_fn: WindowFunction | None = hann_window,
    name: str | None = None,
) -> Tensor:
    """A signal from the spectra of its frames: each is transformed back, multiplied with a window, and added.

    It is the signal that `stft` was given where the products of both windows sum to one, as they do with
    ``window_fn=tf.signal.inverse_stft_window_fn(frame_step)``; but for the beginning and the end.

    Args:
        stfts: shape [..., frames, fft_length // 2 + 1], complex.
        frame_length: samples of a frame.
        frame_step: samples between the beginnings of two frames.
        fft_length: as given to `stft`; the default is the same.
        window_fn: makes the window, of a length and a `dtype`; None: there is none.

    Returns:
        A real tensor of shape [..., (frames - 1) * frame_step + frame_length].

    Example:
        >>> signal = tf.sin(tf.range(0.0, 6.4, 0.1))
        >>> spectra = tf.signal.stft(signal, 16, 8)
        >>> again = tf.signal.inverse_stft(spectra, 16, 8, window_fn=tf.signal.inverse_stft_window_fn(8))
        >>> float(sess.run(tf.reduce_max(tf.abs(again - signal)[8:-8]))) < 1e-5
        True
    """
    with name_scope(name, "inverse_stft", [stfts]):
        spectra = convert_to_tensor(stfts, name="stfts")
        spectra.shape.with_rank_at_least(2)
        length = _length(frame_length, "frame_length")
        whole = _fft_length(length, fft_length)
        frames = irfft(spectra, [whole])[..., :length]
        missing = raw.Maximum(length - whole, 0)
        known = constant_value(missing)
        if known is None or known > 0:
            dims = frames.shape.with_rank_at_least(2).ndims
            if dims is None:
                raise ValueError("how many dimensions stfts has must be known; give its placeholder a shape")
            frames = pad(frames, [*([[0, 0]] * (dims - 1)), [0, missing]])
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=frames.dtype)
        return overlap_and_add(frames, frame_step)


def inverse_stft_window_fn(
    frame_step: TensorLike, forward_window_fn: WindowFunction = hann_window, name: str | None = None
) -> Callable[[TensorLike, DTypeLike], Tensor]:
    """The window with which `inverse_stft` gives back what `stft` took apart with another (Griffin and Lim, 1984).

    Args:
        frame_step: samples between the beginnings of two frames.
        forward_window_fn: what `stft` was given.

    Returns:
        A function of the length of a frame and a `dtype`.
    """

    def window(frame_length: TensorLike, dtype: DTypeLike) -> Tensor:
        with name_scope(name, "inverse_stft_window_fn", [frame_step, frame_length]):
            length, step = _length(frame_length, "frame_length"), _length(frame_step, "frame_step")
            forward = forward_window_fn(length, dtype=dtype)
            overlaps = -(-length // step)
            squares = pad(square(forward), [[0, overlaps * step - length]])
            sums = reduce_sum(reshape(squares, [overlaps, step]), 0)
            # where all windows are zero, nothing is left of the signal
            result: Tensor = raw.DivNoNan(forward, tile(sums, [overlaps])[: shape(forward)[0]])
            return result

    return window


def _length(value: TensorLike, what: str) -> Tensor:
    tensor = convert_to_tensor(value, dtypes.int32, name=what)
    tensor.shape.assert_has_rank(0)
    return tensor


def _fft_length(frame_length: Tensor, fft_length: TensorLike | None) -> Tensor:
    if fft_length is not None:
        return _length(fft_length, "fft_length")
    known = constant_value(frame_length)
    if known is not None:
        return convert_to_tensor(1 << max(0, int(known) - 1).bit_length(), dtypes.int32)
    # of the powers of two in 32 bits, the first that is long enough
    powers = convert_to_tensor([1 << digits for digits in range(31)], dtypes.int32)
    power: Tensor = raw.Min(raw.Select(powers >= frame_length, powers, raw.Fill([31], 1 << 30)), 0)
    return power
