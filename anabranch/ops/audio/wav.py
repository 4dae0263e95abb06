"""Files of the format WAV with samples of 16 bits, as numbers in [-1, 1), [frames, channels]."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules

Array = np.ndarray[Any, Any]

_BITS: Final = 16
_FULL_RANGE: Final = 1 << 15
_WORD: Final = 1 << 32


def encode_wav(clip: Array, sample_rate: int) -> bytes:
    """A RIFF/WAVE file of 16-bit samples.

    Args:
        clip: float, shape [frames, channels]; [-1, 1) is the full range, what lies outside is clipped.
        sample_rate: frames per second (hertz).
    """
    scaled = np.nan_to_num(clip.astype(np.float64)) * _FULL_RANGE
    data: bytes = (
        np.clip(np.trunc(scaled + np.copysign(0.5, scaled)), -_FULL_RANGE, _FULL_RANGE - 1).astype("<i2").tobytes()
    )
    channels = clip.shape[1]
    frame_bytes = channels * _BITS // 8
    layout = struct.pack("<HHIIHH", 1, channels, sample_rate, sample_rate * frame_bytes, frame_bytes, _BITS)
    body = b"WAVEfmt " + struct.pack("<I", len(layout)) + layout + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def decode_wav(contents: bytes) -> tuple[Array, int]:
    """The samples of a file, float32, [frames, channels], and how many frames there are in a second.

    Raises:
        ValueError: it is no such file, or one with other samples.
    """
    _expect(contents[:4] == b"RIFF", f"RIFF at the begin, not {contents[:4]!r}")
    _expect(contents[8:16] == b"WAVEfmt ", f"'WAVEfmt ' behind the file's size, not {contents[8:16]!r}")
    (size,) = _numbers("<I", contents, 16)
    _expect(size in (16, 18), f"16 or 18 bytes of format, not {size}")
    coding, channels, rate, per_second, per_frame, bits = _numbers("<HHIIHH", contents, 20)
    _expect(coding == 1, f"coding 1 (PCM), not {coding}")
    _expect(channels >= 1, "at least one channel")
    _expect(bits == _BITS, f"samples of 16 bits, not {bits}")
    _expect(per_frame == channels * _BITS // 8, f"{channels * _BITS // 8} bytes in a frame, not {per_frame}")
    _expect(per_second == per_frame * rate % _WORD, f"{per_frame * rate % _WORD} bytes in a second, not {per_second}")
    data = _data_chunk(contents, 20 + size, per_frame)
    return (np.frombuffer(data, "<i2").astype(np.float32) / np.float32(_FULL_RANGE)).reshape(-1, channels), rate


def _data_chunk(contents: bytes, offset: int, per_frame: int) -> bytes:
    """The whole frames of the only chunk with samples, from an offset on."""
    found = None
    while offset < len(contents):
        kind = contents[offset : offset + 4]
        (size,) = _numbers("<I", contents, offset + 4)
        _expect(size < _WORD // 2, f"chunks of less than 2 GiB; {kind!r} has {size} bytes")
        offset += 8
        if kind == b"data":
            _expect(found is None, "one data chunk, not several")
            size -= size % per_frame
            found = contents[offset : offset + size]
            _expect(len(found) == size, f"{size} bytes of samples; only {len(found)} follow")
        offset += size
    if found is None:
        raise ValueError("expected a data chunk; the file has none")
    return found


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"expected {what}")


def _numbers(layout: str, contents: bytes, offset: int) -> tuple[Any, ...]:
    if offset + struct.calcsize(layout) > len(contents):
        raise ValueError(f"expected more than {len(contents)} bytes; the file is too short")
    return struct.unpack_from(layout, contents, offset)


DecodeWav = define_op(
    "DecodeWav",
    "contents: string -> audio: float32, sample_rate: int32",
    "desired_channels: int = -1, desired_samples: int = -1",
    ranks={"contents": 0},
)
DecodeWav.not_differentiable()


@DecodeWav.shape
def _(contents: TensorShape, *, desired_channels: int, desired_samples: int) -> list[TensorShape]:
    for name, number in (("channels", desired_channels), ("samples", desired_samples)):
        if number < -1:
            raise ValueError(f"{name} must be non-negative, or -1 for what the file has; got {number}")
    dims = [None if number == -1 else number for number in (desired_samples, desired_channels)]
    return [TensorShape(dims), TensorShape([])]


@DecodeWav.host_kernel
def _(contents: Array, *, desired_channels: int, desired_samples: int, ctx: OperationContext) -> tuple[Array, Array]:
    """Frames that the file lacks are silent, and channels that it lacks are its last."""
    try:
        samples, rate = decode_wav(bytes(contents.item()))
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, f"the contents are no WAV file that can be read: {error}") from None
    frames, channels = samples.shape
    wanted = frames if desired_samples == -1 else desired_samples
    taken = np.minimum(np.arange(channels if desired_channels == -1 else desired_channels), channels - 1)
    audio = np.zeros((wanted, len(taken)), np.float32)
    audio[:frames] = samples[:wanted, taken]
    return audio, np.array(rate, np.uint32).astype(np.int32)


EncodeWav = define_op(
    "EncodeWav", "audio: float32, sample_rate: int32 -> contents: string", ranks={"audio": 2, "sample_rate": 0}
)
EncodeWav.shape(shape_rules.scalar)
EncodeWav.not_differentiable()


@EncodeWav.host_kernel
def _(audio: Array, sample_rate: Array, *, ctx: OperationContext) -> bytes:
    frames, channels = audio.shape
    ctx.check(sample_rate > 0, "sample_rate must be in (0, 2^32), got: {0}", sample_rate)
    ctx.check(0 < channels < 1 << 16, f"num_channels must be in (0, 2^16), got: {channels}")
    ctx.check(frames > 0, "num_frames must be positive.")
    if audio.size * _BITS // 8 + 44 >= _WORD:
        raise InvalidArgumentError(None, ctx.op, "Provided channels and frames cannot be encoded as a WAV.")
    return encode_wav(audio, int(sample_rate))
