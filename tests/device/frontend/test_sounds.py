"""Operations on sound: beside what TensorFlow recorded, their shapes, and what they refuse."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops.audio.wav import encode_wav
from tests.device.frontend.test_recorded_functions import same
from tests.oracles.sound_cases import CASES, SOUND

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "sounds.json.gz"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))


def value(tensor: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(tensor, feeds)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default():
        values = value(CASES[name](tf))
    assert len(values) == len(RECORDED[name])
    for index, (found, entry) in enumerate(zip(values, RECORDED[name], strict=True)):
        same(np.asarray(found), entry, f"value {index} of {name}")


def test_a_spectrum_in_a_compiled_step_with_and_without_known_shapes() -> None:
    sizes = {"window_size": 100, "stride": 30}
    known = tf.raw_ops.AudioSpectrogram(input=SOUND, **sizes)
    fed = tf.placeholder(tf.float32, [None, 2])
    late = tf.raw_ops.AudioSpectrogram(input=fed, **sizes)
    coefficients = tf.raw_ops.Mfcc(spectrogram=late, sample_rate=16000)
    assert known.shape.as_list() == [2, 21, 65]
    assert late.shape.as_list() == [2, None, 65]
    assert coefficients.shape.as_list() == [2, None, 13]
    with tf.Session() as session:
        for _ in range(4):  # the first steps run directly, the later ones compiled
            first, second, last = session.run([known, late, coefficients], {fed: SOUND})
            np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
            assert last.shape == (2, 21, 13)
        assert session.run(late, {fed: SOUND[:99]}).shape == (2, 0, 65)


def test_shapes_of_files() -> None:
    contents = tf.placeholder(tf.string, [])
    assert tf.audio.decode_wav(contents).audio.shape.as_list() == [None, None]
    decoded = tf.audio.decode_wav(contents, desired_channels=2, desired_samples=5)
    assert decoded.audio.shape.as_list() == [5, 2]
    assert decoded.sample_rate.shape.as_list() == []
    assert tf.audio.encode_wav(SOUND, 8000).shape.as_list() == []
    with pytest.raises(ValueError, match="non-negative"):
        tf.audio.decode_wav(contents, desired_channels=-2)
    with pytest.raises(ValueError, match="stride"):
        tf.raw_ops.AudioSpectrogram(input=SOUND, window_size=2, stride=0)


GOOD = encode_wav(SOUND[:3], 100)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "RIFF"),
        (b"RIFX" + GOOD[4:], "RIFF"),
        (GOOD[:15], "WAVEfmt"),
        (GOOD[:30], "too short"),
        (GOOD[:16] + struct.pack("<I", 40) + GOOD[20:], "16 or 18"),
        (GOOD[:20] + struct.pack("<H", 3) + GOOD[22:], "PCM"),
        (GOOD[:22] + struct.pack("<H", 0) + GOOD[24:], "one channel"),
        (GOOD[:28] + struct.pack("<I", 7) + GOOD[32:], "bytes in a second"),
        (GOOD[:32] + struct.pack("<H", 7) + GOOD[34:], "bytes in a frame"),
        (GOOD[:34] + struct.pack("<H", 8) + GOOD[36:], "16 bits"),
        (GOOD[:36], "data chunk"),
        (GOOD[:-1], "only 11 follow"),
        (GOOD[:40] + struct.pack("<I", 2**31) + GOOD[44:], "2 GiB"),
        (GOOD + GOOD[36:], "not several"),
        (GOOD + b"no", "too short"),
    ],
)
def test_files_that_are_none(contents: bytes, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        value(tf.audio.decode_wav(contents))


@pytest.mark.parametrize(
    ("sound", "rate", "message"),
    [
        (SOUND[:0], 8000, "num_frames"),
        (SOUND[:, :0], 8000, "num_channels"),
        (SOUND, 0, "sample_rate"),
        (SOUND, -5, "sample_rate"),
    ],
)
def test_sound_that_no_file_can_hold(sound: Any, rate: int, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        value(tf.audio.encode_wav(sound, rate))


@pytest.mark.parametrize(
    ("attributes", "rate", "message"),
    [
        ({}, 0, "sample_rate"),
        ({"filterbank_channel_count": 0}, 8000, "filterbank_channel_count"),
        ({"dct_coefficient_count": 41}, 8000, "dct_coefficient_count"),
        ({"lower_frequency_limit": -1.0}, 8000, "lower_frequency_limit"),
        ({"upper_frequency_limit": 20.0}, 8000, "upper_frequency_limit"),
    ],
)
def test_coefficients_that_are_none(attributes: Any, rate: int, message: str) -> None:
    spectrum = np.ones((1, 2, 129), np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        value(tf.raw_ops.Mfcc(spectrogram=spectrum, sample_rate=rate, **attributes))
    with pytest.raises(tf.errors.InvalidArgumentError, match="window_size"):
        value(tf.raw_ops.AudioSpectrogram(input=SOUND, window_size=1, stride=1))
