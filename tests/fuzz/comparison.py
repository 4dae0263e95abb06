"""When two values are the same: dtype, shape, and elements up to what rounding of the inputs explains."""

from __future__ import annotations

import numpy as np

from tests.fuzz.wire import Array

#: relative to the largest finite element of the tensor
TOLERANCE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 5e-5,
    "complex64": 5e-5,
    "float16": 1e-2,
    "bfloat16": 6e-2,
}
#: half a unit in the last place
ROUNDING = {
    "float64": 2.0**-53,
    "complex128": 2.0**-53,
    "float32": 2.0**-24,
    "complex64": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
#: how many times the change under rounded inputs two correct answers may lie apart
_SPREADS = 16.0


def difference(
    got: Array,
    wanted: Array,
    spread: list[Array] | None = None,
    ignored: Array | None = None,
    floor: float = 0.0,
    tolerance: float | None = None,
) -> str | None:
    """What tells two values apart, in words; None where nothing does.

    Args:
        spread: values that the side of `wanted` gave for inputs changed by their rounding error. Elements that differ
            no more than these do are the same.
        ignored: elements that are not compared; broadcasts against the values.
        floor: differences of elements up to this are none.
        tolerance: relative to the largest finite element; that of the dtype unless given.
    """
    if got.dtype != wanted.dtype:
        return f"dtype {got.dtype}, expected {wanted.dtype}"
    if got.shape != wanted.shape:
        return f"shape {got.shape}, expected {wanted.shape}"
    wrong = _differing(got, wanted, TOLERANCE.get(got.dtype.name) if tolerance is None else tolerance)
    if ignored is not None:
        wrong &= ~ignored
    if floor:
        with np.errstate(all="ignore"):
            wrong &= ~(np.abs(_wide(got) - _wide(wanted)) <= floor)
    if not wrong.any():
        return None
    for other in spread or ():
        if other.shape != wanted.shape:
            return None  # rounding decides even the shape
        wrong &= ~_explained(got, wanted, other)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements; at {list(at)} {got[at]!r}, expected {wanted[at]!r}"


def _differing(got: Array, wanted: Array, tolerance: float | None) -> Array:
    """The elements that differ by more than the tolerance, or at all where there is none."""
    if tolerance is None:
        return np.asarray(got != wanted)
    a, b = _wide(got), _wide(wanted)
    with np.errstate(all="ignore"):
        size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        near = np.abs(a - b) <= tolerance * size + np.finfo(np.float32).tiny
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        both_wild = np.iscomplexobj(a) & ~np.isfinite(a) & ~np.isfinite(b)
    return np.asarray(~(near | same | both_wild))


def _explained(got: Array, wanted: Array, other: Array) -> Array:
    """The elements that a change of the inputs by their rounding moves about as far as the difference is."""
    if got.dtype.name not in TOLERANCE:
        return np.asarray(wanted != other)
    a, b, c = _wide(got), _wide(wanted), _wide(other)
    with np.errstate(all="ignore"):
        moved = np.abs(b - c)
        wild = np.isfinite(b) != np.isfinite(c)
        return np.asarray(wild | (np.abs(a - b) <= _SPREADS * moved))


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def rounded(array: Array, random: np.random.Generator, unit: float = 0.0) -> Array:
    """The array with every element changed by about its rounding error, up or down.

    Args:
        unit: that of what the array was cast from, where this is larger than its dtype's.
    """
    if array.dtype.name not in ROUNDING:
        return array
    unit = max(unit, ROUNDING[array.dtype.name])
    signs = random.integers(0, 2, size=array.shape) * 2 - 1
    with np.errstate(all="ignore"):
        return np.asarray(_wide(array) * (1 + 2.1 * unit * signs)).astype(array.dtype)


def projections(vectors: Array, values: Array) -> Array:
    """What eigenvectors, or singular vectors, [..., n, k] say that does not depend on how a library chooses them.

    A vector times a number of modulus one is another one, and those of equal values can be mixed. Where there are
    fewer vectors than dimensions, those of the singular value zero can be any.

    Args:
        values: [..., up to k], in order; more vectors than values belong to the singular value zero.

    Returns:
        [..., k, n, n]: for each value the projection onto the space of the vectors that belong to it.
    """
    missing = vectors.shape[-1] - values.shape[-1]
    values = (
        np.concatenate([np.abs(values), np.zeros((*values.shape[:-1], missing), values.dtype)], -1)
        if missing
        else values
    )
    limit = np.sqrt(np.finfo(values.dtype).eps) * np.max(np.abs(values), axis=-1, keepdims=True, initial=0)
    groups = np.cumsum(np.abs(np.diff(values, axis=-1, prepend=values[..., :1])) > limit, axis=-1)
    together = (groups[..., :, None] == groups[..., None, :]).astype(vectors.dtype)
    if vectors.shape[-1] < vectors.shape[-2]:
        together = together * (np.abs(values) > limit)[..., None, :]
    return np.asarray(np.einsum("...ik,...jk,...ck->...cij", vectors, vectors.conj(), together))


def is_something(gradient: Array) -> bool:
    """Whether a gradient is more than zeros, and products of zero with NaN or infinity on its way."""
    return bool(np.any((gradient != 0) & ~np.isnan(gradient)))
