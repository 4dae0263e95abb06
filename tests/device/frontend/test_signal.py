"""`tf.signal`, beside SciPy's transforms and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import anabranch as tf

RANDOM = np.random.default_rng(5)
SAMPLES = RANDOM.normal(size=(3, 37)).astype(np.float32)


def result(tensor: tf.Tensor, feeds: Any = None) -> Any:
    with tf.Session(graph=tensor.graph) as session:
        value = session.run(tensor, feeds)
    assert tensor.shape.is_compatible_with(value.shape)
    return value


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("length", [0, 1, 2, 3, 8, 9])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(length: int, periodic: bool) -> None:
    # odd windows are the same both ways, as in TensorFlow
    as_filter = not periodic or length % 2 == 1
    for window, name in ((tf.signal.hann_window, "hann"), (tf.signal.hamming_window, "hamming")):
        expected = scipy.signal.get_window(name, length, fftbins=not as_filter) if length else np.zeros(0)
        np.testing.assert_allclose(result(window(length, periodic, tf.float64)), expected, atol=1e-12)
        fed = tf.placeholder(tf.int32, [])
        if length > 1:
            np.testing.assert_allclose(result(window(fed, periodic, tf.float64), {fed: length}), expected, atol=1e-12)
    with pytest.raises(ValueError, match="int32"):
        tf.signal.hann_window(length, dtype=tf.int32)


def framed(x: Any, length: int, step: int, pad_end: bool) -> Any:
    """By the definition, one frame after the other, over the last axis."""
    size = x.shape[-1]
    starts = range(0, size, step) if pad_end else range(0, size - length + 1, step)
    longer = np.concatenate([x, np.full((*x.shape[:-1], length), 7, x.dtype)], -1)
    frames = [longer[..., start : start + length] for start in starts]
    return np.stack(frames, -2) if frames else np.zeros((*x.shape[:-1], 0, length), x.dtype)


@pytest.mark.parametrize("length", [1, 3, 37, 40])
@pytest.mark.parametrize("step", [1, 2, 5, 50])
@pytest.mark.parametrize("pad_end", [True, False])
def test_frames(length: int, step: int, pad_end: bool) -> None:
    expected = framed(SAMPLES, length, step, pad_end)
    frames = tf.signal.frame(SAMPLES, length, step, pad_end, pad_value=7)
    assert frames.shape.as_list() == list(expected.shape)
    np.testing.assert_array_equal(result(frames), expected)
    # along another axis, and with numbers that are fed
    fed, lengths = tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.int32, [2])
    frames = tf.signal.frame(fed, lengths[0], lengths[1], pad_end, pad_value=7, axis=0)
    value = result(frames, {fed: SAMPLES.T, lengths: [length, step]})
    np.testing.assert_array_equal(value, np.moveaxis(expected, 0, -1))


@pytest.mark.parametrize("axis", [-1, -2, 0, 1])
@pytest.mark.parametrize("pad_end", [True, False])
def test_frames_of_a_signal_of_any_number_of_dimensions(axis: int, pad_end: bool) -> None:
    samples = SAMPLES[:, :35].reshape(3, 5, 7)
    fed = tf.placeholder(tf.float32)
    frames = tf.signal.frame(fed, 2, 1, pad_end, pad_value=7, axis=axis)
    assert frames.shape.ndims is None
    expected = result(tf.signal.frame(samples, 2, 1, pad_end, pad_value=7, axis=axis))
    np.testing.assert_array_equal(result(frames, {fed: samples}), expected)


@pytest.mark.parametrize("step", [1, 2, 4, 5, 7])
def test_overlapping_frames_are_added(step: int) -> None:
    frames = SAMPLES[:2, :20].reshape(2, 4, 5)
    expected = np.zeros((2, 3 * step + 5), np.float32)
    for number in range(4):
        expected[:, number * step : number * step + 5] += frames[:, number]
    added = tf.signal.overlap_and_add(frames, step)
    assert added.shape.as_list() == [2, 3 * step + 5]
    np.testing.assert_allclose(result(added), expected, rtol=1e-6)


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="frame_step is positive, not 0"):
        tf.signal.frame(SAMPLES, 4, 0)
    with pytest.raises(ValueError, match="frame_length is a scalar"):
        tf.signal.frame(SAMPLES, [4, 5], 1)
    with pytest.raises(ValueError, match="pad_value is a scalar"):
        tf.signal.frame(SAMPLES, 4, 1, pad_end=True, pad_value=[1.0])
    with pytest.raises(ValueError, match="2 dimensions has no axis 2"):
        tf.signal.frame(SAMPLES, 4, 1, axis=2)
    with pytest.raises(ValueError, match="float32"):
        tf.signal.overlap_and_add(SAMPLES, 1.0)


@pytest.mark.parametrize(("length", "step", "points"), [(8, 4, None), (7, 3, None), (8, 8, 16), (16, 4, 8), (5, 2, 5)])
@pytest.mark.parametrize("pad_end", [True, False])
def test_short_time_transforms(length: int, step: int, points: int | None, pad_end: bool) -> None:
    padded = np.concatenate([SAMPLES.astype(np.float64), np.zeros((3, length))], -1) if pad_end else SAMPLES
    count = -(-37 // step) if pad_end else 1 + (37 - length) // step
    frames = framed(padded.astype(np.float64), length, step, False)[:, :count]
    window = scipy.signal.get_window("hann", length, fftbins=length % 2 == 0)
    size = points or 1 << (length - 1).bit_length()
    spectra = tf.signal.stft(SAMPLES.astype(np.float64), length, step, points, pad_end=pad_end)
    assert spectra.shape.as_list() == [3, count, size // 2 + 1]
    np.testing.assert_allclose(result(spectra), np.fft.rfft(frames * window, size), atol=1e-9)
    plain = tf.signal.stft(SAMPLES.astype(np.float64), length, step, points, None, pad_end)
    np.testing.assert_allclose(result(plain), np.fft.rfft(frames, size), atol=1e-9)
    if size >= length > step:
        again = tf.signal.inverse_stft(spectra, length, step, points, tf.signal.inverse_stft_window_fn(step))
        value = result(again)
        inner = slice(length, min(37, value.shape[-1]) - length)
        np.testing.assert_allclose(value[:, inner], SAMPLES[:, inner], atol=1e-6)


def test_the_length_of_a_transform_may_be_fed() -> None:
    length = tf.placeholder(tf.int32, [])
    spectra = tf.signal.stft(SAMPLES, length, 4)
    with tf.Session() as session:
        for fed, points in ((1, 1), (8, 8), (9, 16), (33, 64)):
            assert session.run(spectra, {length: fed}).shape[-1] == points // 2 + 1


@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_cosine_transforms(size: int, kind: int, norm: Any) -> None:
    x = SAMPLES[:, :size].astype(np.float64)
    if kind == 1 and (norm or size < 2):
        with pytest.raises(ValueError, match="type 1"):
            tf.signal.dct(x, kind, norm=norm)
        return
    np.testing.assert_allclose(result(tf.signal.dct(x, kind, norm=norm)), scipy.fft.dct(x, kind, norm=norm), atol=1e-9)
    inverse = tf.signal.idct(tf.signal.dct(x, kind, norm=norm), kind, norm=norm)
    factor = 1 if norm else 2 * (size - 1) if kind == 1 else 2 * size
    np.testing.assert_allclose(result(inverse), x * factor, atol=1e-9)
    for n in (6, 12):
        fitted = tf.signal.dct(x, kind, n, norm=norm)
        np.testing.assert_allclose(result(fitted), scipy.fft.dct(x, kind, n, norm=norm), atol=1e-9)


def test_cosine_transforms_that_do_not_exist() -> None:
    for arguments in ({"type": 5}, {"norm": "orthogonal"}, {"n": 0}):
        with pytest.raises(ValueError, match=r"types|norm|positive"):
            tf.signal.dct(SAMPLES, **arguments)
    with pytest.raises(NotImplementedError, match="axis"):
        tf.signal.dct(SAMPLES, axis=0)
    with pytest.raises(ValueError, match="int32"):
        tf.signal.dct([1, 2])


def test_mel_scale() -> None:
    matrix = result(tf.signal.linear_to_mel_weight_matrix(5, 33, 16000, 0.0, 8000.0, tf.float64))
    mels = 1127 * np.log1p(np.linspace(0, 8000, 33) / 700)
    edges = np.linspace(0, 1127 * np.log1p(8000 / 700), 7)
    expected = np.stack([np.interp(mels, edges[i : i + 3], [0, 1, 0], 0, 0) for i in range(5)], -1)
    expected[0] = 0
    np.testing.assert_allclose(matrix, expected, atol=1e-9)
    cepstra = result(tf.signal.mfccs_from_log_mel_spectrograms(SAMPLES.astype(np.float64)))
    np.testing.assert_allclose(cepstra, scipy.fft.dct(SAMPLES.astype(np.float64), 2) / np.sqrt(74), atol=1e-9)
    for arguments in ((0,), (5, 33, 8000, -1.0), (5, 33, 8000, 500.0, 400.0), (5, 33, 8000, 0.0, 4001.0), (5, 33, 0)):
        with pytest.raises(ValueError, match=r"mel|hertz|sample_rate"):
            tf.signal.linear_to_mel_weight_matrix(*arguments)


@pytest.mark.parametrize("axes", [None, 0, -1, [0, 1], [1]])
def test_shifted_spectra(axes: Any) -> None:
    np.testing.assert_array_equal(result(tf.signal.fftshift(SAMPLES, axes)), np.fft.fftshift(SAMPLES, axes))
    np.testing.assert_array_equal(result(tf.signal.ifftshift(SAMPLES, axes)), np.fft.ifftshift(SAMPLES, axes))


FUNCTIONS = {
    "stft": lambda x: tf.abs(tf.signal.stft(x, 8, 4)),
    "frames": lambda x: tf.signal.overlap_and_add(tf.signal.frame(x, 8, 3, pad_end=True), 2),
    "inverse": lambda x: tf.signal.inverse_stft(tf.signal.stft(x, 8, 4), 8, 4),
    **{f"dct {kind}": lambda x, kind=kind: tf.signal.dct(x, kind) for kind in (1, 2, 3, 4)},
    "mel": tf.signal.mfccs_from_log_mel_spectrograms,
    "shift": tf.signal.fftshift,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    x = tf.constant(SAMPLES[:2, :16].astype(np.float64))
    y = FUNCTIONS[name](x)
    with tf.Session():
        shape = result(y).shape
        assert tf.test.compute_gradient_error(x, [2, 16], y, shape, x_init_value=result(x)) < 1e-5
