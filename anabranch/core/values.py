"""Python values as arrays, with TensorFlow's rules for the dtype of what carries none."""

from __future__ import annotations

import numbers
from typing import Any, TypeAlias

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.shapes import TensorShape

#: What a tensor holds in a step: an array; a NumPy scalar, or `bytes`, where its rank is 0. Its dtype and rank are not
#: part of its Python type.
TensorValue: TypeAlias = Any
#: What can be converted to a tensor: tensors, variables, arrays, numbers, strings, nested lists of them, and what
#: programs register conversions of.
TensorLike: TypeAlias = Any
#: A tensor, or a ragged tensor: the arguments decide which, so that type checkers cannot know it.
TensorOrRagged: TypeAlias = Any
#: What is handed on as it is: who takes it in the end, a function of the program's own say, knows what it may be.
PassedOn: TypeAlias = Any

_LARGEST_INT32 = 2**31 - 1


def to_array(value: TensorLike, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """The array that a Python value, a nested list of them, or an array-like stands for.

    Python floats become float32, integers int32 where they fit and int64 otherwise, complex numbers complex128,
    text bytes (UTF-8). Arrays keep their dtype. With `dtype`, arrays are cast and Python values are checked first.

    Raises:
        TypeError: a Python value does not fit `dtype` (a float for an integer dtype, ...), or has no dtype at all.
        ValueError: None, or a ragged list.
    """
    if value is None:
        raise ValueError("None values not supported.")
    if isinstance(value, np.ndarray | np.generic):
        return _from_numpy(np.asarray(value), dtype)
    if isinstance(value, TensorShape):
        value = _shape_values(value)
        largest = max(value, default=0)
        if dtype is dtypes.int32 and largest > _LARGEST_INT32:
            raise ValueError(f"cannot convert a TensorShape to dtype int32; a dimension is too large ({largest})")
        dtype = dtype or (dtypes.int64 if largest > _LARGEST_INT32 else dtypes.int32)
        if not dtype.is_integer:
            raise TypeError(f"a TensorShape becomes a tensor of integers, not of {dtype.name}; use tf.cast")
    elif isinstance(value, Dimension):
        if value.value is None:
            raise ValueError("cannot convert an unknown Dimension to a tensor; use tf.shape for what a step knows")
        value = int(value)
    elif isinstance(value, range):
        value = list(value)
    elif (hasattr(value, "__array__") or hasattr(value, "__array_interface__")) and not isinstance(value, list | tuple):
        return _from_numpy(np.asarray(value), dtype)
    if dtype is not None:
        return _typed(value, dtype)
    return _untyped(value)


def _shape_values(shape: TensorShape) -> list[int]:
    if not shape.is_fully_defined():
        raise ValueError(f"cannot convert the partially known shape {shape} to a tensor; use tf.shape(x) instead")
    return list(shape.sizes())


def _from_numpy(array: np.ndarray[Any, Any], dtype: DType | None) -> np.ndarray[Any, Any]:
    if array.dtype.kind in "OSU":
        if dtype is not None and dtype is not dtypes.string:
            if array.dtype.kind == "O":
                return _typed(array.tolist(), dtype)
            raise TypeError(f"Expected {dtype.name}, got an array of strings instead.")
        return _bytes_array(array)
    if dtype is None:
        return array
    if dtype is dtypes.string:
        raise TypeError(f"Expected string, got an array of {array.dtype} instead.")
    return array.astype(dtype.as_numpy_dtype)


def _bytes_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    items = array.reshape(-1).tolist()
    kinds = set(map(type, items))
    # nearly always all are of one type
    if kinds == {str}:
        items = [item.encode() for item in items]
    elif kinds != {bytes}:
        items = [_as_bytes(item) for item in items]
    out = np.empty(len(items), dtype=np.object_)
    out[:] = items
    return out.reshape(array.shape)


def _as_bytes(item: object) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise TypeError(f"Expected string, got {item!r} of type {type(item).__name__!r} instead.")


def _typed(value: TensorLike, dtype: DType) -> np.ndarray[Any, Any]:
    if dtype is dtypes.string:
        return _bytes_array(_object_array(value))
    _check_fits(value, dtype)
    try:
        return np.array(value, dtype=dtype.as_numpy_dtype)
    except OverflowError as error:
        raise ValueError(f"{value!r} is out of the range of {dtype.name}") from error


def _object_array(value: TensorLike) -> np.ndarray[Any, Any]:
    """Like np.array(value, dtype=object), but bytes and str are always leaves and stay whole."""
    if isinstance(value, list | tuple):
        return np.array(value, dtype=np.object_)
    out = np.empty((), dtype=np.object_)
    out[()] = value
    return out


def _check_fits(value: TensorLike, dtype: DType) -> None:
    """Raises TypeError at the first leaf of a nested list that `dtype` cannot hold."""
    if isinstance(value, list | tuple):
        for item in value:
            _check_fits(item, dtype)
        return
    if isinstance(value, np.ndarray | np.generic | Dimension):
        return
    if dtype.is_bool:
        fits = isinstance(value, bool)
    elif dtype.is_integer:
        fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    elif dtype.is_floating:
        fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    elif dtype.is_complex:
        fits = isinstance(value, numbers.Number) and not isinstance(value, bool)
    else:
        fits = isinstance(value, numbers.Integral)
    if not fits and not hasattr(value, "__array__"):
        raise TypeError(f"Expected {dtype.name}, got {value!r} of type {type(value).__name__!r} instead.")


def _untyped(value: TensorLike) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value)
    except ValueError as error:
        raise _not_dense(value) from error
    kind = array.dtype.kind
    if kind in "SUO":
        if kind == "O" and _has_none(value):
            raise ValueError("None values not supported.")
        # where `anabranch run` has restored what NumPy did: an array of lists
        if kind == "O" and any(isinstance(item, list | tuple) for item in array.flat):
            raise _not_dense(value)
        return _bytes_array(_object_array(value))
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64:
        narrow = array.astype(np.int32)
        return narrow if np.array_equal(narrow, array) else array
    as_dtype(array.dtype)
    return array


def _not_dense(value: TensorLike) -> ValueError:
    return ValueError(
        f"cannot convert the nested list {_short(value)} to a tensor: its rows differ in length, and the argument "
        "must be a dense tensor"
    )


def _has_none(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and any(_has_none(v) for v in value))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
