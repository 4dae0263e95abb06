"""Python functions of arrays in graphs: tf.py_func, tf.numpy_function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from anabranch.core import nest
from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
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
        ValueError: `func` cannot be called.

    Raises (in the step):
        InvalidArgumentError, OutOfRangeError, ...: what the function raised, with its traceback.

    Example:
        >>> y = tf.py_func(lambda x: np.sort(x), [tf.constant([3.0, 1.0, 2.0])], tf.float32)
        >>> sess.run(y)
        array([1., 2., 3.], dtype=float32)
    """
    return call_of(raw.PyFunc if stateful else raw.PyFuncStateless, func, inp, Tout, name)


def call_of(
    kind: OpFunction,
    func: Callable[..., Any],
    inp: TensorLike | Sequence[TensorLike],
    Tout: DTypes,
    name: str | None,
) -> nest.Structure:
    """The results of a call of a Python function, by an operation of a kind.

    Raises:
        ValueError: it cannot be called.
    """
    if not callable(func):
        raise ValueError(f"expected func to be callable, got func: {func!r}")
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
