"""`tf.audio`: sound in files of the format WAV."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Sound(NamedTuple):
    """What `decode_wav` gives."""

    audio: Tensor
    sample_rate: Tensor


def decode_wav(
    contents: TensorLike, desired_channels: int = -1, desired_samples: int = -1, name: str | None = None
) -> Sound:
    """The samples of a WAV file of 16 bits.

    Args:
        contents: the file, a string scalar.
        desired_channels: how many channels to give; those that the file lacks are its last. -1: as many as it has.
        desired_samples: how many frames; those that the file lacks are silent. -1: as many as it has.
        name: of the operation.

    Returns:
        A tuple `(audio, sample_rate)`: float32 in [-1, 1), [frames, channels]; and int32, a scalar, frames per second.

    Raises (in the step):
        InvalidArgumentError: the contents are no such file.
    """
    decoded = raw.DecodeWav(contents, desired_channels=desired_channels, desired_samples=desired_samples, name=name)
    return Sound(*decoded)


def encode_wav(audio: TensorLike, sample_rate: TensorLike, name: str | None = None) -> Tensor:
    """A WAV file of 16 bits, a string scalar.

    Args:
        audio: float32, [frames, channels], both at least 1; what lies outside of [-1, 1) is cut off.
        sample_rate: int32, a scalar: frames per second.
        name: of the operation.

    Raises (in the step):
        InvalidArgumentError: there is nothing to write, or no rate.
    """
    contents: Tensor = raw.EncodeWav(audio, sample_rate, name=name)
    return contents
