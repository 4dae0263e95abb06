"""The operations that make datasets: each gives a variant, the dataset as a tensor (WP4.5)."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.data.structure import flat_attrs
from anabranch.frontend.framework import get_seed
from anabranch.graph.building import Argument, apply_op
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def dataset_variant(type_name: str, structure: Structure, **bound: Argument) -> Tensor:
    """The variant of a new dataset operation; `structure` of its elements, where its attributes tell it."""
    if structure is not None:
        bound.update(flat_attrs(structure))
    op: Operation = apply_op(op_def_of(type_name), bound)
    return op.outputs[0]


def shapes_attr(structure: Structure) -> dict[str, Any]:
    """The attribute of sources that hold their components as inputs, from which the dtypes follow."""
    return {"output_shapes": flat_attrs(structure)["output_shapes"]}


def int64_scalar(value: TensorLike, name: str | None = None) -> Tensor:
    """A size, a count or a seed in the dtype that dataset operations take."""
    return convert_to_tensor(value, dtypes.int64, name=name)


def seed_tensors(seed: TensorLike) -> tuple[Tensor, Tensor]:
    """The two seeds of an operation as int64 scalars; both zero: drawn anew."""
    if isinstance(seed, Tensor):
        graph_seed, _ = get_seed(0)
        return int64_scalar(graph_seed, "seed"), seed if seed.dtype is dtypes.int64 else raw.Cast(
            seed, DstT=dtypes.int64
        )
    one, two = get_seed(seed)
    first, other = one or 0, two or 0
    # two zeros mean that the seeds are drawn anew, but this program has asked for the seed zero
    if one is not None and first == 0 and other == 0:
        other = 2**31 - 1
    return int64_scalar(first, "seed"), int64_scalar(other, "seed2")
