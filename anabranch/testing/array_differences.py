"""What assertions on arrays say of elements that differ, in the words of TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray


def unequal_elements(x: HostArray, y: HostArray, same: HostArray, message: object) -> str:
    """Where two arrays of one shape are not equal, and what they have there."""
    return "\n".join([f"Arrays are not equal. {message or ''}", *_sides("not equal", x, y, ~same)])


def distant_elements(x: HostArray, y: HostArray, rtol: float, atol: float, message: object) -> str:
    """Where two numeric arrays of one shape are not close, and by how much."""
    if x.dtype.kind not in "iufc" or y.dtype.kind not in "iufc":
        return str(message)
    lines = _sides("not close", x, y, ~np.isclose(x, y, rtol, atol, equal_nan=True))
    apart = ~np.isclose(x, y, rtol, atol, equal_nan=True)
    lines.append(f"not close dif = {np.abs(np.asarray(x - y)[apart] if np.ndim(x) else x - y)}")
    lines.append(f"not close tol = {atol + rtol * np.abs(np.asarray(y)[apart] if np.ndim(y) else y)}")
    return "\n".join([str(message), *lines, f"dtype = {x.dtype}, shape = {x.shape}"])


def _sides(what: str, x: HostArray, y: HostArray, apart: HostArray) -> list[str]:
    values: Any = (x[apart], y[apart]) if np.ndim(x) else (x, y)
    where = [f"{what} where = {np.where(apart)}"] if np.ndim(x) else []
    return [*where, f"{what} lhs = {values[0]}", f"{what} rhs = {values[1]}"]
