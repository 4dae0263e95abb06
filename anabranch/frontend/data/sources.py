"""Datasets of tensors, numbers and names of files: their variants, each with the structure of an element (WP4.5)."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.structure import TensorComponent, components_of, sliced_component_of
from anabranch.frontend.data.variants import dataset_variant, int64_scalar, shapes_attr
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def one_element_variant(tensors: Structure) -> tuple[Tensor, Structure]:
    """Of `Dataset.from_tensors`."""
    structure, flat = components_of(tensors)
    return dataset_variant("TensorDataset", None, components=flat, **shapes_attr(structure)), structure


def slices_variant(tensors: Structure) -> tuple[Tensor, Structure]:
    """Of `Dataset.from_tensor_slices`."""
    wholes, flat = components_of(tensors, sliced_component_of)
    rows = TensorShape([None])
    for component in nest.flatten(wholes):
        if component.shapes.ndims == 0:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        rows = rows.merge_with(component.shapes[:1])
    structure = nest.map_structure(lambda c: c.unbatched(), wholes)
    return dataset_variant("TensorSliceDataset", None, components=flat, **shapes_attr(structure)), structure


def sparse_slices_variant(sparse_tensor: SparseTensor) -> tuple[Tensor, Structure]:
    """Of `Dataset.from_sparse_tensor_slices`."""
    if not isinstance(sparse_tensor, SparseTensor):
        raise TypeError(f"`sparse_tensor` must be a `tf.SparseTensor` object. Was {sparse_tensor!r}.")
    shape = sparse_tensor.get_shape()
    rank = None if shape.ndims is None else shape.ndims - 1
    structure = (
        TensorComponent(dtypes.int64, TensorShape([None, rank])),
        TensorComponent(sparse_tensor.dtype, TensorShape([None])),
        TensorComponent(dtypes.int64, TensorShape([rank])),
    )
    variant = raw.SparseTensorSliceDataset(sparse_tensor.indices, sparse_tensor.values, sparse_tensor.dense_shape)
    return variant, structure


def range_variant(*args: TensorLike) -> tuple[Tensor, Structure]:
    """Of `Dataset.range`."""
    if not 1 <= len(args) <= 3:
        raise ValueError(f"Invalid `args`: {args}. Expected 1 to 3 positional arguments.")
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if args[2:] else 1)
    structure = TensorComponent(dtypes.int64, TensorShape([]))
    numbers = {"start": start, "stop": stop, "step": step}
    return dataset_variant("RangeDataset", structure, **{k: int64_scalar(v, k) for k, v in numbers.items()}), structure


def matching_files(file_pattern: TensorLike) -> tuple[Tensor, Tensor]:
    """The names of the files that match, and their number; the step fails where there are none."""
    patterns = convert_to_tensor(file_pattern, dtypes.string, name="file_pattern")
    names = raw.MatchingFiles(patterns)
    count = raw.Size(names)
    message = convert_to_tensor(b"No files matched pattern: ")
    check = raw.Assert(raw.Greater(count, 0), [message, patterns])
    graph = get_default_graph()
    with graph.control_dependencies([check]):
        names = raw.Identity(names)
    return names, count
