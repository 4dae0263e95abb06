"""What is fed for a tensor, as an array of the tensor's dtype: cast as TensorFlow casts, or refused.

NumPy's cast decides, which truncates floats and reads texts as numbers, with these differences:

- a Python integer must be a value of the dtype, so that a forgotten `int64` is found;
- integers in lists, and floats, wrap around in a dtype that is too small for them, as they do in arrays;
- a Python float that no 64-bit integer holds (an infinity, a NaN) is refused for integers: its cast is undefined;
- complex numbers are refused for real dtypes, which would lose their imaginary parts;
- strings take texts and bytes only; None and tensors are refused.

Tensors of other libraries are taken by DLPack as they lie in memory: the host's, or that of an accelerator which the
session uses (`runtime.lent_tensors`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.core import dtypes
from anabranch.core.arrays import ElementType
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorLike, to_array
from anabranch.frontend.resources.session_tensors import TensorHandle
from anabranch.graph.operation import Tensor

#: floats below this have an int64, of either sign
_INT64_END = 2.0**63

#: a tensor of another library -> an array over the same memory, if an accelerator's
Lend = Callable[[Any], Any]


def feed_array(tensor: Tensor, value: TensorLike, lend: Lend | None = None) -> Any:
    """A fed value as an array of the tensor's dtype.

    Args:
        lend: takes tensors of other libraries in an accelerator's memory; gives None for those in the host's.

    Raises:
        TypeError: it is a tensor, or of a kind that the dtype cannot hold.
        ValueError: its shape contradicts the tensor's, or the dtype has no such value.
    """
    wanted = tensor._dtype.as_numpy_dtype
    if type(value) is not np.ndarray or value.dtype != wanted or wanted is np.object_:
        value = _converted(tensor, value, wanted, lend)
    dims = tensor._shape.dims_tuple
    if dims is not None and value.shape != dims and not isinstance(value, ResourceHandle):
        shape = value.shape
        if len(shape) != len(dims) or any(d is not None and d != s for d, s in zip(dims, shape, strict=True)):
            raise ValueError(
                f"Cannot feed value of shape {shape} for Tensor {tensor.name!r}, which has shape '{tensor._shape}' "
                f"(created at {tensor.op.site}); reshape the value, or leave dimensions that vary open (None)"
            )
    return value


def fed_tensors(key: TensorLike, element: Tensor) -> list[Tensor]:
    """The tensors that take the value which is fed for `key`, whose graph element is `element`.

    For a variable, or its name, they are all its reads in the graph: what is computed from the variable is computed
    from what is fed, as with TensorFlow's reference variables. What looks rows up in the variable itself, and what is
    inside of functions and loops, sees the variable. A read after an update is one of its own.
    """
    is_read = element.op.type in ("ReadVariableOp", "VarHandleOp") and element.get_attribute("updated_by") is None
    if isinstance(key, Tensor) or not is_read:
        return [element]
    handle = element if element.op.type == "VarHandleOp" else element.op.inputs[0]
    return [op.outputs[0] for op in handle.consumers() if op.type == "ReadVariableOp"] or [element]


def _converted(tensor: Tensor, value: TensorLike, wanted: ElementType, lend: Lend | None) -> Any:
    if isinstance(value, Tensor):
        raise TypeError(
            "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python scalars, strings, "
            "lists, numpy ndarrays, or TensorHandles. For reference, the tensor object was "
            f"{value} which was passed to the feed with key {tensor}."
        )
    if isinstance(value, ResourceHandle):
        return value
    if isinstance(value, TensorHandle):
        takes_text = any(op.type in {"GetSessionTensor", "DeleteSessionTensor"} for op in tensor.consumers())
        return feed_array(tensor, value.handle if takes_text else value.eval())
    if value is None:
        raise TypeError(
            f"Cannot feed None for Tensor {tensor.name!r} of dtype {tensor.dtype.name} (created at {tensor.op.site}); "
            "leave it out of feed_dict, or give it a value"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        _check_integer(tensor, value)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        value, is_array = _shared(tensor, value, lend)
        if is_array and value.dtype == wanted:
            return value
    if getattr(getattr(value, "dtype", None), "kind", "") == "c" and not tensor.dtype.is_complex:
        raise TypeError(
            f"Cannot feed complex values for Tensor {tensor.name!r} of dtype {tensor.dtype.name} (created at "
            f"{tensor.op.site}): feed the real part, or the absolute value"
        )
    try:
        if wanted is np.object_:
            return _texts(value)
        try:
            return np.asarray(value, dtype=wanted)
        except OverflowError:
            return _wrapped(value, wanted)
    except (TypeError, ValueError, OverflowError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            f"Cannot feed {value!r} for Tensor {tensor.name!r} of dtype {tensor.dtype.name} (created at "
            f"{tensor.op.site}): {str(error).rstrip('.')}. Convert the value first, or declare the "
            "tensor with another dtype"
        ) from None


def _shared(tensor: Tensor, value: TensorLike, lend: Lend | None) -> tuple[Any, bool]:
    """A tensor of another library as an array over the same memory, and True; as it is, if that cannot be.

    Raises:
        ValueError: it lies where the session cannot reach it.
    """
    try:
        lent = None if lend is None else lend(value)
    except ValueError as error:
        raise ValueError(
            f"Cannot feed this value for Tensor {tensor.name!r} of dtype {tensor.dtype.name} (created at "
            f"{tensor.op.site}): {error}; feed a contiguous tensor without a gradient, or a copy on the host"
        ) from error
    if lent is not None:
        return lent, True
    try:
        return np.from_dlpack(value), True
    except (BufferError, RuntimeError, TypeError):
        return value, False


def _check_integer(tensor: Tensor, value: int) -> None:
    dtype = tensor.dtype
    if (dtype.is_integer and not dtype.min <= value <= dtype.max) or (dtype.is_bool and value not in (0, 1)):
        raise TypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type "
            f"{dtype.as_numpy_dtype} of {tensor.name!r} (created at {tensor.op.site}). Try explicitly setting "
            "the type of the feed tensor to a larger type (e.g. int64)."
        )


def _texts(value: TensorLike) -> Any:
    """An array of strings and bytes; an empty one may come from a list without elements, which has no dtype."""
    if isinstance(value, list | tuple | np.ndarray):
        array = np.asarray(value, object)
        if array.size == 0:
            return array
    return to_array(value, dtypes.string)


def _wrapped(value: TensorLike, wanted: ElementType) -> npt.NDArray[Any]:
    """Numbers that the integer dtype `wanted` is too small for, modulo its range.

    Raises:
        OverflowError: a number is beyond 64 bits.
    """
    array = np.asarray(value)
    if array.dtype.kind == "f" and (np.abs(array) < _INT64_END).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise OverflowError("a number in it is no 64-bit integer")
    return array.astype(wanted)
