"""The settings of `tensorflow.python.keras.backend`: the default dtype, the fuzz factor, the layout of images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_settings: dict[str, Any] = {"floatx": "float32", "epsilon": 1e-7, "image_data_format": "channels_last"}


def floatx() -> str:
    """The default dtype of floats, by name."""
    return str(_settings["floatx"])


def set_floatx(value: str) -> None:
    """Sets the default dtype of floats.

    Raises:
        ValueError: `value` is neither "float16", "float32" nor "float64".
    """
    if value not in ("float16", "float32", "float64"):
        raise ValueError(f"Unknown floatx type: {value}; it is float16, float32 or float64")
    _settings["floatx"] = value


def cast_to_floatx(x: ArrayLike) -> NDArray[Any]:
    """An array of the default dtype of floats."""
    return np.asarray(x, dtype=floatx())


def epsilon() -> float:
    """The small number that keeps logarithms and quotients finite."""
    return float(_settings["epsilon"])


def set_epsilon(value: float) -> None:
    """Sets that number."""
    _settings["epsilon"] = value


def image_data_format() -> str:
    """Where the channels of images are: "channels_last" or "channels_first"."""
    return str(_settings["image_data_format"])


def set_image_data_format(data_format: str) -> None:
    """Sets where the channels of images are.

    Raises:
        ValueError: `data_format` is neither "channels_last" nor "channels_first".
    """
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"Unknown data_format: {data_format}; it is channels_last or channels_first")
    _settings["image_data_format"] = data_format
