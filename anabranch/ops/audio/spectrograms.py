"""Spectra of sound over time, and their mel-frequency cepstral coefficients (Davis and Mermelstein, 1980)."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op

#: the least energy of a band, before its logarithm is taken
_FLOOR: Final = 1e-12

AudioSpectrogram = define_op(
    "AudioSpectrogram",
    "input: float32 -> spectrogram: float32",
    "window_size: int, stride: int, magnitude_squared: bool = False",
    ranks={"input": 2},
)
AudioSpectrogram.not_differentiable()


def _windows(samples: int, size: int, stride: int) -> int:
    return 0 if samples < size else 1 + (samples - size) // stride


def _transformed(window_size: int) -> int:
    """How many samples the transform takes: the next power of two."""
    return 1 << max(window_size - 1, 0).bit_length()


@AudioSpectrogram.shape
def _(input: TensorShape, *, window_size: int, stride: int) -> TensorShape:
    samples, channels = input.dims_tuple or (None, None)
    if stride < 1:
        raise ValueError(f"stride must be positive, got {stride}")
    count = None if samples is None else _windows(samples, window_size, stride)
    return TensorShape([channels, count, 1 + _transformed(window_size) // 2])


@AudioSpectrogram.kernel
def _(
    input: Array,
    *,
    window_size: int,
    stride: int,
    magnitude_squared: bool,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    if window_size < 2:
        raise InvalidArgumentError(None, ctx.op, f"window_size must be at least 2, got {window_size}")
    count = _windows(input.shape[0], window_size, stride)
    length = _transformed(window_size)
    if not count or not input.shape[1]:
        return xp.zeros((input.shape[1], count, 1 + length // 2), np.float32)
    hann = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(window_size) / window_size)
    places = stride * np.arange(count)[:, None] + np.arange(window_size)
    windows = xp.asarray(input).T[:, places].astype(np.float64) * hann
    spectrum = xp.fft.rfft(windows, length)
    squared = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    return squared if magnitude_squared else xp.sqrt(squared)


Mfcc = define_op(
    "Mfcc",
    "spectrogram: float32, sample_rate: int32 -> output: float32",
    "upper_frequency_limit: float = 4000.0, lower_frequency_limit: float = 20.0, filterbank_channel_count: int = 40, "
    "dct_coefficient_count: int = 13",
    static=("sample_rate",),
    ranks={"spectrogram": 3, "sample_rate": 0},
)
Mfcc.not_differentiable()


@Mfcc.shape
def _(spectrogram: TensorShape, sample_rate: TensorShape, *, dct_coefficient_count: int) -> TensorShape:
    if dct_coefficient_count < 0:
        raise ValueError(f"dct_coefficient_count must be positive, got {dct_coefficient_count}")
    channels, samples = (spectrogram.dims_tuple or (None, None, None))[:2]
    return TensorShape([channels, samples, dct_coefficient_count])


@Mfcc.kernel
def _(
    spectrogram: Array,
    sample_rate: Array,
    *,
    upper_frequency_limit: float,
    lower_frequency_limit: float,
    filterbank_channel_count: int,
    dct_coefficient_count: int,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    """The cosine transform of the logarithms of what bands of frequencies have of the magnitudes."""
    bins, rate = spectrogram.shape[2], int(sample_rate)
    for holds, what in (
        (filterbank_channel_count >= 1, f"filterbank_channel_count must be positive, got {filterbank_channel_count}"),
        (rate > 0, f"sample_rate must be positive, got {rate}"),
        (bins >= 2, f"the spectrogram must have at least 2 frequencies, got {bins}"),
        (lower_frequency_limit >= 0, f"lower_frequency_limit must not be negative, got {lower_frequency_limit}"),
        (upper_frequency_limit > lower_frequency_limit, "upper_frequency_limit must be above lower_frequency_limit"),
        (
            1 <= dct_coefficient_count <= filterbank_channel_count,
            f"dct_coefficient_count must be in [1, {filterbank_channel_count}], got {dct_coefficient_count}",
        ),
    ):
        if not holds:
            raise InvalidArgumentError(None, ctx.op, what)
    per_bin = 0.5 * rate / (bins - 1)
    first, last = int(1.5 + lower_frequency_limit / per_bin), int(upper_frequency_limit / per_bin)
    if last >= bins:  # the spectrum ends below the limit: TensorFlow logs an error, and gives zeros
        return xp.zeros((*spectrogram.shape[:2], dct_coefficient_count), np.float32)
    limits = _mel(lower_frequency_limit), _mel(upper_frequency_limit)
    weights = _band_weights(np.arange(first, last + 1) * per_bin, limits, filterbank_channel_count)
    magnitudes = xp.sqrt(xp.asarray(spectrogram)[:, :, first : last + 1].astype(np.float64))
    bands = xp.maximum(magnitudes @ weights, _FLOOR)
    rows = np.arange(dct_coefficient_count)[:, None] * (np.arange(filterbank_channel_count) + 0.5)
    cosines = math.sqrt(2 / filterbank_channel_count) * np.cos(math.pi / filterbank_channel_count * rows)
    return (xp.log(bands) @ cosines.T).astype(np.float32)


def _mel(frequency: TensorValue) -> Any:
    return 1127.0 * np.log1p(frequency / 700.0)


def _band_weights(frequencies: Array, limits: tuple[float, float], bands: int) -> Any:
    """What each band takes of each frequency, [frequencies, bands]: triangles between the middles of its neighbours."""
    low, high = limits
    middles = low + (high - low) / (bands + 1) * np.arange(bands + 2)
    mel = _mel(frequencies)[:, None]
    rising = (mel - middles[:-2]) / (middles[1:-1] - middles[:-2])
    falling = (middles[2:] - mel) / (middles[2:] - middles[1:-1])
    return np.clip(np.minimum(rising, falling), 0, None)
