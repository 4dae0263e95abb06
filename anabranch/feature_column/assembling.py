"""From features and columns to a network's input, to the sum of a linear model, and to how records are parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import TypeAlias

import anabranch as tf
from anabranch.feature_column.columns import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    Features,
    ParseSpec,
    Transformed,
)
from anabranch.feature_column.embedding import combined_rows

#: the variables of each column, which functions fill in
VariablesOfColumns: TypeAlias = "MutableMapping[FeatureColumn | str, list[tf.Variable]]"
#: collections that variables join
Collections: TypeAlias = "Iterable[str] | None"


def _in_order(feature_columns: Iterable[FeatureColumn] | FeatureColumn) -> list[FeatureColumn]:
    """The columns by name.

    Raises:
        ValueError: there is none, one is no column, or two have one name.
    """
    if isinstance(feature_columns, dict):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    columns = [feature_columns] if isinstance(feature_columns, FeatureColumn) else list(feature_columns)
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    names = set()
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"Items of feature_columns must be feature columns, got {type(column).__name__}: {column!r}"
            )
        if column.name in names:
            raise ValueError(f"Duplicate feature column name found for columns: {column.name}")
        names.add(column.name)
    return sorted(columns, key=lambda column: column.name)


class _CollectedVariables:
    """The variables that are made while it is active: they join collections, and are handed out.

    A variable that exists already (a model that is built again with `reuse`) counts as well.
    """

    def __init__(self, weight_collections: Collections) -> None:
        self._collections = [name for name in weight_collections or () if name != tf.GraphKeys.GLOBAL_VARIABLES]
        self.variables: list[tf.Variable] = []

    def getter(self, getter: Callable[..., tf.Variable], *args: object, **kwargs: object) -> tf.Variable:
        """What `tf.variable_scope` calls for each variable."""
        variable: tf.Variable = getter(*args, **kwargs)
        for part in [variable] if isinstance(variable, tf.Variable) else list(variable):
            self.variables.append(part)
            for name in self._collections:
                if all(part is not other for other in tf.get_collection(name)):
                    tf.add_to_collection(name, part)
        return variable


def _batch_sizes_agree(tensors: Sequence[tf.Tensor], columns: Sequence[FeatureColumn]) -> None:
    expected = None
    for tensor, column in zip(tensors, columns, strict=True):
        size = tensor.shape.dims[0].value if tensor.shape.dims else None
        if size is None:
            continue
        if expected is not None and size != expected[0]:
            raise ValueError(
                f"Batch size (first dimension) of each feature must be same. Batch size of columns "
                f"({expected[1]}, {column.name}): ({expected[0]}, {size})"
            )
        expected = expected or (size, column.name)


def input_layer(
    features: Features,
    feature_columns: Iterable[FeatureColumn] | FeatureColumn,
    weight_collections: Collections = None,
    trainable: bool = True,
    cols_to_vars: VariablesOfColumns | None = None,
    cols_to_output_tensors: MutableMapping[FeatureColumn, tf.Tensor] | None = None,
) -> tf.Tensor:
    """The dense columns side by side, in the order of their names: the first layer of a network.

    Args:
        features: tensors and sparse tensors by name, [batch] or [batch, ...].
        feature_columns: dense ones; a categorical column goes into an `embedding_column` or an `indicator_column`.
        weight_collections: collections that the variables join, beside that of all variables.
        trainable: whether the variables are.
        cols_to_vars: gets the variables of each column.
        cols_to_output_tensors: gets the part of each column, [batch, elements].

    Returns:
        float32, [batch, sum of the columns' elements].

    Raises:
        ValueError: a column is not dense, a feature is missing, two columns have one name, batch sizes differ.
    """
    columns = _in_order(feature_columns)
    dense = [column for column in columns if isinstance(column, DenseColumn)]
    if len(dense) < len(columns):
        other = next(column for column in columns if not isinstance(column, DenseColumn))
        raise ValueError(
            "Items of feature_columns must be a dense column. You can wrap a categorical column with an "
            f"embedding_column or indicator_column. Given: {other.name} ({type(other).__name__})"
        )
    transformed = Transformed(features)
    parts = []
    with tf.variable_scope(None, default_name="input_layer", values=list(features.values())):
        for column in dense:
            made = _CollectedVariables(weight_collections)
            with tf.variable_scope(None, default_name=column.scope_name, custom_getter=made.getter):
                tensor = column._get_dense_tensor(transformed, trainable=trainable)
                elements = column._variable_shape.num_elements()
                part = tf.reshape(tensor, [tf.shape(tensor)[0], elements])
                part.set_shape([tensor.shape.dims[0] if tensor.shape.dims else None, elements])
            parts.append(part)
            if cols_to_vars is not None:
                cols_to_vars[column] = made.variables
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = part
        _batch_sizes_agree(parts, dense)
        return tf.concat(parts, 1)


def linear_model(
    features: Features,
    feature_columns: Iterable[FeatureColumn] | FeatureColumn,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Collections = None,
    trainable: bool = True,
    cols_to_vars: VariablesOfColumns | None = None,
) -> tf.Tensor:
    """A weight for each element of each column, times the elements, summed, plus a bias.

    Args:
        features: as for `input_layer`.
        feature_columns: dense and categorical ones, but neither embeddings nor indicators: their ids have weights.
        units: the number of outputs.
        sparse_combiner: how the weights of several ids of an example are combined: "sum", "mean" or "sqrtn".
        weight_collections, trainable: as for `input_layer`.
        cols_to_vars: gets the variables of each column, and the bias as "bias".

    Returns:
        float32, [batch, units].

    Raises:
        ValueError: a column is of another kind, a feature is missing, two columns have one name, batch sizes differ.
    """
    columns = _in_order(feature_columns)
    for column in columns:
        if not isinstance(column, DenseColumn | CategoricalColumn):
            raise ValueError(f"Items of feature_columns must be either dense or categorical, got {column.name}")
    transformed = Transformed(features)
    sums = []
    with tf.variable_scope(None, default_name="linear_model", values=list(features.values())):
        for column in columns:
            assert isinstance(column, DenseColumn | CategoricalColumn)
            made = _CollectedVariables(weight_collections)
            with tf.variable_scope(None, default_name=column.scope_name, custom_getter=made.getter):
                if isinstance(column, CategoricalColumn):
                    sums.append(_sum_of_ids(column, transformed, units, sparse_combiner, trainable))
                else:
                    sums.append(_sum_of_numbers(column, transformed, units, trainable))
            if cols_to_vars is not None:
                cols_to_vars[column] = made.variables
        _batch_sizes_agree(sums, columns)
        made = _CollectedVariables(weight_collections)
        with tf.variable_scope(tf.get_variable_scope(), custom_getter=made.getter):
            bias = tf.get_variable("bias_weights", (units,), initializer=tf.zeros_initializer(), trainable=trainable)
        if cols_to_vars is not None:
            cols_to_vars["bias"] = made.variables
        return tf.nn.bias_add(tf.add_n(sums, name="weighted_sum_no_bias"), bias, name="weighted_sum")


def _sum_of_numbers(column: DenseColumn, transformed: Transformed, units: int, trainable: bool) -> tf.Tensor:
    elements = column._variable_shape.num_elements()
    assert elements is not None
    # before those of an embedding: `cols_to_vars` has them in this order
    weights = tf.get_variable("weights", (elements, units), initializer=tf.zeros_initializer(), trainable=trainable)
    tensor = column._get_dense_tensor(transformed, trainable=trainable)
    return tf.matmul(tf.reshape(tensor, [-1, elements]), weights, name="weighted_sum")


def _sum_of_ids(
    column: CategoricalColumn, transformed: Transformed, units: int, combiner: str, trainable: bool
) -> tf.Tensor:
    dense = transformed.dense_ids(column)
    ids, factors = (dense, None) if dense is not None else column.get_sparse_tensors(transformed)
    weights = tf.get_variable(
        "weights", (column.num_buckets, units), initializer=tf.zeros_initializer(), trainable=trainable
    )
    # an example's ids may be spread over several dimensions
    if isinstance(ids, tf.Tensor):
        matrix = ids if ids.shape.ndims == 2 else tf.reshape(ids, [tf.shape(ids)[0], -1])
        return combined_rows(weights, matrix, combiner, name="weighted_sum")
    flat = ids
    if ids.dense_shape.shape.as_list() != [2]:
        flat = tf.sparse_reshape(ids, [ids.dense_shape[0], -1])
        factors = None if factors is None else tf.sparse_reshape(factors, [ids.dense_shape[0], -1])
    result: tf.Tensor = tf.nn.safe_embedding_lookup_sparse(
        weights, flat, sparse_weights=factors, combiner=combiner, name="weighted_sum"
    )
    return result


def make_parse_example_spec(feature_columns: Iterable[FeatureColumn]) -> ParseSpec:
    """How `tf.io.parse_example` reads what columns need from records.

    Args:
        feature_columns: any.

    Returns:
        By feature: a `FixedLenFeature` or a `VarLenFeature`.

    Raises:
        ValueError: something is no column, or two want one feature in different ways.
    """
    spec: ParseSpec = {}
    for key, stored in _specs(feature_columns):
        if key in spec and spec[key] != stored:
            raise ValueError(
                f"feature_columns contain different parse_spec for key {key}. Given {spec[key]} and {stored}"
            )
        spec[key] = stored
    return spec


def _specs(feature_columns: Iterable[FeatureColumn]) -> Iterator[tuple[str, object]]:
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(f"All feature_columns must be feature columns, got {type(column).__name__}: {column!r}")
        yield from column._parse_example_spec.items()
