"""Python's built-in functions where they are called with tensors in converted code."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.core import dtypes
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.autograph.state import is_symbolic
from anabranch.frontend.control_flow.printing import print_v2
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _length(s: PassedOn) -> Any:
    """`len(s)`: the first dimension, as a number where it is known.

    Raises:
        ValueError: `s` is a scalar.
    """
    if isinstance(s, TensorArray):
        return s.size()
    if not is_symbolic(s):
        return len(s)
    tensor = convert_to_tensor(s)
    if tensor.dtype.base_dtype is dtypes.variant:
        return raw.TensorListLength(tensor)
    dims = tensor.shape.dims_tuple
    if dims == ():
        raise ValueError(f"len() needs a tensor of rank 1 or more, got the scalar {tensor.name}")
    if dims is not None and dims[0] is not None:
        return dims[0]
    return raw.StridedSlice(raw.Shape(tensor), [0], [1], [1], shrink_axis_mask=1)


def _range(start: TensorLike, stop: TensorLike = None, step: TensorLike = None) -> Any:
    """`range(...)`, with a tensor among its arguments a `tf.range`."""
    given = [a for a in (start, stop, step) if a is not None]
    if not any(is_symbolic(a) for a in given):
        return range(*given)
    first, limit = (0, start) if stop is None else (start, stop)
    dtype = next(convert_to_tensor(a).dtype.base_dtype for a in given if is_symbolic(a))
    arguments = [convert_to_tensor(a, dtype) for a in (first, limit, 1 if step is None else step)]
    # as Python's, it is empty where TensorFlow's would be refused
    arguments[1] = _not_behind(*arguments)
    return raw.Range(*arguments)


def _not_behind(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    ahead = raw.GreaterEqual(delta, raw.ZerosLike(delta))
    return raw.SelectV2(ahead, raw.Maximum(start, limit), raw.Minimum(start, limit))  # type: ignore[no-any-return]


def _number(x: TensorLike, dtype: dtypes.DType) -> Tensor:
    tensor = convert_to_tensor(x)
    if tensor.dtype.base_dtype is dtypes.string:
        return raw.StringToNumber(tensor, out_type=dtype)  # type: ignore[no-any-return]
    return raw.Cast(tensor, DstT=dtype)  # type: ignore[no-any-return]


def _int(x: TensorLike = 0, *base: int) -> Any:
    """`int(x)`: a cast to int32, or what a text says.

    Raises:
        NotImplementedError: a text in another base than 10.
    """
    if not is_symbolic(x):
        return int(x, *base)
    if base not in ((), (10,)):
        raise NotImplementedError(f"int() of a tensor in base {base[0]}; write the number in base 10")
    return _number(x, dtypes.int32)


def _float(x: TensorLike = 0.0) -> Any:
    """`float(x)`: a cast to float32, or what a text says."""
    return _number(x, dtypes.float32) if is_symbolic(x) else float(x)


def _absolute(x: TensorLike) -> Any:
    return raw.Abs(convert_to_tensor(x)) if is_symbolic(x) else abs(x)


def _extreme(python: Callable[..., Any], reduce: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: TensorLike, **kwargs: PassedOn) -> Any:
        if not any(is_symbolic(a) for a in args):
            return python(*args, **kwargs)
        if kwargs:
            raise ValueError(f"{python.__name__}() of tensors takes no {', '.join(kwargs)}; use tf.argmax or tf.argmin")
        if len(args) == 1:
            (tensor,) = (convert_to_tensor(a) for a in args)
            if tensor.shape.ndims != 1:
                raise ValueError(
                    f"{python.__name__}() needs a tensor of rank 1, got shape {tensor.shape} ({tensor.name})"
                )
            return reduce(tensor, 0)
        dtype = next(convert_to_tensor(a).dtype.base_dtype for a in args if is_symbolic(a))
        tensors = [convert_to_tensor(a, dtype) for a in args]
        if any(t.shape.ndims != 0 for t in tensors):
            raise ValueError(f"{python.__name__}() of several tensors takes scalars; use tf.maximum or tf.minimum")
        return reduce(raw.Pack(tensors), 0)

    return chosen


def _print(*objects: PassedOn, **kwargs: PassedOn) -> Any:
    """`print(...)`, when the step runs where there is a tensor among the objects."""
    if not any(is_symbolic(o) for o in objects):
        return builtins.print(*objects, **kwargs)  # noqa: T201 - the user's own call
    allowed = {name: kwargs[name] for name in ("sep", "end") if name in kwargs}
    return print_v2(*objects, **allowed)


_OVERLOADS: Final[Mapping[Any, Callable[..., Any]]] = {
    abs: _absolute,
    float: _float,
    int: _int,
    len: _length,
    max: _extreme(max, raw.Max),
    min: _extreme(min, raw.Min),
    print: _print,
    range: _range,
}


def overload(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a built-in function does with tensors; the function itself where it does nothing of its own."""
    return _OVERLOADS.get(function, function)
