"""The mel scale: frequencies as far from each other as they sound."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import log, maximum, minimum, rsqrt
from anabranch.frontend.arithmetic.reduction import linspace
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.layout import pad
from anabranch.frontend.arrays.shapes import expand_dims, shape
from anabranch.frontend.framework import name_scope
from anabranch.frontend.signal.cosine_transforms import dct
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor

# the scale of the Hidden Markov Model Toolkit: 1000 Hz are 1000 mel
_MELS, _CORNER_HERTZ = 1127.0, 700.0


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: TensorLike = 129,
    sample_rate: TensorLike = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """What a spectrogram is multiplied with, so that its bins lie on the mel scale: triangles that overlap by half.

    Args:
        num_mel_bins: bins of the result.
        num_spectrogram_bins: bins of the spectrogram, as ``fft_length // 2 + 1``; a scalar.
        sample_rate: samples of the signal in a second, a scalar.
        lower_edge_hertz: the lowest frequency of the first bin.
        upper_edge_hertz: the highest of the last one.
        dtype: a floating-point type.

    Returns:
        A tensor of shape [num_spectrogram_bins, num_mel_bins].

    Raises:
        ValueError: a number is out of its bounds, or the type is not a floating-point type.

    Example:
        >>> spectrogram = tf.abs(tf.signal.stft(tf.random_normal([8000]), 256, 128))
        >>> tf.matmul(spectrogram, tf.signal.linear_to_mel_weight_matrix(20, 129, 8000)).shape
        TensorShape([Dimension(61), Dimension(20)])
    """
    kind = dtypes.as_dtype(dtype)
    _check_mel(num_mel_bins, sample_rate, lower_edge_hertz, upper_edge_hertz, kind)
    with name_scope(name, "linear_to_mel_weight_matrix"):
        nyquist = cast(convert_to_tensor(sample_rate, name="sample_rate"), kind) / 2
        # the first bin is the signal's mean, which no triangle has a part of
        bins = _mels(linspace(convert_to_tensor(0, kind), nyquist, num_spectrogram_bins)[1:])
        lowest = _mels(convert_to_tensor(lower_edge_hertz, kind))
        highest = _mels(convert_to_tensor(upper_edge_hertz, kind))
        edges = linspace(lowest, highest, num_mel_bins + 2)
        lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
        bins = expand_dims(bins, 1)
        rising, falling = (bins - lower) / (center - lower), (upper - bins) / (upper - center)
        return pad(maximum(convert_to_tensor(0, kind), minimum(rising, falling)), [[1, 0], [0, 0]])


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: TensorLike, name: str | None = None) -> Tensor:
    """Mel-frequency cepstral coefficients: the cosine transform of each frame, scaled as in the HTK toolkit.

    Args:
        log_mel_spectrograms: shape [..., num_mel_bins], logarithms of magnitudes.

    Returns:
        A tensor of the same shape and type; programs often keep the first 13 coefficients.

    Raises:
        ValueError: there are no bins.

    Example:
        >>> sess.run(tf.signal.mfccs_from_log_mel_spectrograms([[1.0, 2.0, 3.0]]))
        array([[ 4.898979 , -1.4142135,  0.       ]], dtype=float32)
    """
    with name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        x = convert_to_tensor(log_mel_spectrograms, name="log_mel_spectrograms")
        bins = shape(x)[-1]
        if constant_value(bins) is not None and not constant_value(bins):
            raise ValueError(f"num_mel_bins must be positive; the shape is {x.shape}")
        return dct(x, type=2) * rsqrt(2 * cast(bins, x.dtype))


def _mels(hertz: Tensor) -> Tensor:
    return _MELS * log(1 + hertz / _CORNER_HERTZ)


def _check_mel(bins: int, sample_rate: TensorLike, lower: float, upper: float, kind: dtypes.DType) -> None:
    if bins <= 0:
        raise ValueError(f"num_mel_bins must be positive, not {bins}")
    if lower < 0:
        raise ValueError(f"lower_edge_hertz must not be negative: {lower}")
    if lower >= upper:
        raise ValueError(f"lower_edge_hertz {lower} must be less than upper_edge_hertz {upper}")
    known = constant_value(convert_to_tensor(sample_rate))
    if known is not None and known <= 0:
        raise ValueError(f"sample_rate must be positive, not {known}")
    if known is not None and upper > known / 2:
        raise ValueError(f"upper_edge_hertz {upper} must not be more than half of the sample rate {known}")
    if not kind.is_floating:
        raise ValueError(f"the matrix has a floating-point type, not {kind.name}")
