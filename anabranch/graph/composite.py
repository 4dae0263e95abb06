"""Values made of several tensors: IndexedSlices and SparseTensor  (§3.1)."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.graph.constants import constant_value_as_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.graph.operation import FeedDict, Operation, StepRunner, Tensor


class IndexedSlices:
    """A few rows of a large tensor: row `indices[i]` is `values[i]`; rows that stand twice are summed.

    The form of the gradient of a gather, kept sparse up to the optimizer's scatter.

    Args:
        values: of any dtype, shape [n, ...].
        indices: int32 or int64, shape [n].
        dense_shape: the shape of the large tensor, a vector, or None where it is not known.

    Raises:
        nothing

    Example:
        >>> table = tf.get_variable("table", [4, 2])
        >>> gradient, = tf.gradients(tf.gather(table, [1, 3]), table)
        >>> type(gradient) is tf.IndexedSlices, gradient.values.shape
        (True, TensorShape([Dimension(2), Dimension(2)]))
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def dense_shape(self) -> Tensor | None:
        return self._dense_shape

    @property
    def shape(self) -> TensorShape:
        """The dense shape as far as it is known."""
        return TensorShape(None) if self._dense_shape is None else constant_value_as_shape(self._dense_shape)

    def get_shape(self) -> TensorShape:
        """The static shape of the dense tensor, as `shape`."""
        return self.shape

    @property
    def name(self) -> str:
        return self._values.name

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def device(self) -> str:
        return self._values.device

    @property
    def graph(self) -> Graph:
        return self._values.graph

    def consumers(self) -> list[Operation]:
        """The operations that take the values."""
        return self._values.consumers()

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self._values, self._indices, self._dense_shape)

    def __str__(self) -> str:
        return f"IndexedSlices(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"

    __repr__ = __str__


#: what stands for a sparse tensor where one is wanted
SparseTensorLike: TypeAlias = "SparseTensor | SparseTensorValue"
#: a gradient by a tensor: dense, or of a few rows
Gradient: TypeAlias = Tensor | IndexedSlices


class IndexedSlicesValue(NamedTuple):
    """A fetched `IndexedSlices`: arrays in place of tensors."""

    values: Any
    indices: Any
    dense_shape: Any


class SparseTensorValue(NamedTuple):
    """A fetched or fed `SparseTensor`: arrays in place of tensors."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor:
    """A tensor given by its non-empty elements.

    Args:
        indices: int64, shape [n, rank]: the position of each element.
        values: any dtype, shape [n].
        dense_shape: int64, shape [rank].

    Raises:
        ValueError: the three shapes do not go together.

    Example:
        >>> sparse = tf.SparseTensor(indices=[[0, 1], [1, 0]], values=[5, 6], dense_shape=[2, 2])
        >>> sess.run(sparse).values
        array([5, 6], dtype=int32)
    """

    def __init__(self, indices: TensorLike, values: TensorLike, dense_shape: TensorLike) -> None:
        self._indices = convert_to_tensor(indices, dtypes.int64, name="indices")
        self._values = convert_to_tensor(values, name="values")
        self._dense_shape = convert_to_tensor(dense_shape, dtypes.int64, name="dense_shape")
        index_shape = self._indices.shape.with_rank(2)
        self._values.shape.with_rank(1)[:1].merge_with(index_shape[:1])
        self._dense_shape.shape.with_rank(1)[:1].merge_with(index_shape[1:])

    @classmethod
    def from_value(cls, value: object) -> SparseTensor:
        """From a `SparseTensor` or `SparseTensorValue`; raises TypeError for anything else."""
        if isinstance(value, SparseTensor):
            return value
        if isinstance(value, SparseTensorValue):
            return cls(value.indices, value.values, value.dense_shape)
        raise TypeError(f"Neither a SparseTensor nor SparseTensorValue: {value!r}.")

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def dense_shape(self) -> Tensor:
        return self._dense_shape

    @property
    def shape(self) -> TensorShape:
        """The dense shape as far as it is known."""
        return constant_value_as_shape(self._dense_shape)

    def get_shape(self) -> TensorShape:
        """The static shape of the dense tensor, as `shape`."""
        return self.shape

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        return self._values.graph

    def consumers(self) -> list[Operation]:
        """The operations that take one of its three tensors, each once."""
        taken = (self.indices, self.values, self.dense_shape)
        return list(dict.fromkeys(op for tensor in taken for op in tensor.consumers()))

    def eval(self, feed_dict: FeedDict | None = None, session: StepRunner | None = None) -> SparseTensorValue:
        """Runs a step that fetches the three parts; see `Tensor.eval`."""
        value: SparseTensorValue = Tensor.EVALUATE["eval"](self, feed_dict, session)
        return value

    def __str__(self) -> str:
        return f"SparseTensor(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"

    __repr__ = __str__


def sparse_shape(value: SparseTensor | SparseTensorValue) -> TensorShape:
    """The dense shape of a symbolic or fetched sparse tensor, as far as it is known."""
    if isinstance(value, SparseTensor):
        return value.shape
    return TensorShape([int(d) for d in np.asarray(value.dense_shape)])
