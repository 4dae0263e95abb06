"""`tf.compat`: conversions between bytes and text, and the tuples of number types for `isinstance`."""

from __future__ import annotations

import numbers
from typing import Final, TypeVar

import numpy as np

integral_types: Final = (numbers.Integral, np.integer)
real_types: Final = (numbers.Real, np.integer, np.floating)
complex_types: Final = (numbers.Complex, np.number)
bytes_or_text_types: Final = (bytes, str)


def as_bytes(bytes_or_text: object, encoding: str = "utf-8") -> bytes:
    """Text encoded, bytes as they are.

    Raises:
      TypeError: the value is neither.
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes(bytes_or_text)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


def as_text(bytes_or_text: object, encoding: str = "utf-8") -> str:
    """Bytes decoded, text as it is.

    Raises:
      TypeError: the value is neither.
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes_or_text.decode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


as_str = as_text


def as_str_any(value: object) -> str:
    """Bytes decoded as UTF-8, anything else as `str` gives it."""
    return as_text(value) if isinstance(value, (bytes, bytearray)) else str(value)


_Path = TypeVar("_Path")


def path_to_str(path: _Path) -> _Path | str:
    """A path object (one with `__fspath__`) as a string; anything else as it is."""
    return as_str_any(path.__fspath__()) if hasattr(path, "__fspath__") else path
