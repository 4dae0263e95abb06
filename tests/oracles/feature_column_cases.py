"""Feature columns and features, built with whichever module is handed in, and what they come to.

The oracle records what genuine TensorFlow makes of them, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "vocabulary.txt"


def features(tf: Any) -> dict[str, Any]:
    """Four examples."""
    words = [[0, 0], [0, 1], [2, 0], [3, 0], [3, 1]]
    return {
        "age": tf.constant([5.0, 18.0, 33.5, 80.0]),
        "pair": tf.constant(np.array([[1, -2], [3, 4], [50, 6], [7, 8]], np.int64)),
        "matrix": tf.constant(np.arange(16, dtype=np.float32).reshape(4, 2, 2)),
        "word": tf.SparseTensor(words, tf.constant(["cat", "dog", "cat", "emu", "dog"]), [4, 2]),
        "weight": tf.SparseTensor(words, tf.constant([0.5, 2.0, 1.0, -1.5, 3.0]), [4, 2]),
        "number": tf.SparseTensor(words, tf.constant(np.array([3, 1, 0, 2, 3], np.int64)), [4, 2]),
        "dense_word": tf.constant([["cat"], [""], ["emu"], ["unknown"]]),
        "dense_number": tf.constant(np.array([2, -1, 0, 1], np.int32)),
        "far": tf.constant(np.array([2, 9, 0, 44], np.int64)),
    }


def _one(**columns: Callable[[Any], Any]) -> dict[str, Callable[[Any], list[Any]]]:
    return {name: lambda fc, make=make: [make(fc)] for name, make in columns.items()}


def _many(fc: Any) -> list[Any]:
    word = fc.categorical_column_with_vocabulary_list("word", ["cat", "dog", "emu"])
    return [
        fc.numeric_column("pair", shape=2),
        fc.embedding_column(word, 3),
        fc.bucketized_column(fc.numeric_column("age"), [18, 30, 65]),
        fc.indicator_column(fc.categorical_column_with_identity("number", 4)),
    ]


def _shared(fc: Any) -> list[Any]:
    columns = [fc.categorical_column_with_identity(key, 4) for key in ("number", "dense_number")]
    return list(fc.shared_embedding_columns(columns, 2))


def _file(fc: Any, **given: Any) -> Any:
    return fc.categorical_column_with_vocabulary_file("word", str(VOCABULARY), **given)


def _int64(fc: Any) -> Any:
    """The dtype, as the module has it."""
    return fc.make_parse_example_spec([fc.categorical_column_with_identity("any", 2)])["any"].dtype


def _weighted(fc: Any) -> Any:
    return fc.weighted_categorical_column(fc.categorical_column_with_identity("number", 4), "weight")


#: dense columns, for `input_layer`
DENSE: dict[str, Callable[[Any], list[Any]]] = {
    **_one(
        numeric=lambda fc: fc.numeric_column("age"),
        normalized=lambda fc: fc.numeric_column("pair", shape=(2,), normalizer_fn=lambda x: x * 2),
        matrix=lambda fc: fc.numeric_column("matrix", shape=(2, 2)),
        bucketized=lambda fc: fc.bucketized_column(fc.numeric_column("age"), [18, 30, 65]),
        bucketized_pair=lambda fc: fc.bucketized_column(fc.numeric_column("pair", 2), [0.0, 5.0]),
        indicator=lambda fc: fc.indicator_column(fc.categorical_column_with_identity("number", 4)),
        indicator_weighted=lambda fc: fc.indicator_column(_weighted(fc)),
        indicator_oov=lambda fc: fc.indicator_column(
            fc.categorical_column_with_vocabulary_list("word", ["dog", "emu"], num_oov_buckets=3)
        ),
        indicator_default=lambda fc: fc.indicator_column(
            fc.categorical_column_with_identity("far", 4, default_value=1)
        ),
        indicator_dense=lambda fc: fc.indicator_column(
            fc.categorical_column_with_vocabulary_list("dense_word", ["cat", "emu"])
        ),
        indicator_integers=lambda fc: fc.indicator_column(
            fc.categorical_column_with_vocabulary_list("number", [3, 1], default_value=0)
        ),
        indicator_file=lambda fc: fc.indicator_column(_file(fc, num_oov_buckets=1)),
        indicator_file_part=lambda fc: fc.indicator_column(_file(fc, vocabulary_size=1)),
        indicator_hashed=lambda fc: fc.indicator_column(fc.categorical_column_with_hash_bucket("word", 7)),
        indicator_hashed_integers=lambda fc: fc.indicator_column(
            fc.categorical_column_with_hash_bucket("number", 5, dtype=_int64(fc))
        ),
        indicator_crossed=lambda fc: fc.indicator_column(fc.crossed_column(["word", "dense_word"], 11)),
        embedding=lambda fc: fc.embedding_column(fc.categorical_column_with_identity("number", 4), 3),
        embedding_sum=lambda fc: fc.embedding_column(_weighted(fc), 2, combiner="sum"),
        embedding_sqrtn=lambda fc: fc.embedding_column(_weighted(fc), 2, combiner="sqrtn"),
        embedding_norm=lambda fc: fc.embedding_column(
            fc.categorical_column_with_hash_bucket("word", 5), 2, max_norm=1.0
        ),
    ),
    "shared": _shared,
    "many": _many,
}

#: columns for `linear_model`
LINEAR: dict[str, Callable[[Any], list[Any]]] = {
    **_one(
        linear_numeric=lambda fc: fc.numeric_column("pair", shape=2),
        linear_bucketized=lambda fc: fc.bucketized_column(fc.numeric_column("pair", 2), [0.0, 5.0]),
        linear_identity=lambda fc: fc.categorical_column_with_identity("number", 4),
        linear_weighted=_weighted,
        linear_crossed=lambda fc: fc.crossed_column(
            [fc.bucketized_column(fc.numeric_column("age"), [18, 30]), "word", "dense_word"], 13
        ),
        linear_crossed_keyed=lambda fc: fc.crossed_column(["word", "dense_word"], 9, hash_key=77),
        linear_crossed_twice=lambda fc: fc.crossed_column(
            [fc.crossed_column(["word", "dense_word"], 9), fc.categorical_column_with_identity("number", 4)], 17
        ),
    ),
    "linear_many": lambda fc: [
        fc.numeric_column("age"),
        fc.categorical_column_with_vocabulary_list("word", ["cat", "dog", "emu"]),
        fc.categorical_column_with_hash_bucket("dense_word", 6),
    ],
}

#: columns for `make_parse_example_spec`
SPECS: dict[str, Callable[[Any], list[Any]]] = {**DENSE, **LINEAR}


def values_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What a variable of that shape is set to."""
    return np.sin(np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32)).reshape(shape)


def result(tf: Any, name: str) -> dict[str, Any]:
    """The output of one case, and its variables' names and shapes."""
    with tf.Graph().as_default():
        if name in DENSE:
            output = tf.feature_column.input_layer(features(tf), DENSE[name](tf.feature_column))
        else:
            output = tf.feature_column.linear_model(
                features(tf), LINEAR[name](tf.feature_column), units=2, sparse_combiner="mean"
            )
        variables = tf.global_variables()
        shapes = [tuple(variable.shape.as_list()) for variable in variables]
        set_all = [variable.assign(values_of(shape)) for variable, shape in zip(variables, shapes, strict=True)]
        with tf.Session() as session:
            session.run([tf.tables_initializer(), *set_all])
            value = session.run(output)
        named = {variable.op.name: list(shape) for variable, shape in zip(variables, shapes, strict=True)}
        return {"static": output.shape.as_list(), "value": np.asarray(value).tolist(), "variables": named}


def spec(tf: Any, name: str) -> dict[str, str]:
    """How one case's features are parsed, in words."""
    stored = tf.feature_column.make_parse_example_spec(SPECS[name](tf.feature_column))
    return {
        key: f"{type(how).__name__} {tf.as_dtype(how.dtype).name} {list(getattr(how, 'shape', ()))}"
        for key, how in stored.items()
    }
