"""Python functions as operations: `PyFunc`, `EagerPyFunc`."""

from __future__ import annotations

import contextlib
import itertools
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core.dtypes import DType
from anabranch.core.interrupts import admitted
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.values import to_array
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.graph import get_default_graph

_numbers = itertools.count()


class _Registered:
    """A function that a token stands for: not every function can be referred to weakly."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


_registered: weakref.WeakValueDictionary[bytes, _Registered] = weakref.WeakValueDictionary()


def register_function(function: Callable[..., Any]) -> bytes:
    """A token for a function, which an attribute can hold; it is valid as long as the default graph is there."""
    token = f"pyfunc_{next(_numbers)}".encode()
    _registered[token] = held = _Registered(function)
    get_default_graph().keep(held)
    return token


def registered_function(token: bytes) -> Callable[..., Any] | None:
    """The function that a token stands for, where it is of this process and its graph is there."""
    registered = _registered.get(token)
    return None if registered is None else registered.function


#: what a Python exception is to the client of a step
_ERRORS: tuple[tuple[type[BaseException], type[errors.OpError]], ...] = (
    (StopIteration, errors.OutOfRangeError),
    (TypeError, errors.InvalidArgumentError),
    (ValueError, errors.InvalidArgumentError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
)


def _call(input: list[Any], *, token: bytes, Tout: list[Any], ctx: OperationContext) -> list[Any]:
    registered = _registered.get(token)
    if registered is None:
        raise errors.NotFoundError(
            None,
            ctx.op,
            f"the Python function of {ctx.op.name!r} belongs to another process, or to a graph that is gone; "
            "build the graph again here",
        )
    try:
        # the function owns its arguments: it may change them without anybody noticing
        arguments = [value[()] if value.ndim == 0 else np.array(value) for value in input]
        with admitted():
            result = registered.function(*arguments)
    except errors.OpError:
        raise
    except Exception as error:
        kind = next((k for types, k in _ERRORS if isinstance(error, types)), errors.UnknownError)
        raise kind(None, ctx.op, f"{type(error).__name__}: {error}\n{traceback.format_exc()}") from error
    return _results(result, Tout, ctx)


def _results(result: object, dtypes: list[Any], ctx: OperationContext) -> list[Any]:
    """The outputs: each element of a list or tuple is one, anything else is a single one, and None is none."""
    values = list(result) if isinstance(result, list | tuple) else [] if result is None else [result]
    if len(values) != len(dtypes):
        hint = "; return an array for a single output" if len(dtypes) == 1 else ""
        raise errors.InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r} returns {len(values)} values, but expects to see {len(dtypes)} values{hint}",
        )
    return [_output(value, i, dtype, ctx) for i, (value, dtype) in enumerate(zip(values, dtypes, strict=True))]


def _output(value: object, index: int, dtype: DType, ctx: OperationContext) -> np.ndarray[Any, Any]:
    array = _array(value, index, ctx)
    if array.dtype == dtype.as_numpy_dtype:
        return array
    if not isinstance(value, np.ndarray | np.generic):
        with contextlib.suppress(TypeError, ValueError):
            return to_array(value, dtype)
    raise errors.InvalidArgumentError(
        None, ctx.op, f"{index}-th value returned by {ctx.op.name!r} is {array.dtype}, but expects {dtype.name}"
    )


def _array(value: object, index: int, ctx: OperationContext) -> np.ndarray[Any, Any]:
    """A returned value as an array."""
    try:
        if isinstance(value, np.ndarray) and value.dtype.fields:
            raise TypeError(f"an array of records ({value.dtype})")
        return to_array(value)
    except TypeError as error:
        what = "numpy data type" if isinstance(value, np.ndarray) else "object type"
        message = f"Unsupported {what}: {index}-th value returned by {ctx.op.name!r} cannot be a tensor: {error}"
        raise errors.InternalError(None, ctx.op, message) from error


def _shapes(input: list[TensorShape], *, ctx: ShapeContext) -> list[TensorShape]:
    return [TensorShape(None)] * ctx.output_count


_ATTRS = "token: string, Tin: list(type) >= 0, Tout: list(type) >= 0"
PyFunc = define_op("PyFunc", "input: Tin -> output: Tout", _ATTRS, stateful=True, blocking=True, calls_user_code=True)
PyFuncStateless = define_op(
    "PyFuncStateless", "input: Tin -> output: Tout", _ATTRS, blocking=True, calls_user_code=True
)
#: of functions that compute with tensors which have values; that of `py_function` gives them to it, and a gradient
EagerPyFunc = define_op(
    "EagerPyFunc",
    "input: Tin -> output: Tout",
    "token: string, is_async: bool = False, Tin: list(type) >= 0, Tout: list(type) >= 0",
    stateful=True,
    blocking=True,
    calls_user_code=True,
)
for _op in (PyFunc, PyFuncStateless, EagerPyFunc):
    _op.shape(_shapes)
    _op.host_kernel(_call)
for _op in (PyFunc, PyFuncStateless):
    _op.not_differentiable()
