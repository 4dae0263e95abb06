"""Values that may be ragged: as tensors or ragged tensors, whose splits have one dtype."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.ragged.values import RaggedTensorValue
from anabranch.graph.conversion import convert_to_tensor


def is_ragged(value: object) -> bool:
    """Whether a value is a ragged tensor, symbolic or fetched."""
    return isinstance(value, RaggedTensor | RaggedTensorValue)


def convert_to_ragged(
    value: TensorLike, dtype: DTypeLike | None = None, preferred_dtype: object = None, name: str | None = None
) -> TensorOrRagged:
    """A ragged tensor as it is, a fetched one as constants, and anything else as a tensor.

    Raises:
        ValueError: a ragged tensor of another dtype.
        TypeError: it cannot be a tensor.
    """
    if not isinstance(value, RaggedTensor | RaggedTensorValue):
        return convert_to_tensor(value, dtype, name, preferred_dtype)
    if (
        isinstance(value, RaggedTensor)
        and dtype is not None
        and not as_dtype(dtype).is_compatible_with(as_dtype(value.dtype))
    ):
        raise ValueError(
            f"Tensor conversion requested dtype {as_dtype(dtype).name} for RaggedTensor with dtype "
            f"{as_dtype(value.dtype).name}: {value!r}; use tf.cast"
        )
    if isinstance(value, RaggedTensor):
        return value
    with name_scope(name, "ConvertToTensorOrRaggedTensor"):
        flat = convert_to_tensor(value.flat_values, dtype, "flat_values", preferred_dtype)
        return RaggedTensor.from_nested_row_splits(flat, value.nested_row_splits, validate=False)


def match_row_splits_dtypes(*tensors: TensorLike) -> list[Any]:
    """The tensors, refused where the splits of some are int32 and of others int64.

    Raises:
        ValueError: they are.
    """
    found = {tensor.row_splits.dtype for tensor in tensors if isinstance(tensor, RaggedTensor)}
    if len(found) > 1:
        raise ValueError(
            "Input RaggedTensors have mismatched row_splits dtypes; use RaggedTensor.with_row_splits_dtype() to "
            "convert them to compatible dtypes."
        )
    return list(tensors)


def splits_dtype_of(*tensors: TensorLike) -> DType:
    """The dtype of the splits of the first ragged tensor; int64 where there is none."""
    return next((t.row_splits.dtype for t in tensors if isinstance(t, RaggedTensor)), dtypes.int64)
