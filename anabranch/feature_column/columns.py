"""What columns have in common: names, features that are looked up and transformed once, ids with weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: features by name: tensors and sparse tensors
Features: TypeAlias = "Mapping[str, tf.Tensor | tf.SparseTensor]"
#: what `tf.io.parse_example` takes: how each feature is stored
ParseSpec: TypeAlias = dict[str, Any]


class IdsAndWeights(NamedTuple):
    """A sparse tensor of ids, [batch, n], and one of their weights, or None where all weigh 1."""

    id_tensor: tf.SparseTensor
    weight_tensor: tf.SparseTensor | None


class FeatureColumn:
    """A recipe for a tensor from features. Columns are values: equal where they say the same, and hashable.

    What makes tensors of columns asks for the names that begin with an underscore, which are those that a column of a
    program's own defines in TensorFlow; the columns here define the others.
    """

    @property
    def name(self) -> str:
        """The name, which names the variables of the column too."""
        raise NotImplementedError

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the features of the column are stored in `tf.train.Example` records."""
        raise NotImplementedError

    def transform_feature(self, transformed: Transformed) -> Any:
        """The column's tensor, sparse or dense, from the features; `Transformed.get` asks once for each column."""
        raise NotImplementedError

    @property
    def _parse_example_spec(self) -> ParseSpec:
        return self.parse_example_spec

    def _transform_feature(self, inputs: Transformed) -> Any:
        return self.transform_feature(inputs)


class DenseColumn(FeatureColumn):
    """A column of numbers."""

    @property
    def variable_shape(self) -> tf.TensorShape:
        """The shape for one example."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """The variable scope of the column below that of the model."""
        return _valid_scope(self.name)

    def get_dense_tensor(self, transformed: Transformed, trainable: bool = True) -> tf.Tensor:
        """The numbers, [batch] + variable_shape."""
        raise NotImplementedError

    @property
    def _variable_shape(self) -> tf.TensorShape:
        return self.variable_shape

    def _get_dense_tensor(
        self, inputs: Transformed, weight_collections: Sequence[str] | None = None, trainable: bool | None = None
    ) -> tf.Tensor:
        return self.get_dense_tensor(inputs, trainable is not False)


class CategoricalColumn(FeatureColumn):
    """A column of ids."""

    @property
    def num_buckets(self) -> int:
        """Ids lie in [0, num_buckets)."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """The variable scope of the column below that of the model."""
        return _valid_scope(self.name)

    def get_sparse_tensors(self, transformed: Transformed) -> IdsAndWeights:
        """The ids, [batch, n]."""
        return IdsAndWeights(transformed.get(self), None)

    def get_dense_ids(self, transformed: Transformed) -> tf.Tensor | None:
        """The ids without weights as a dense tensor, or None: then there are only `get_sparse_tensors`.

        How many elements a sparse tensor has is known only when the step runs, and what depends on that is not
        compiled. From dense features come dense ids, with which everything behind the ids is.

        Returns:
            int64, [batch, n], below 0 where there is no id.
        """
        return None


def _valid_scope(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\\/-]", "_", name)


class Transformed:
    """Features as columns make them, each made once.

    Args:
        features: by name; a vector [batch] counts as [batch, 1].
    """

    def __init__(self, features: Features) -> None:
        if not isinstance(features, Mapping):
            raise ValueError(f"features must be a dictionary of tensors by name, got {type(features).__name__}")
        self._features = features
        self._given: dict[str, tf.Tensor | tf.SparseTensor] = {}
        self._made: dict[str | FeatureColumn, Any] = {}
        self._dense_ids: dict[FeatureColumn, tf.Tensor | None] = {}

    def get(self, key: str | FeatureColumn) -> Any:
        """The tensor of a feature, of rank 2 at least, or what a column makes.

        Raises:
            ValueError: no feature has that name, or it is a scalar.
        """
        if key not in self._made:
            self._made[key] = self._matrix(key) if isinstance(key, str) else key._transform_feature(self)
        return self._made[key]

    def dense_ids(self, column: CategoricalColumn) -> tf.Tensor | None:
        """`column.get_dense_ids`, which is asked once."""
        if column not in self._dense_ids:
            self._dense_ids[column] = column.get_dense_ids(self)
        return self._dense_ids[column]

    def given(self, key: str) -> tf.Tensor | tf.SparseTensor:
        """The tensor of a feature, which may be a vector.

        Raises:
            ValueError: as `get`.
        """
        if key not in self._given:
            if key not in self._features:
                raise ValueError(f"Feature {key} is not in features dictionary, which has {sorted(self._features)}.")
            self._given[key] = as_tensor(self._features[key])
        feature = self._given[key]
        if feature.shape.ndims == 0:
            raise ValueError(f"Feature (key: {key}) cannot have rank 0. Given: {feature}")
        return feature

    def _matrix(self, key: str) -> tf.Tensor | tf.SparseTensor:
        feature = self.given(key)
        rank = feature.shape.ndims
        if rank is None:
            widened = tf.concat([tf.shape(feature)[:1], [1]], 0)
            shape = tf.cond(tf.equal(tf.rank(feature), 1), lambda: widened, lambda: tf.shape(feature))
            if isinstance(feature, tf.SparseTensor):
                return tf.sparse_reshape(feature, tf.cast(shape, tf.int64))
            return tf.reshape(feature, shape)
        if rank == 1:
            if isinstance(feature, tf.SparseTensor):
                return tf.sparse_reshape(feature, [-1, 1])
            return tf.expand_dims(feature, -1)
        return feature


def as_tensor(value: TensorLike) -> tf.Tensor | tf.SparseTensor:
    """A feature as a tensor, or as the sparse tensor that it is."""
    if isinstance(value, tf.SparseTensor | tf.SparseTensorValue):
        return tf.SparseTensor.from_value(value)
    result: tf.Tensor = tf.convert_to_tensor(value)
    return result


def as_sparse(value: tf.Tensor | tf.SparseTensor, left_out: float | None = None) -> tf.SparseTensor:
    """A sparse tensor of the elements of a dense one, without those for nothing: "" and -1, or `left_out`."""
    if isinstance(value, tf.SparseTensor):
        return value
    indices = tf.where(is_stored(value, left_out))
    return tf.SparseTensor(indices, tf.gather_nd(value, indices), tf.shape(value, out_type=tf.int64))


def is_stored(value: tf.Tensor, left_out: float | None = None) -> tf.Tensor:
    """Where a dense tensor has something: all but "" and -1, or `left_out`; bool, of its shape."""
    if value.dtype.base_dtype == tf.string:
        return tf.not_equal(value, "")
    return tf.not_equal(value, tf.cast(-1 if left_out is None else left_out, value.dtype))


def map_values(ids: tf.SparseTensor, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.SparseTensor:
    """A sparse tensor with other values at the same places."""
    return tf.SparseTensor(ids.indices, function(ids.values), ids.dense_shape)


def check_key(key: object) -> str:
    """A feature's name.

    Raises:
        ValueError: it is no string.
    """
    if not isinstance(key, str):
        raise ValueError(f"key must be a string (the name of a feature), got {type(key).__name__}: {key!r}")
    return key
