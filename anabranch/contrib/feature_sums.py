"""`tf.contrib.layers`: linear models of columns, columns over time, and how their features are parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike
from anabranch.contrib.feature_columns import THE_FEATURE, Column, create_feature_spec_for_parsing, real_valued_column

#: what a column is called among the variables of a linear model beside the columns
_BIAS = "bias"


def weighted_sum_from_feature_columns(
    columns_to_tensors: Mapping[str, TensorLike],
    feature_columns: Iterable[PassedOn],
    num_outputs: int,
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
) -> tuple[Any, dict[Any, list[Any]], Any]:
    """A linear model: the sum of the columns, each times weights that are zeros at first, and a bias.

    Args:
        columns_to_tensors: features by name.
        feature_columns: numbers, and categories, of which those of an example are summed.
        num_outputs: int: how many sums.
        weight_collections: further collections of the variables.
        trainable: whether they are trained.
        scope: of the variables.

    Returns:
        (float [batch_size, num_outputs], column -> list of variables, the bias [num_outputs]).

    Raises:
        ValueError: two columns are alike, or `feature_columns` is a dictionary.

    Example:
        >>> columns = [tf.contrib.layers.real_valued_column("x")]
        >>> sums, variables, bias = tf.contrib.layers.weighted_sum_from_feature_columns(
        ...     {"x": tf.ones([3, 1])}, columns, 2)
        >>> sums.shape
        TensorShape([Dimension(3), Dimension(2)])
    """
    return _weighted(
        columns_to_tensors,
        feature_columns,
        num_outputs,
        weight_collections,
        trainable,
        (scope, "weighted_sum_from_feature_columns"),
    )


def joint_weighted_sum_from_feature_columns(
    columns_to_tensors: Mapping[str, TensorLike],
    feature_columns: Iterable[PassedOn],
    num_outputs: int,
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
) -> tuple[Any, list[Any], Any]:
    """The same of categories alone, whose weights are returned together.

    Args:
        columns_to_tensors, feature_columns, num_outputs, weight_collections, trainable, scope: as
            `weighted_sum_from_feature_columns` has them.

    Returns:
        (float [batch_size, num_outputs], list of the columns' variables in the order of their names, the bias).

    Raises:
        NotImplementedError: a column is of numbers.
    """
    columns = list(feature_columns)
    if any(hasattr(column, "normalizer_fn") for column in columns):
        raise NotImplementedError(
            "Real-valued columns are not supported. Use weighted_sum_from_feature_columns instead, or bucketize them."
        )
    sums, variables, bias = _weighted(
        columns_to_tensors,
        columns,
        num_outputs,
        weight_collections,
        trainable,
        (scope, "joint_weighted_sum_from_feature_columns"),
    )
    ordered = sorted(variables, key=lambda column: column.name)
    return sums, [variable for column in ordered for variable in variables[column]], bias


def _weighted(
    features: Mapping[str, TensorLike],
    feature_columns: Iterable[PassedOn],
    num_outputs: int,
    collections: Sequence[str] | None,
    trainable: bool,
    scope: tuple[ScopeLike | None, str],
) -> tuple[Any, dict[Any, list[Any]], Any]:
    columns = check_feature_columns(feature_columns)
    for column in columns:
        if hasattr(column, "combiner") and hasattr(column, "categorical_column"):
            raise ValueError(
                f"Error creating weighted sum for column: {column.name}. Its values are vectors: give the column of "
                "categories, or use input_from_feature_columns."
            )
    variables: dict[Any, Any] = {}
    with tf.variable_scope(*scope):
        sums = tf.feature_column.linear_model(
            dict(features),
            columns,
            units=num_outputs,
            weight_collections=list(collections or ()),
            trainable=trainable,
            cols_to_vars=variables,
        )
    (bias,) = variables.pop(_BIAS)
    return sums, variables, bias


def check_feature_columns(feature_columns: Iterable[PassedOn]) -> list[Column]:
    """The columns in a list, of which no two may have one name.

    Raises:
        ValueError: two have, or they are in a dictionary.
    """
    if isinstance(feature_columns, Mapping):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    columns = list(feature_columns)
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Duplicate feature column key found for column: {name}. Two are alike; leave out one.")
    return columns


def shared_embedding_columns(
    sparse_id_columns: Sequence[PassedOn],
    dimension: int,
    combiner: str = "mean",
    initializer: PassedOn = None,
    shared_embedding_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[Column]:
    """Vectors for the values of several columns from one table; see `tf.feature_column.shared_embedding_columns`."""
    columns: list[Column] = tf.feature_column.shared_embedding_columns(
        list(sparse_id_columns),
        dimension,
        combiner,
        initializer,
        shared_embedding_name,
        ckpt_to_load_from,
        tensor_name_in_ckpt,
        max_norm,
        trainable,
    )
    return columns


# ---------------------------------------------------------------------- over time
def sequence_input_from_feature_columns(
    columns_to_tensors: Mapping[str, TensorLike],
    feature_columns: Iterable[PassedOn],
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
) -> tf.Tensor:
    """All columns side by side, for each step of sequences.

    Args:
        columns_to_tensors: features by name: dense [batch, time] or [batch, time, size], or sparse [batch, time] or
            [batch, time, values of a step]. All have the same time.
        feature_columns: as `tf.feature_column.input_layer` takes them.
        weight_collections: further collections of the variables.
        trainable: whether they are trained.
        scope: of the variables.

    Returns:
        float [batch, time, size of all columns].

    Raises:
        ValueError: there are no features, two columns are alike, or a feature has not two or three dimensions.
    """
    columns = check_feature_columns(feature_columns)
    needed = create_feature_spec_for_parsing(columns)
    features = {name: columns_to_tensors[name] for name in columns_to_tensors if name in needed}
    if not features:
        raise ValueError("there are no features for these columns")
    with tf.variable_scope(scope, "sequence_input_from_feature_columns"):
        sizes = [_batch_and_time(features[name]) for name in sorted(features)]
        with tf.control_dependencies([tf.assert_equal(size, sizes[0]) for size in sizes[1:]]):
            first = tf.identity(sizes[0])
        steps = {name: _single_steps(name, value, first) for name, value in features.items()}
        flat = tf.feature_column.input_layer(steps, columns, list(weight_collections or ()), trainable)
        width = int(flat.shape[1])
        over_time: tf.Tensor = tf.reshape(flat, tf.concat([first, [width]], 0))
        known = [v.shape.as_list()[:2] for v in features.values() if not isinstance(v, tf.SparseTensor)]
        over_time.set_shape([*(known[0] if known else (None, None)), width])
        return over_time


def _batch_and_time(value: TensorLike) -> Any:
    if isinstance(value, tf.SparseTensor):
        return tf.cast(value.dense_shape[:2], tf.int32)
    return tf.shape(value)[:2]


def _single_steps(name: str, value: TensorLike, size: tf.Tensor) -> Any:
    """A feature over time as one of batch times time examples."""
    rank = value.shape.ndims
    if rank not in (2, 3):
        raise ValueError(f"Error while processing feature {name}: a sequence has 2 or 3 dimensions, not {rank}")
    if isinstance(value, tf.SparseTensor):
        last = [1] if rank == 2 else value.dense_shape[2:]
        examples = tf.cast(tf.reduce_prod(size), tf.int64)
        return tf.sparse.reshape(value, tf.concat([[examples], tf.cast(last, tf.int64)], 0))
    return tf.reshape(value, [-1, 1 if rank == 2 else int(value.shape[2])])


# ---------------------------------------------------------------------- parsing
def parse_feature_columns_from_examples(
    serialized: TensorLike,
    feature_columns: Iterable[PassedOn],
    name: str | None = None,
    example_names: TensorLike | None = None,
) -> dict[str, Any]:
    """The features of columns, parsed from `tf.train.Example`s.

    Args:
        serialized: string [batch_size].
        feature_columns: the columns.
        name: of the operation.
        example_names: string [batch_size], told in errors.

    Returns:
        features by name, as `input_from_feature_columns` takes them.
    """
    spec = create_feature_spec_for_parsing(check_feature_columns(feature_columns))
    features: dict[str, Any] = tf.parse_example(serialized, spec, name, example_names)
    return features


def parse_feature_columns_from_sequence_examples(
    serialized: TensorLike,
    context_feature_columns: Iterable[PassedOn] | None,
    sequence_feature_columns: Iterable[PassedOn] | None,
    name: str | None = None,
    example_name: TensorLike | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The features of columns, parsed from one `tf.train.SequenceExample`.

    Args:
        serialized: string scalar.
        context_feature_columns: columns of the whole sequence.
        sequence_feature_columns: columns of its steps: numbers are dense [time, size], others sparse.
        name: of the operation.
        example_name: string scalar, told in errors.

    Returns:
        (features of the whole by name, features of the steps by name).
    """
    context = create_feature_spec_for_parsing(check_feature_columns(context_feature_columns or ()))
    steps = create_feature_spec_for_parsing(check_feature_columns(sequence_feature_columns or ()))
    over_time = {
        key: tf.FixedLenSequenceFeature(how.shape, how.dtype) if isinstance(how, tf.FixedLenFeature) else how
        for key, how in steps.items()
    }
    parsed: tuple[dict[str, Any], dict[str, Any]] = tf.parse_single_sequence_example(
        tf.reshape(serialized, []), context, over_time, example_name, name
    )
    return parsed


def make_place_holder_tensors_for_base_features(feature_columns: Iterable[PassedOn]) -> dict[str, Any]:
    """A placeholder for each feature that columns need, of any batch size, dense or sparse as it is parsed."""
    spec = create_feature_spec_for_parsing(feature_columns)
    return {
        key: tf.placeholder(how.dtype, [None, *how.shape], f"Placeholder_{key}")
        if isinstance(how, tf.FixedLenFeature)
        else tf.sparse_placeholder(how.dtype, name=f"Placeholder_{key}")
        for key, how in spec.items()
    }


def infer_real_valued_columns(features: TensorLike) -> list[Column]:
    """Columns of numbers for features.

    Args:
        features: a dense numeric tensor [batch, ...], or several by name.

    Raises:
        ValueError: one is sparse, or of no numbers.
    """
    named = features if isinstance(features, Mapping) else {THE_FEATURE: features}
    return [_real_valued(name, value) for name, value in named.items()]


def _real_valued(name: str, value: TensorLike) -> Column:
    is_sparse = isinstance(value, tf.SparseTensor)
    if is_sparse or not (value.dtype.is_integer or value.dtype.is_floating):
        kind = "SparseTensor is" if is_sparse else "Non integer or non floating types are"
        raise ValueError(f"{kind} not supported for auto detection. Define a column for {name}: {value}")
    return real_valued_column(name, value.shape[1:].num_elements() or 1, dtype=value.dtype)
