"""From Python values to tensors: `convert_to_tensor`, its registry of conversions, and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.values import TensorLike, to_array
from anabranch.graph.graph import get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto.graph_pb2 import TensorProto
from anabranch.proto.tensors import make_ndarray

#: (value, dtype or None, name or None, as_ref) -> tensor, or NotImplemented to let the next function try
ConversionFunction = Callable[[Any, DType | None, str | None, bool], Any]

#: An attribute of the read of a variable that stands for a reference to it, as older programs have it: whatever takes
#: the reference reads for itself, because that is when a reference is looked at  (docs/decisions/0062).
REFERENCE: Final = "_reference"

_conversions: list[tuple[int, int, type | tuple[type, ...], ConversionFunction]] = []


def register_tensor_conversion_function(
    base_type: type | tuple[type, ...], conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Lets `convert_to_tensor` convert values of a type.

    Args:
        base_type: values of this type (or these types) are converted.
        conversion_func: called with (value, dtype, name, as_ref); returns a tensor or NotImplemented.
        priority: lower goes first; among equals the earlier registration.

    Raises:
        TypeError: `base_type` is not a type, or `conversion_func` cannot be called.
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(t, type) for t in types):
        raise TypeError(f"base_type must be a type or a tuple of types, got {base_type!r}")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable")
    _conversions.append((priority, len(_conversions), base_type, conversion_func))
    _conversions.sort(key=lambda entry: entry[:2])


def convert_to_tensor(
    value: TensorLike,
    dtype: object = None,
    name: str | None = None,
    preferred_dtype: object = None,
    dtype_hint: object = None,
) -> Tensor:
    """The tensor that `value` stands for; constants are created for plain Python and NumPy values.

    Args:
        value: a tensor, a variable, a number, a string, an array, or a nested list of these (tensors among them are
            packed), or anything for which a conversion function is registered.
        dtype: the dtype that the result must have; default: that of the value.
        name: name of a constant that is created.
        preferred_dtype, dtype_hint: a dtype to try first when `dtype` is None and the value leaves it open.

    Returns:
        A tensor of the value's shape.

    Raises:
        TypeError: the value cannot be a tensor (of that dtype).
        ValueError: the value is a tensor of another dtype, or None.

    Example:
        >>> tf.convert_to_tensor([[1.0, 2.0]]).shape
        TensorShape([Dimension(1), Dimension(2)])
    """
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    if isinstance(value, Tensor):
        if wanted is not None and not wanted.is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype {value.dtype.name}: {value!r} "
                f"(created at {value.op.site}); use tf.cast"
            )
        return _looked_at(value) if REFERENCE in value._op.attrs else value
    hint = preferred_dtype if preferred_dtype is not None else dtype_hint
    if wanted is None and hint is not None:
        try:
            return _convert(value, as_dtype(hint).base_dtype, name)
        except (TypeError, ValueError):
            pass  # the hint is only a preference
    return _convert(value, wanted, name)


def _looked_at(reference: Tensor) -> Tensor:
    """A read of its own, under the open control dependencies, of the variable that a tensor is a reference to."""
    op, graph = reference.op, get_default_graph()
    if not graph.building_function:
        graph = op.graph
    if graph.finalized:
        return reference  # nothing can be built that would take it
    with graph.as_default(), graph.control_dependencies([op] if op.control_inputs and graph is op.graph else []):
        name = f"{op.name.rpartition('/')[2]}/ReadVariableOp"
        handle = graph.capture(op.inputs[0])
        return graph.create_op(op.op_def, [handle], {"dtype": reference.dtype}, name=name).outputs[0]


def _convert(value: TensorLike, dtype: DType | None, name: str | None) -> Tensor:
    for _, _, base_type, function in _conversions:
        if isinstance(value, base_type):
            result = function(value, dtype, name, False)
            if result is not NotImplemented:
                tensor: Tensor = result
                return tensor
    if isinstance(value, Operation):
        raise TypeError(f"operation {value.name} has no value of its own; use one of its outputs: {value.outputs}")
    if isinstance(value, list | tuple) and _holds_tensor(value):
        return _pack(value, dtype, name)
    try:
        array = constant_array(value, dtype)
    except TypeError as error:
        if dtype is None and not isinstance(value, list | tuple):
            raise TypeError(
                f"Failed to convert object of type {type(value)} to Tensor. Contents: {value!r}. "
                "Consider casting elements to a supported type."
            ) from error
        raise
    return constant_of(array, name=name)


def constant_array(value: TensorLike, dtype: DType | None) -> np.ndarray[Any, Any]:
    """The array of a constant of a value: a number, text, array, nested lists of these, or the message of a tensor.

    Raises:
        TypeError, ValueError: there is none of that dtype.
    """
    return to_array(make_ndarray(value) if isinstance(value, TensorProto) else value, dtype)


def _holds_tensor(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_tensor(item) for item in value)
    return isinstance(value, Tensor) or is_tensor_like(value)


def is_tensor_like(value: object) -> bool:
    """Whether a registered conversion (for a variable, a sparse value, ...) applies to `value`."""
    return isinstance(value, Tensor) or any(isinstance(value, base_type) for _, _, base_type, _ in _conversions)


def _pack(values: TensorLike, dtype: DType | None, name: str | None) -> Tensor:
    """A nested list with tensors inside becomes `Pack` operations, one per level.

    As in TensorFlow, tensors are cast where another dtype is asked for than that of the first one, and only there.

    Raises:
        TypeError: the tensors have several dtypes.
    """
    first = next(iter(_leaf_dtypes(values)), None)
    return _packed(values, first if dtype is None else dtype, name, casts=dtype is not None and dtype is not first)


def _packed(values: TensorLike, dtype: DType | None, name: str | None, casts: bool) -> Tensor:
    graph = get_default_graph()
    with graph.name_scope(name or "packed") as scope:
        parts = [
            graph.capture(
                _packed(v, dtype, str(i), casts)
                if isinstance(v, list | tuple) and _holds_tensor(v)
                else _element(v, dtype, str(i), casts)
            )
            for i, v in enumerate(values)
        ]
        attrs = {"N": len(parts), "T": parts[0].dtype, "axis": 0}
        return graph.create_op(op_def_of("Pack"), parts, attrs, name=scope).outputs[0]


def _element(value: TensorLike, dtype: DType | None, name: str, casts: bool) -> Tensor:
    """An element of a packed list, as a tensor of the list's dtype."""
    tensor = convert_to_tensor(value, None if is_tensor_like(value) else dtype, name)
    if dtype is None or tensor.dtype.base_dtype is dtype:
        return tensor
    if not casts:
        raise TypeError(
            f"Cannot convert a list containing a tensor of dtype {tensor.dtype.base_dtype.name} to {dtype.name} "
            f"(Tensor is: {tensor!r}); cast it with tf.cast"
        )
    attrs = {"SrcT": tensor.dtype.base_dtype, "DstT": dtype, "Truncate": False}
    return tensor.graph.create_op(op_def_of("Cast"), [tensor], attrs, name="cast").outputs[0]


def _leaf_dtypes(values: TensorLike) -> list[DType]:
    if isinstance(values, list | tuple):
        return [d for v in values for d in _leaf_dtypes(v)]
    dtype = getattr(values, "dtype", None)
    return [as_dtype(dtype).base_dtype] if is_tensor_like(values) and dtype is not None else []


def constant_of(array: np.ndarray[Any, Any], name: str | None = None) -> Tensor:
    """A `Const` operation that holds a private, read-only copy of `array`."""
    held = np.array(array, copy=True)
    held.flags.writeable = False
    attrs = {"value": held, "dtype": as_dtype(held.dtype)}
    return get_default_graph().create_op(op_def_of("Const"), [], attrs, name=name or "Const").outputs[0]
