"""Names that NumPy has removed since TensorFlow 1 programs were written; `old_names` lets it answer for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

_KINDS: Final[dict[str, object]] = (
    {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str}
    | {"long": int, "unicode": str, "float_": np.float64, "complex_": np.complex128, "unicode_": np.str_}
    | {"bool8": np.bool_, "int0": np.intp, "uint0": np.uintp, "void0": np.void, "object0": np.object_}
    | {"str0": np.str_, "bytes0": np.bytes_, "string_": np.bytes_, "singlecomplex": np.complex64}
    | {"cfloat": np.complex128, "longfloat": np.longdouble, "longcomplex": np.clongdouble}
    | {"clongfloat": np.clongdouble, "typeDict": np.sctypeDict}
)
_NUMBERS: Final = dict.fromkeys(("Inf", "Infinity", "infty", "PINF"), np.inf) | {
    "NINF": -np.inf,
    "NaN": np.nan,
    "NAN": np.nan,
    "PZERO": 0.0,
    "NZERO": -0.0,
}
#: as `numpy.sctypes` listed them
_KINDS_OF_SCALARS: Final[dict[str, list[type]]] = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
}


class _Casts(dict[Any, Callable[[ArrayLike], np.ndarray[Any, Any]]]):
    """`numpy.cast`: ``cast[dtype](x)`` is an array of that dtype."""

    def __missing__(self, dtype: DTypeLike) -> Callable[[ArrayLike], np.ndarray[Any, Any]]:
        return lambda x: np.asarray(x).astype(dtype, copy=False)


def _asfarray(a: ArrayLike, dtype: DTypeLike = np.float64) -> np.ndarray[Any, Any]:
    """An array of floating-point numbers, of float64 where another kind is asked for."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def _msort(a: ArrayLike) -> np.ndarray[Any, Any]:
    """The array, sorted along its first axis."""
    return np.sort(np.asarray(a), axis=0)


def _find_common_type(array_types: Sequence[DTypeLike], scalar_types: Sequence[DTypeLike]) -> np.dtype[Any] | None:
    """The type of what arrays and scalars together give: scalars count where they are of a higher kind."""
    arrays, scalars = (np.result_type(*types) if types else None for types in (array_types, scalar_types))
    if arrays is None or scalars is None:
        return scalars if arrays is None else arrays
    kinds = "buifc"
    return scalars if kinds.find(scalars.kind) > kinds.find(arrays.kind) else arrays


def _issubclass(arg1: object, arg2: type) -> bool:
    """Whether the first is a class, and derived from the second."""
    return isinstance(arg1, type) and issubclass(arg1, arg2)


def names() -> dict[str, object]:
    """What stands for each of the names."""
    functions: dict[str, object] = (
        {"product": np.prod, "cumproduct": np.cumprod, "sometrue": np.any, "alltrue": np.all}
        | {"row_stack": np.vstack, "asscalar": lambda array: np.asarray(array).item(), "rank": np.ndim}
        | {"math": math}
        | {"asfarray": _asfarray, "mat": np.asmatrix, "round_": np.round, "msort": _msort, "cast": _Casts()}
        | {"find_common_type": _find_common_type, "issubclass_": _issubclass, "sctypes": _KINDS_OF_SCALARS}
        | {"obj2sctype": lambda rep, default=None: np.dtype(rep).type if rep is not None else default}
    )
    return {**_KINDS, **_NUMBERS, **functions}
