"""The zeros that stand for the gradient of what nothing depends on."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.lists.tensor_list import TensorListZeros
from anabranch.ops.resources.variables import variable_shape


def zeros_like(tensor: Tensor) -> Tensor:
    """A gradient of `tensor` that is zero: for the handle of a variable, a value like the variable's."""
    if tensor.dtype is dtypes.variant:
        return TensorListZeros(tensor)  # type: ignore[no-any-return]
    if tensor.dtype is dtypes.resource:
        return _zeros_of_variable(tensor)
    return raw.ZerosLike(tensor)  # type: ignore[no-any-return]


def _zeros_of_variable(handle: Tensor) -> Tensor:
    origin: Tensor | None = handle
    while origin is not None and origin.op.type == "Placeholder":
        origin = origin.get_attribute("handle_of")
    dtype = dtypes.float32 if origin is None else origin.op.attrs["dtype"]
    zeros: Tensor = raw.Fill(variable_shape(handle), convert_to_tensor(0, dtype))
    if origin is not None:
        zeros.set_shape(origin.op.attrs["shape"])
    return zeros
