"""Python functions in graphs: tf.py_func, tf.py_function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from anabranch.core import nest
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, TensorValue, to_array
from anabranch.frontend.arguments import DTypes
from anabranch.graph.building import OpFunction, apply_op
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.control_flow.script import register_function


@overload
def py_func(
    func: Callable[..., Any],
    inp: TensorLike | Sequence[TensorLike],
    Tout: DType,
    stateful: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def py_func(
    func: Callable[..., Any],
    inp: TensorLike | Sequence[TensorLike],
    Tout: DTypes,
    stateful: bool = ...,
    name: str | None = ...,
) -> nest.Structure: ...
def py_func(
    func: Callable[..., Any],
    inp: TensorLike | Sequence[TensorLike],
    Tout: DTypes,
    stateful: bool = True,
    name: str | None = None,
) -> nest.Structure:
    """Calls a Python function with the values of tensors, in every step that needs its result.

    Args:
        func: takes one NumPy array per input (its own copy) and returns arrays of the dtypes `Tout`.
        inp: list of tensors.
        Tout: a dtype, or a list of dtypes.
        stateful: whether two calls with equal arguments may give different results, or have effects.
        name: of the operation.

    Returns:
        A tensor, or a list of tensors when `Tout` is a list (the operation where it is empty); their shapes are not
        known: use `set_shape`.

    Raises:
        TypeError: an input cannot be converted to a tensor.

    Raises (in the step):
        InvalidArgumentError, OutOfRangeError, ...: what the function raised, with its traceback.

    Example:
        >>> y = tf.py_func(lambda x: np.sort(x), [tf.constant([3.0, 1.0, 2.0])], tf.float32)
        >>> sess.run(y)
        array([1., 2., 3.], dtype=float32)
    """
    return _called(raw.PyFunc if stateful else raw.PyFuncStateless, func, inp, Tout, name)


def _called(
    kind: OpFunction,
    func: Callable[..., Any],
    inp: TensorLike | Sequence[TensorLike],
    Tout: DTypes,
    name: str | None,
) -> nest.Structure:
    many = isinstance(Tout, list | tuple)
    dtypes: list[Any] = list(Tout) if isinstance(Tout, list | tuple) else [Tout]
    inputs = list(inp) if isinstance(inp, list | tuple) else [inp]
    op = apply_op(kind, {"input": inputs, "token": register_function(func), "Tout": dtypes}, name)
    if not dtypes:
        return op if kind.stateful else []  # without effects and results there is nothing to run
    result = kind.result_of(op)
    return result if many else result[0]


@overload
def numpy_function(
    func: Callable[..., Any], inp: TensorLike | Sequence[TensorLike], Tout: DType, name: str | None = ...
) -> Tensor: ...
@overload
def numpy_function(
    func: Callable[..., Any], inp: TensorLike | Sequence[TensorLike], Tout: DTypes, name: str | None = ...
) -> nest.Structure: ...
def numpy_function(
    func: Callable[..., Any], inp: TensorLike | Sequence[TensorLike], Tout: DTypes, name: str | None = None
) -> nest.Structure:
    """The same as `py_func` with `stateful=True`."""
    return py_func(func, inp, Tout, True, name)


class EagerArray(np.ndarray[Any, Any]):
    """What a `py_function` is given for a tensor: a NumPy array that also answers to the names of an eager tensor."""

    def numpy(self) -> Any:
        """The value as NumPy has it: a number or `bytes` for a scalar."""
        return np.asarray(self)[()]

    def get_shape(self) -> TensorShape:
        return TensorShape(list(self.shape))


def py_function(
    func: Callable[..., Any], inp: TensorLike | Sequence[TensorLike], Tout: DTypes, name: str | None = None
) -> nest.Structure:
    """Calls a Python function in every step that needs its result, with values that have the method `numpy`.

    The function computes with NumPy: what it is given are arrays, and operations of a graph have no values in it. No
    gradient flows through (docs/differences.md).

    Args:
        func: takes one array per input and returns arrays, or what can become arrays of the dtypes `Tout`.
        inp: list of tensors.
        Tout: a dtype, or a list of dtypes.
        name: of the operation.

    Returns:
        As `py_func`.

    Raises (in the step):
        InvalidArgumentError, ...: what the function raised; or a result of another kind than `Tout`.

    Example:
        >>> y = tf.py_function(lambda x: x.numpy() + 1, [tf.constant([1.0, 2.0])], tf.float32)
        >>> sess.run(y)
        array([2., 3.], dtype=float32)
    """
    dtypes = [as_dtype(t) for t in Tout] if isinstance(Tout, list | tuple) else [as_dtype(Tout)]

    def with_arrays(*values: TensorValue) -> Any:
        result = func(*(_eager(value) for value in values))
        items = list(result) if isinstance(result, list | tuple) else [result]
        if len(items) != len(dtypes):
            return result  # one tensor of a list of numbers, or a number of results that the operation refuses
        return [_converted(item, dtype) for item, dtype in zip(items, dtypes, strict=True)]

    return _called(raw.EagerPyFunc, with_arrays, inp, Tout, name)


def _eager(value: TensorValue) -> EagerArray:
    array = np.empty((), np.object_) if isinstance(value, bytes) else np.asarray(value)
    if isinstance(value, bytes):
        array[()] = value
    return array.view(EagerArray)


def _converted(value: TensorValue, dtype: DType) -> Any:
    """A result as an array of its dtype: numbers lose precision, but do not change their kind."""
    if isinstance(value, Tensor):
        raise TypeError(
            f"the function of a py_function returned {value}, a tensor of a graph, which has no value there; compute "
            "with NumPy"
        )
    if isinstance(value, EagerArray):
        value = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == np.dtype(dtype.as_numpy_dtype).kind:
        return np.asarray(value, dtype.as_numpy_dtype)
    return value if isinstance(value, np.ndarray | np.generic) else to_array(value, dtype)
