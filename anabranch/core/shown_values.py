"""Values as strings, in the messages of failed checks and in what is printed: as TensorFlow writes them.

One element is a number with the digits that its dtype always keeps where these say all, else with as many as always do;
a truth value is 0 or 1; bytes are read as UTF-8. Compiled programs and kernels that run directly show the same values
through this one way, so that the message of an error does not say which of the two ran.
"""

from __future__ import annotations

import string
from typing import Any, Final

import ml_dtypes
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.values import TensorValue

_MOST: Final = 8  #: elements of an array in a message that does not say how many it wants


class ShownValue:
    """A value in a message: what stands for it in a format string says how much of it is shown.

    ``{0}`` shows a scalar bare and of an array at most eight elements, in brackets; ``{0:*}`` all elements, in
    brackets; ``{0:+}`` all of them, and that there are more than the message was given.

    Args:
        value: array of any shape and dtype, or a scalar.
    """

    __slots__ = ("_array",)

    def __init__(self, value: TensorValue) -> None:
        self._array: Array = np.asarray(value)

    def __format__(self, how: str) -> str:
        match how:
            case "":
                return element(self._array[()]) if self._array.ndim == 0 else summary(self._array, _MOST)
            case "*":
                return summary(self._array, -1)
            case "+":
                return f"{summary(self._array, -1)[:-1]}...]"
        raise ValueError(f"a value in a message is shown as {{0}}, {{0:*}} or {{0:+}}, not as {{0:{how}}}")


def without_values(message: str) -> str:
    """The format string of a check whose values are not at hand: left out at its end, an underscore elsewhere."""
    parts = [(literal, field is not None) for literal, field, _, _ in string.Formatter().parse(message)]
    while parts and parts[-1][1]:
        literal = parts.pop()[0].rstrip(" :,=")
        parts += [(literal, False)] if literal or not parts else []
    return "".join(escaped(literal) + "_" * shown for literal, shown in parts)


def escaped(text: str) -> str:
    """`text` as a part of a format string."""
    return text.replace("{", "{{").replace("}", "}}")


def summary(array: Array, count: int) -> str:
    """The first `count` elements of an array in row-major order (all for a negative number), in brackets."""
    flat = np.reshape(array, -1)
    shown = flat if count < 0 else flat[:count]
    return "[" + " ".join(map(element, shown)) + ("...]" if len(shown) < len(flat) else "]")


def element(value: object) -> str:
    """One element of an array as a string."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    return _decimal(value) if isinstance(value, float | np.floating | ml_dtypes.bfloat16) else str(value)


def _decimal(value: float | np.floating[Any] | ml_dtypes.bfloat16) -> str:
    """With the digits that a floating dtype always keeps where these say all, else with those that always do."""
    if isinstance(value, float):  # np.float64 too
        few, many = f"{value:.15g}", f"{value:.17g}"
        return few if float(few) == value or np.isnan(value) else many
    few, many = f"{float(value):.6g}", f"{float(value):.9g}"
    return few if np.float32(few) == np.float32(value) or np.isnan(value) else many
