"""What convolutions and pooling of one to three spatial dimensions take: layouts, strides, paddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.frontend.arguments import Padding, PerAxis

#: data formats by number of spatial dimensions: channels last, channels second
FORMATS: Final = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def channels_last(data_format: str | None, spatial: int) -> bool:
    """Whether the channels stand last.

    Raises:
        ValueError: not a format for that many spatial dimensions.
    """
    last, second = FORMATS[spatial]
    if data_format not in (None, last, second):
        raise ValueError(f"data_format must be {last!r} or {second!r}, got {data_format!r}")
    return data_format != second


def per_axis(value: PerAxis | None, spatial: int, last: bool, name: str) -> list[int]:
    """One number per axis of the data, from one for all spatial axes, one for each, or one for every axis.

    Raises:
        ValueError: another count of numbers.
    """
    if value is None:
        value = [1]
    given: list[Any] = list(value) if isinstance(value, Sequence | np.ndarray) else [value]
    numbers = [int(v) for v in given]
    if len(numbers) == spatial + 2:
        return numbers
    if len(numbers) == 1:
        numbers *= spatial
    if len(numbers) != spatial:
        raise ValueError(f"{name} should be of length 1, {spatial} or {spatial + 2} but was {len(numbers)}")
    return [1, *numbers, 1] if last else [1, 1, *numbers]


def padding_attrs(padding: Padding | None) -> dict[str, Any]:
    """The attributes `padding` and `explicit_paddings`, from a name or from a list of pairs."""
    if isinstance(padding, str | bytes):
        name = padding.decode() if isinstance(padding, bytes) else padding
        if name == "EXPLICIT":
            raise ValueError('"EXPLICIT" is not a valid value for the padding parameter; give a list of pairs instead')
        return {"padding": name}
    pairs = [[int(p) for p in pair] if isinstance(pair, Sequence) else [] for pair in padding or ()]
    if len(pairs) != 4 or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"explicit padding must be a list of 4 pairs, one for each axis of the data, got {padding!r}")
    return {"padding": "EXPLICIT", "explicit_paddings": [p for pair in pairs for p in pair]}


def conv_attrs(
    strides: PerAxis | None, dilations: PerAxis | None, data_format: str | None, spatial: int
) -> dict[str, Any]:
    """The attributes `strides`, `dilations` and `data_format` of an operation on so many spatial dimensions."""
    last = channels_last(data_format, spatial)
    return {
        "strides": per_axis(strides, spatial, last, "strides"),
        "dilations": per_axis(dilations, spatial, last, "dilations"),
        "data_format": FORMATS[spatial][0 if last else 1],
    }
