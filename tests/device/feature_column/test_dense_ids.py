"""Dense features make dense ids, with which columns give, and learn, what they do with sparse ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step
from anabranch.xla.islands import HostCall

fc = tf.feature_column

WORDS = {
    1: [["cat"], [""], ["emu"], ["unknown"], ["cat"]],
    3: [["cat", "", "emu"], ["", "", ""], ["dog", "dog", "cat"], ["unknown", "other", ""], ["", "emu", "emu"]],
}
NUMBERS = {
    1: [[2], [-1], [0], [4], [2]],
    3: [[2, -1, 3], [-1, -1, -1], [1, 1, 2], [4, 4, -1], [-1, 3, 3]],
}
VOCABULARY = ["dog", "cat", "emu"]


def _list(**given: Any) -> Any:
    return fc.categorical_column_with_vocabulary_list("f", VOCABULARY, **given)


def _file(**given: Any) -> Any:
    path = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "vocabulary.txt"
    return fc.categorical_column_with_vocabulary_file("f", str(path), **given)


#: a categorical column, and the features that it takes
COLUMNS: dict[str, tuple[Callable[[], Any], dict[int, list[list[Any]]]]] = {
    "hashed": (lambda: fc.categorical_column_with_hash_bucket("f", 5), WORDS),
    "hashed numbers": (lambda: fc.categorical_column_with_hash_bucket("f", 5, tf.int64), NUMBERS),
    "identity": (lambda: fc.categorical_column_with_identity("f", 5), NUMBERS),
    "identity with default": (lambda: fc.categorical_column_with_identity("f", 3, default_value=1), NUMBERS),
    "list": (_list, WORDS),
    "list with default": (lambda: _list(default_value=2), WORDS),
    "list with buckets": (lambda: _list(num_oov_buckets=2), WORDS),
    "list of numbers": (lambda: fc.categorical_column_with_vocabulary_list("f", [3, 1, 2]), NUMBERS),
    "file": (_file, WORDS),
    "file with buckets": (lambda: _file(num_oov_buckets=3), WORDS),
}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
}


def _feature(values: list[list[Any]], sparse: bool) -> Any:
    array = np.array(values, object if isinstance(values[0][0], str) else np.int64)
    if not sparse:
        return tf.constant(array)
    places = np.argwhere(array != ("" if array.dtype == object else -1))
    return tf.SparseTensor(places, tf.constant(array[tuple(places.T)]), array.shape)


def _output(column: Any, values: list[list[Any]], sparse: bool, kind: str, combiner: str, max_norm: Any) -> Any:
    features = {"f": _feature(values, sparse)}
    if kind == "linear":
        return fc.linear_model(features, [column], units=2, sparse_combiner=combiner)
    if kind == "indicator":
        return fc.input_layer(features, [fc.indicator_column(column)])
    return fc.input_layer(features, [fc.embedding_column(column, 4, combiner=combiner, max_norm=max_norm)])


def trained(
    column: str,
    sparse: bool,
    *,
    kind: str = "embedding",
    values: list[list[Any]] | None = None,
    n: int = 3,
    combiner: str = "mean",
    optimizer: str = "adagrad",
    partitions: int = 1,
    max_norm: float | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The columns' output, and all variables by name after two steps of training."""
    make, features = COLUMNS[column]
    with tf.Graph().as_default(), tf.Session() as session:
        partitioner = tf.fixed_size_partitioner(partitions) if partitions > 1 else None
        with tf.variable_scope("model", partitioner=partitioner):
            output = _output(make(), values or features[n], sparse, kind, combiner, max_norm)
        initial = np.random.default_rng(3)
        wanted = [v.assign(initial.normal(size=v.shape.as_list())) for v in tf.trainable_variables()]
        step = tf.no_op()
        if kind != "indicator":
            loss = tf.reduce_sum(tf.square(output - np.linspace(-1, 1, output.shape.as_list()[1])))
            step = OPTIMIZERS[optimizer]().minimize(loss)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        session.run(wanted)
        before = session.run(output)
        for _ in range(2):
            session.run(step)
        return before, {v.name: session.run(v) for v in tf.global_variables()}


def check_same(column: str, **options: Any) -> Any:
    dense, dense_variables = trained(column, False, **options)
    sparse, sparse_variables = trained(column, True, **options)
    np.testing.assert_allclose(dense, sparse, rtol=1e-5, atol=1e-6)
    assert dense_variables.keys() == sparse_variables.keys()
    for name, value in dense_variables.items():
        np.testing.assert_allclose(value, sparse_variables[name], rtol=1e-5, atol=1e-6, err_msg=name)
    return dense


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", ["linear", "embedding", "indicator"])
@pytest.mark.parametrize("column", COLUMNS)
def test_columns(column: str, kind: str, n: int) -> None:
    result = check_same(column, kind=kind, n=n)
    if kind != "linear":
        assert not result[1].any()  # an example without ids


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("combiner", ["mean", "sqrtn", "sum"])
@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_combiners(kind: str, combiner: str, n: int) -> None:
    check_same("list", kind=kind, combiner=combiner, n=n)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_optimizers_change_the_same_rows(kind: str, optimizer: str) -> None:
    check_same("list", kind=kind, optimizer=optimizer)
    # the first row is in no example: an example without ids must do to it what it does with sparse ones
    check_same("identity", kind=kind, optimizer=optimizer, values=[[3, -1], [4, 3], [-1, 4]])
    check_same("identity", kind=kind, optimizer=optimizer, values=[[-1, -1], [3, 4]])
    check_same("identity", kind=kind, optimizer=optimizer, values=[[-1], [-1]])


@pytest.mark.parametrize("combiner", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_partitioned_variables(kind: str, combiner: str) -> None:
    check_same("identity", kind=kind, combiner=combiner, partitions=2)


def test_norms() -> None:
    check_same("list", max_norm=0.5)


def test_shared_embeddings() -> None:
    def output(sparse: bool) -> Any:
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(1)
            both = [fc.categorical_column_with_identity(key, 5) for key in ("a", "b")]
            features = {"a": _feature(NUMBERS[3], sparse), "b": _feature(NUMBERS[1], sparse)}
            result = fc.input_layer(features, fc.shared_embedding_columns(both, 2))
            session.run(tf.global_variables_initializer())
            (table,) = tf.trainable_variables()
            session.run(table.assign(np.arange(10.0).reshape(5, 2)))
            return session.run(result)

    np.testing.assert_allclose(output(sparse=False), output(sparse=True), rtol=1e-6)


def test_intervals_of_numbers() -> None:
    column = fc.bucketized_column(fc.numeric_column("f", 2), [0.0, 2.0])
    with tf.Graph().as_default(), tf.Session() as session:
        output = fc.linear_model({"f": tf.constant([[-1.0, 1.0], [3.0, 3.0]])}, [column])
        weights = tf.trainable_variables()[0]
        session.run(tf.global_variables_initializer())
        session.run(weights.assign([[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]]))
        assert session.run(output).tolist() == [[1.0 + 16.0], [4.0 + 32.0]]


@pytest.mark.parametrize("kind", ["linear", "embedding", "indicator"])
@pytest.mark.parametrize("number", [-2, 5])
def test_ids_out_of_range_are_errors_of_the_step(kind: str, number: int) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature f: id"):
        trained("identity", False, kind=kind, values=[[1, -1], [number, 0]])


def test_a_feature_of_unknown_rank() -> None:
    column = fc.embedding_column(fc.categorical_column_with_identity("f", 5), 2, combiner="sum")
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.int64)
        output = fc.input_layer({"f": given}, [column])
        session.run(tf.global_variables_initializer())
        session.run(tf.trainable_variables()[0].assign(np.arange(10.0).reshape(5, 2)))
        assert session.run(output, {given: [[1, 2], [-1, -1]]}).tolist() == [[6.0, 8.0], [0.0, 0.0]]
        assert session.run(output, {given: [3, -1]}).tolist() == [[6.0, 7.0], [0.0, 0.0]]


@pytest.mark.parametrize("shape", [(None,), (None, 1), (None, 3)])
def test_only_hashes_and_comparisons_of_strings_are_not_compiled(shape: tuple[int | None, ...]) -> None:
    with tf.Graph().as_default():
        features = {key: tf.placeholder(tf.string, shape) for key in "abc"}
        columns = [fc.categorical_column_with_hash_bucket(key, 100) for key in features]
        wide = fc.linear_model(features, columns)
        deep = tf.layers.dense(fc.input_layer(features, [fc.embedding_column(c, 4) for c in columns]), 1)
        loss = tf.losses.mean_squared_error(tf.ones_like(wide), wide + deep)
        variables = tf.trainable_variables()
        steps = [
            tf.train.FtrlOptimizer(0.1).minimize(loss, var_list=[v for v in variables if "linear" in v.name]),
            tf.train.AdagradOptimizer(0.1).minimize(loss, var_list=[v for v in variables if "linear" not in v.name]),
        ]
        plan = plan_step([loss], steps, list(features.values()))
    calls = [item.operation.type for item in plan.items if isinstance(item, HostCall)]
    assert sorted(calls) == ["NotEqual"] * 3 + ["StringToHashBucketFast"] * 3
