"""Rows of the op table: summaries, read back as messages, against NumPy and against what TensorFlow writes."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.io.png import decode_png
from anabranch.proto.summary_pb2 import Summary, SummaryMetadata
from anabranch.proto.tensors import make_ndarray
from anabranch.testing.op_cases import OpCase

LARGEST = float(np.finfo(np.float64).max)
RANDOM = np.random.default_rng(3)


def text(*values: bytes) -> np.ndarray:
    """A string scalar, or a vector."""
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array.reshape(()) if len(values) == 1 else array


def summary(check: Callable[[list[Any]], None]) -> Callable[[list[np.ndarray]], None]:
    """Verifies the values of the summary that an operation returned."""
    return lambda outputs: check(list(Summary.FromString(outputs[0][()]).value))


def has_scalars(*expected: tuple[str, float]) -> Callable[[list[np.ndarray]], None]:
    def check(values: list[Any]) -> None:
        assert [(v.tag, v.simple_value) for v in values] == [(tag, np.float32(x)) for tag, x in expected]

    return summary(check)


def has_histogram(values: np.ndarray, limits: list[float] | None = None, counts: list[int] | None = None) -> Any:
    wide = np.asarray(values, np.float64).ravel()

    def check(found: list[Any]) -> None:
        (value,) = found
        histogram = value.histo
        assert value.tag == "h"
        assert histogram.num == wide.size == sum(histogram.bucket)
        np.testing.assert_allclose([histogram.sum, histogram.sum_squares], [wide.sum(), (wide**2).sum()])
        assert (histogram.min, histogram.max) == ((wide.min(), wide.max()) if wide.size else (LARGEST, -LARGEST))
        edges = np.array([-np.inf, *histogram.bucket_limit])
        np.testing.assert_array_equal(np.histogram(wide, edges)[0] if wide.size else [0], histogram.bucket)
        if limits is not None:
            np.testing.assert_allclose(histogram.bucket_limit, limits, rtol=1e-12)
            assert list(histogram.bucket) == counts

    return summary(check)


def has_images(tags: list[str], pixels: np.ndarray) -> Any:
    def check(found: list[Any]) -> None:
        assert [v.tag for v in found] == tags
        for value, wanted in zip(found, pixels, strict=True):
            assert (value.image.height, value.image.width, value.image.colorspace) == wanted.shape
            np.testing.assert_array_equal(decode_png(value.image.encoded_image_string), wanted)

    return summary(check)


def has_audio(tags: list[str], frames: list[list[list[int]]]) -> Any:
    def check(found: list[Any]) -> None:
        assert [v.tag for v in found] == tags
        for value, wanted in zip(found, np.array(frames, np.int16), strict=True):
            audio = value.audio
            assert (audio.sample_rate, audio.length_frames, audio.num_channels) == (8000, *wanted.shape)
            assert audio.content_type == "audio/wav"
            with wave.open(io.BytesIO(audio.encoded_audio_string)) as file:
                assert (file.getframerate(), file.getsampwidth()) == (8000, 2)
                read = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
            np.testing.assert_array_equal(read, wanted)

    return summary(check)


def has_tensor(tag: str, wanted: Any, plugin: str = "") -> Any:
    def check(found: list[Any]) -> None:
        (value,) = found
        assert (value.tag, value.metadata.plugin_data.plugin_name) == (tag, plugin)
        np.testing.assert_array_equal(make_ndarray(value.tensor), wanted)

    return summary(check)


def scalar_bytes(tag: str, value: float) -> np.ndarray:
    message = Summary()
    message.value.add(tag=tag, simple_value=value)
    return text(message.SerializeToString())


TEXT_PLUGIN = text(SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")).SerializeToString())
NORMAL = RANDOM.normal(size=(50, 20)).astype(np.float32)
BYTES = RANDOM.integers(0, 256, (2, 3, 5, 3)).astype(np.uint8)


def grey(*pixels: float) -> np.ndarray:
    return np.array(pixels, np.float32).reshape(1, 2, 2, 1)


CASES = [
    OpCase("ScalarSummary", (text(b"loss"), np.float32(1.5)), verify=has_scalars(("loss", 1.5))),
    OpCase(
        "ScalarSummary", (text(b"a", b"b"), np.array([1, 2])), verify=has_scalars(("a", 1), ("b", 2)), label="several"
    ),
    OpCase("ScalarSummary", (text(b"a"), np.ones(2, np.float32)), error=InvalidArgumentError, label="shapes differ"),
    # the limits and counts are what TensorFlow writes for these values
    OpCase(
        "HistogramSummary",
        (text(b"h"), np.array([1.0, 2, 3])),
        label="few values",
        verify=has_histogram(
            np.array([1, 2, 3]),
            [
                0.917246389039776,
                1.0089710279437536,
                1.9661990955585713,
                2.1628190051144287,
                2.8787120958073054,
                3.1665833053880363,
                LARGEST,
            ],
            [0, 1, 0, 1, 0, 1, 0],
        ),
    ),
    OpCase(
        "HistogramSummary",
        (text(b"h"), np.array([-5, 0, 1e-13, 1e10, 3.3])),
        label="wide range",
        verify=has_histogram(
            np.array([-5, 0, 1e-13, 1e10, 3.3]),
            [
                -5.0998140791604882,
                -4.6361946174186253,
                0,
                1e-12,
                3.1665833053880363,
                3.48324163592684,
                9539284887.0472,
                10493213375.751921,
                LARGEST,
            ],
            [0, 1, 0, 2, 0, 1, 0, 1, 0],
        ),
    ),
    OpCase(
        "HistogramSummary",
        (text(b"h"), np.array([1e30, 1])),
        label="out of the limits",
        verify=has_histogram(
            np.array([1e30, 1]), [0.917246389039776, 1.0089710279437536, 9.9207756218597835e19, LARGEST], [0, 1, 0, 1]
        ),
    ),
    OpCase(
        "HistogramSummary",
        (text(b"h"), np.zeros(0, np.float32)),
        verify=has_histogram(np.zeros(0), [LARGEST], [0]),
        label="no values",
    ),
    OpCase("HistogramSummary", (text(b"h"), NORMAL), verify=has_histogram(NORMAL), label="many values"),
    OpCase(
        "HistogramSummary", (text(b"h"), np.arange(-3, 9)), verify=has_histogram(np.arange(-3, 9)), label="integers"
    ),
    OpCase("HistogramSummary", (text(b"h"), np.array([1, np.nan])), error=InvalidArgumentError, label="NaN"),
    OpCase("HistogramSummary", (text(b"h"), np.array([1, np.inf])), error=InvalidArgumentError, label="infinity"),
    OpCase("ImageSummary", (text(b"i"), BYTES), verify=has_images(["i/image/0", "i/image/1"], BYTES), label="uint8"),
    OpCase(
        "ImageSummary", (text(b"i"), BYTES), {"max_images": 1}, verify=has_images(["i/image"], BYTES[:1]), label="one"
    ),
    # these pixels, too, are TensorFlow's
    OpCase(
        "ImageSummary",
        (text(b"i"), grey(0.2, 0.4, 0, 0.1)),
        {"max_images": 1},
        label="float",
        verify=has_images(["i/image"], np.array([[[[127], [255]], [[0], [63]]]])),
    ),
    OpCase(
        "ImageSummary",
        (text(b"i"), grey(2, -4, 0, 0.1)),
        {"max_images": 1},
        label="negative",
        verify=has_images(["i/image"], np.array([[[[191], [1]], [[128], [131]]]])),
    ),
    OpCase(
        "ImageSummary",
        (text(b"i"), grey(np.inf, 4, 0, 0.1)),
        {"max_images": 1},
        label="not finite",
        verify=has_images(["i/image"], np.array([[[[255], [255]], [[0], [6]]]])),
    ),
    OpCase(
        "ImageSummary",
        (text(b"i"), np.array([[[[np.nan, 0.3, 0.4], [0.1, 0.2, 0.3]]]], np.float32)),
        {"max_images": 1},
        verify=has_images(["i/image"], np.array([[[[255, 0, 0], [84, 169, 254]]]])),
        label="bad colour",
    ),
    OpCase(
        "ImageSummary",
        (text(b"i"), grey(0, 0, 0, 0)),
        verify=has_images(["i/image/0"], grey(0, 0, 0, 0)),
        label="black",
    ),
    OpCase("ImageSummary", (text(b"i"), np.zeros((1, 2, 2, 2))), error=InvalidArgumentError, label="two channels"),
    OpCase("ImageSummary", (text(b"i"), np.zeros((2, 2, 3))), error=InvalidArgumentError, label="no batch"),
    OpCase(
        "AudioSummaryV2",
        (text(b"a"), np.array([[0.5, -1, 2, -2]], np.float32), np.float32(8000)),
        {"max_outputs": 1},
        verify=has_audio(["a/audio"], [[[16384], [-32768], [32767], [-32768]]]),
    ),
    OpCase(
        "AudioSummary",
        (text(b"a"), np.zeros((4, 6, 2), np.float32)),
        {"sample_rate": 8000.0},
        verify=has_audio(["a/audio/0", "a/audio/1", "a/audio/2"], np.zeros((3, 6, 2)).tolist()),
    ),
    OpCase(
        "AudioSummaryV2",
        (text(b"a"), np.zeros((1, 4), np.float32), np.float32(0)),
        error=InvalidArgumentError,
        label="rate",
    ),
    OpCase("TensorSummaryV2", (text(b"t"), NORMAL, text(b"")), verify=has_tensor("t", NORMAL)),
    OpCase(
        "TensorSummaryV2",
        (text(b"t"), text(b"x", b"y"), TEXT_PLUGIN),
        label="text",
        verify=has_tensor("t", np.array([b"x", b"y"], np.object_), "text"),
    ),
    OpCase("TensorSummaryV2", (text(b"t"), NORMAL, text(b"\xff")), error=InvalidArgumentError, label="bad metadata"),
    OpCase("TensorSummary", (NORMAL,), verify=has_tensor("", NORMAL)),
    OpCase(
        "MergeSummary",
        ([scalar_bytes("a", 1), scalar_bytes("b", 2), text(b"")],),
        verify=has_scalars(("a", 1), ("b", 2)),
    ),
    OpCase("MergeSummary", ([scalar_bytes("a", 1)] * 2,), error=InvalidArgumentError, label="duplicate"),
    OpCase("MergeSummary", ([text(b"garbage!")],), error=InvalidArgumentError, label="no summary"),
]
