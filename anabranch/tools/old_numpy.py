"""Names that NumPy has removed since TensorFlow 1 programs were written; `old_names` lets it answer for them."""

from __future__ import annotations

import ast
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

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


def _maximum_sctype(t: DTypeLike) -> type:
    """The largest kind of scalars of the same sort."""
    kind = np.dtype(t).type
    sort = {"i": "int", "u": "uint", "f": "float", "c": "complex"}.get(np.dtype(t).kind)
    return kind if sort is None else _KINDS_OF_SCALARS[sort][-1]


def _is_kind(rep: object) -> bool:
    """Whether something stands for a kind of scalars."""
    try:
        return isinstance(rep, type) and issubclass(np.dtype(rep).type, np.generic)
    except TypeError:
        return False


def _in1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, invert: bool = False) -> np.ndarray[Any, Any]:
    """Whether each number of the first, as a vector, is in the second."""
    return np.isin(np.ravel(ar1), ar2, assume_unique, invert)


def _disp(mesg: str, device: IO[str] | None = None, linefeed: bool = True) -> None:
    """Writes a text to a file, or to the standard output."""
    out = sys.stdout if device is None else device
    out.write(f"{mesg}\n" if linefeed else f"{mesg}")
    out.flush()


def restore(tell: Callable[[str], None]) -> list[Callable[[], object]]:
    """Restores arguments that functions took; returns what undoes it.

    Args:
        tell: is called with the name of what a program uses.
    """
    undo: list[Callable[[], object]] = []

    def put(name: str, function: Callable[..., Any]) -> None:
        undo.append(functools.partial(setattr, np, name, getattr(np, name)))
        setattr(np, name, function)

    for name in ("stack", "vstack", "hstack", "dstack", "column_stack"):
        put(name, _of_iterators(getattr(np, name), tell))
    put("histogram", _with_normed(np.histogram, tell))
    put("fromstring", _of_bytes(np.fromstring, tell))
    return undo


def _of_iterators(function: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    """Takes arrays one after the other, as until NumPy 1.24."""

    @functools.wraps(function)
    def stacked(arrays: object, *values: object, **options: object) -> Any:
        if isinstance(arrays, Iterator):
            tell(f"numpy.{function.__name__} of an iterator")
            arrays = list(arrays)
        return function(arrays, *values, **options)

    return stacked


def _of_bytes(function: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    """Reads the bytes of numbers too, and not their text alone, as until NumPy 2.3."""

    @functools.wraps(function)
    def read(
        string: str | bytes, dtype: DTypeLike = float, count: int = -1, *, sep: str = "", **options: object
    ) -> Any:
        if sep:
            return function(string, dtype, count, sep=sep, **options)
        tell("numpy.fromstring of bytes")
        data = string.encode("latin1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy()

    return read


def _with_normed(function: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    """Takes `normed` for `density`, as until NumPy 1.24."""

    @functools.wraps(function)
    def histogram(*values: object, normed: bool | None = None, **options: object) -> Any:
        if normed is not None:
            tell("numpy.histogram with normed")
            options.setdefault("density", normed)
        return function(*values, **options)

    return histogram


def names() -> dict[str, object]:
    """What stands for each of the names."""
    functions: dict[str, object] = (
        {"product": np.prod, "cumproduct": np.cumprod, "sometrue": np.any, "alltrue": np.all}
        | {"row_stack": np.vstack, "asscalar": lambda array: np.asarray(array).item(), "rank": np.ndim}
        | {"math": math}
        | {"asfarray": _asfarray, "mat": np.asmatrix, "round_": np.round, "msort": _msort, "cast": _Casts()}
        | {"find_common_type": _find_common_type, "issubclass_": _issubclass, "sctypes": _KINDS_OF_SCALARS}
        | {"issubsctype": lambda arg1, arg2: np.issubdtype(np.dtype(arg1), np.dtype(arg2)), "issctype": _is_kind}
        | {"sctype2char": lambda sctype: np.dtype(sctype).char, "maximum_sctype": _maximum_sctype}
        | {"in1d": _in1d, "trapz": np.trapezoid if hasattr(np, "trapezoid") else getattr(np, "trapz", None)}
        | {"safe_eval": ast.literal_eval, "disp": _disp}
        | {"obj2sctype": lambda rep, default=None: np.dtype(rep).type if rep is not None else default}
    )
    return {**_KINDS, **_NUMBERS, **functions}
