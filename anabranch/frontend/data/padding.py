"""The sizes of batches, and how elements are padded in them."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.structure import TensorComponent
from anabranch.frontend.data.variants import int64_scalar
from anabranch.graph.building import apply_op
from anabranch.graph.constants import constant_value, constant_value_as_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def known_batch(size: Tensor, drop_remainder: Tensor) -> int | None:
    """The size of every batch, where it is known."""
    dropped, known = constant_value(drop_remainder), constant_value(size)
    return int(known) if dropped is not None and bool(dropped) and known is not None else None


def padded_batch_variant(
    dataset: Tensor,
    element: Structure,
    batch_size: TensorLike,
    padded_shapes: Structure,
    padding_values: Structure | None,
    drop_remainder: TensorLike,
) -> tuple[Tensor, Structure]:
    """Of `Dataset.padded_batch`: the variant, and the structure of a batch.

    Args:
        dataset: the variant of the dataset to batch.
        element: the structure of its elements.

    Raises:
        TypeError, ValueError: as `Dataset.padded_batch` says.
    """
    size, drop = int64_scalar(batch_size, "batch_size"), convert_to_tensor(drop_remainder, dtypes.bool)
    components = nest.flatten(element)
    if any(not isinstance(c, TensorComponent) for c in components):
        raise TypeError("Batching of padded sparse tensors is not currently supported")
    shapes = [_padded_shape(s) for s in nest.flatten_up_to(element, padded_shapes)]
    fills = _padding_tensors(padding_values, element)
    known = known_batch(size, drop)
    flat = []
    for component, shape in zip(components, shapes, strict=True):
        static = constant_value_as_shape(shape)
        _check_padded(component.shape, static)
        flat.append(TensorComponent(component.dtype, TensorShape([known]).concatenate(static)))
    structure = nest.pack_sequence_as(element, flat)
    variant = apply_op(
        op_def_of("PaddedBatchDatasetV2"),
        {
            "input_dataset": dataset,
            "batch_size": size,
            "padded_shapes": shapes,
            "padding_values": fills,
            "drop_remainder": drop,
            "output_shapes": [c.shape for c in flat],
        },
    ).outputs[0]
    return variant, structure


def _padded_shape(shape: ShapeLike) -> Tensor:
    if isinstance(shape, Tensor):
        return shape if shape.dtype is dtypes.int64 else raw.Cast(shape, DstT=dtypes.int64)
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if isinstance(shape, list | tuple):
        if any(isinstance(d, list | tuple) for d in shape):
            raise ValueError(f"Padded shape {shape!r} must be a 1-D vector of integers")
        shape = [None if isinstance(d, int) and d == -1 else d for d in shape]
    dims = TensorShape(shape).dims_tuple
    if dims is None:
        raise ValueError(f"Padded shape {shape!r} must have a known rank")
    return convert_to_tensor(np.array([-1 if d is None else d for d in dims], np.int64))


def _check_padded(shape: TensorShape, padded: TensorShape) -> None:
    if shape.ndims is not None and padded.ndims is not None:
        problem = ValueError(
            f"The padded shape {padded} is not compatible with the corresponding input component shape {shape}."
        )
        if shape.ndims != padded.ndims:
            raise problem
        for size, wanted in zip(shape.dims_tuple or (), padded.dims_tuple or (), strict=True):
            if size is not None and wanted is not None and wanted < size:
                raise problem


def _padding_tensors(values: Structure, structure: Structure) -> list[Tensor]:
    components = nest.flatten(structure)
    given = [None] * len(components) if values is None else nest.flatten_up_to(structure, values)
    return [_padding_value(value, component.dtype) for value, component in zip(given, components, strict=True)]


def _padding_value(value: TensorLike | None, dtype: DType) -> Tensor:
    if value is None:
        fill = b"" if dtype is dtypes.string else np.zeros((), dtype.as_numpy_dtype)
        return convert_to_tensor(fill, dtype)
    tensor = convert_to_tensor(value, None if isinstance(value, Tensor | np.ndarray | np.generic) else dtype)
    if tensor.dtype is not dtype:
        raise TypeError(f"Padding value type ({tensor.dtype}) does not match output type ({dtype})")
    if tensor.shape.ndims not in (0, None):
        raise ValueError(f"Padding value should be a scalar, but is {tensor.shape}")
    return tensor
