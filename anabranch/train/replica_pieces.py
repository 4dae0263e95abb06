"""Small pieces of the graphs that `train.replicas` builds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def either(condition: Tensor, yes: Tensor, no: Tensor) -> Any:
    """One of two tensors of one shape, as a scalar says."""
    return raw.Select(raw.Fill(raw.Shape(yes), condition), yes, no)


def as_double(value: TensorLike) -> Any:
    """A number as those of the table of measurements."""
    return raw.Cast(convert_to_tensor(value), DstT=np.float64)


def values_of(value: Gradient) -> Tensor:
    """A gradient, or the rows of one that is sparse."""
    first: Tensor = value.values if isinstance(value, IndexedSlices) else value
    return first


def after(tensors: list[Tensor], value: Gradient | None) -> Any:
    """A gradient that comes after other tensors."""
    if value is None:
        return None
    with get_default_graph().control_dependencies(tensors):
        if isinstance(value, IndexedSlices):
            return IndexedSlices(raw.Identity(value.values), value.indices, value.dense_shape)
        return raw.Identity(value)


def added_to(total: Variable, grad: Gradient) -> Operation:
    """Adds a gradient to a sum."""
    done = total.scatter_add(grad) if isinstance(grad, IndexedSlices) else total.assign_add(grad)
    return done.op


def local_variable(value: TensorLike, dtype: DTypeLike, name: str, beside: Operation) -> Variable:
    """A variable of this worker's own, also where variables go to other tasks."""
    with get_default_graph().colocate_with(beside):
        local = [GraphKeys.LOCAL_VARIABLES]
        return Variable(value, trainable=False, collections=local, dtype=dtype, name=name, use_resource=True)


@contextlib.contextmanager
def made_local() -> Iterator[None]:
    """Variables made within, slots beside copies, are the worker's own: no chief initializes them."""
    everywhere = get_default_graph().get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
    known = len(everywhere)
    yield
    get_default_graph().get_collection_ref(GraphKeys.LOCAL_VARIABLES).extend(everywhere[known:])
    del everywhere[known:]


def partitioned_as(shared: PartitionedVariable, copies: list[Variable]) -> PartitionedVariable:
    """A variable of as many parts as another, of copies of these."""
    for copy, part in zip(copies, shared, strict=True):
        info = part._get_save_slice_info()
        assert info is not None, "each part knows its place"
        copy._set_save_slice_info(info)
    partitions = shared._get_partitions()
    return PartitionedVariable(f"{shared.name}/copy", shared.shape, shared.dtype, copies, partitions)


def assigned(variable: Variable, value: TensorLike) -> Operation:
    """Sets a variable."""
    return variable.assign(value).op
