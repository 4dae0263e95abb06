"""Uses of operations on sound, for `make_operation_fixture.py`."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

RNG = np.random.default_rng(1915)
SOUND = np.concatenate(
    [RNG.normal(size=(700, 2)) * 0.4, [[1.0, -1.0], [1.5, -3.0], [2.5 / 32768, -2.5 / 32768]]]
).astype(np.float32)


def wav_files(tf: Any) -> Any:
    encoded = tf.audio.encode_wav(SOUND, 8000)
    sizes = [(-1, -1), (1, -1), (3, 10), (2, 1000), (0, 5), (-1, 0)]
    fetched = [encoded, tf.audio.encode_wav(SOUND[:1, :1], 2**31 - 1)]
    for channels, samples in sizes:
        fetched += [*tf.audio.decode_wav(encoded, desired_channels=channels, desired_samples=samples)]
    samples = np.arange(-6, 6, dtype="<i2").tobytes()
    head = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHHH", 18, 1, 2, 100, 400, 4, 16, 0)
    noted = head + b"note" + struct.pack("<I", 5) + b"12345" + b"data" + struct.pack("<I", 22) + samples[:20]
    return [*fetched, *tf.audio.decode_wav(noted)]


def spectrograms(tf: Any) -> Any:
    return [
        tf.raw_ops.AudioSpectrogram(input=SOUND, window_size=size, stride=stride, magnitude_squared=squared)
        for size, stride, squared in ((64, 32, False), (100, 160, True), (2, 1, True), (513, 7, False), (704, 1, True))
    ]


def cepstral_coefficients(tf: Any) -> Any:
    fetched = []
    for size in (256, 512):
        spectrum = tf.raw_ops.AudioSpectrogram(input=SOUND, window_size=size, stride=50, magnitude_squared=True)
        fetched += [
            tf.raw_ops.Mfcc(spectrogram=spectrum, sample_rate=16000),
            tf.raw_ops.Mfcc(spectrogram=spectrum, sample_rate=4000),
            tf.raw_ops.Mfcc(
                spectrogram=spectrum,
                sample_rate=11025,
                upper_frequency_limit=5000.0,
                lower_frequency_limit=0.0,
                filterbank_channel_count=7,
                dct_coefficient_count=7,
            ),
        ]
    fetched.append(tf.raw_ops.Mfcc(spectrogram=np.zeros((1, 2, 129), np.float32), sample_rate=8000))
    return fetched


CASES = {"wav_files": wav_files, "spectrograms": spectrograms, "cepstral_coefficients": cepstral_coefficients}
