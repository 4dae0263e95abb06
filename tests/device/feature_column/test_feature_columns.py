"""`tf.feature_column` beside what genuine TensorFlow made of the same columns and features (recorded)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.feature_column_cases import DENSE, LINEAR, SPECS, features, result, spec

RECORDED = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "tensorflow" / "feature_columns.json").read_text(encoding="utf-8")
)
fc = tf.feature_column


@pytest.mark.parametrize("name", [*DENSE, *LINEAR])
def test_columns_give_what_tensorflow_gave(name: str) -> None:
    ours, theirs = result(tf, name), RECORDED[name]
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-5, atol=1e-6)
    assert ours["variables"] == theirs["variables"]
    assert ours["static"][1:] == theirs["static"][1:]  # TensorFlow reads some batch sizes off constants, we do not
    assert ours["static"][0] in {None, theirs["static"][0]}


@pytest.mark.parametrize("name", SPECS)
def test_records_are_parsed_as_tensorflow_parses_them(name: str) -> None:
    assert spec(tf, name) == RECORDED[name]["spec"]


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == {*DENSE, *LINEAR}


def test_what_a_spec_says_parses_records() -> None:
    age, word = fc.numeric_column("age"), fc.categorical_column_with_vocabulary_list("word", ["cat", "dog"])
    columns = [age, fc.indicator_column(word)]
    records = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "age": tf.train.Feature(float_list=tf.train.FloatList(value=[number])),
                    "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=words)),
                }
            )
        ).SerializeToString()
        for number, words in ((3.0, [b"dog", b"dog"]), (4.0, []))
    ]
    parsed = tf.parse_example(tf.constant(records), fc.make_parse_example_spec(columns))
    network_input = fc.input_layer(parsed, columns)
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        assert session.run(network_input).tolist() == [[3.0, 0.0, 2.0], [4.0, 0.0, 0.0]]


def test_variables_of_columns_are_handed_out_and_join_collections() -> None:
    embedding = fc.embedding_column(fc.categorical_column_with_identity("number", 4), 2)
    age = fc.numeric_column("age")
    held: dict[Any, Any] = {}
    fc.input_layer(features(tf), [embedding, age], weight_collections=["mine"], cols_to_vars=held)
    assert [v.op.name for v in held[embedding]] == ["input_layer/number_embedding/embedding_weights"]
    assert held[age] == []
    assert tf.get_collection("mine") == held[embedding]
    held = {}
    fc.linear_model(features(tf), [embedding], cols_to_vars=held)
    names = ["linear_model/number_embedding/weights", "linear_model/number_embedding/embedding_weights"]
    assert [v.op.name for v in held[embedding]] == names  # in this order, as warm starts of TensorFlow's time expect
    tf.reset_default_graph()
    held = {}
    fc.linear_model(features(tf), [age], cols_to_vars=held, trainable=False)
    assert [v.op.name for v in held["bias"]] == ["linear_model/bias_weights"]
    assert [v.op.name for v in held[age]] == ["linear_model/age/weights"]
    assert not set(held[age]) & set(tf.trainable_variables())


def test_a_model_of_columns_is_trained() -> None:
    random = np.random.RandomState(0)
    numbers, ids = random.uniform(-1, 1, 64).astype(np.float32), random.randint(0, 3, 64)
    labels = 2 * numbers + np.array([1.0, -1.0, 3.0])[ids]
    columns = [fc.numeric_column("x"), fc.categorical_column_with_identity("id", 3)]
    output = fc.linear_model({"x": tf.constant(numbers), "id": tf.constant(ids)}, columns)
    loss = tf.losses.mean_squared_error(labels[:, None], output)
    step = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        for _ in range(150):
            session.run(step)
        assert session.run(loss) < before / 100


def test_embeddings_start_from_a_checkpoint(tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("rows", initializer=rows)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    ids = fc.categorical_column_with_identity("id", 4)
    column = fc.embedding_column(ids, 2, ckpt_to_load_from=path, tensor_name_in_ckpt="rows")
    looked_up = fc.input_layer({"id": tf.constant([3, 1])}, [column])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(looked_up), rows[[3, 1]])


def test_an_id_out_of_range_is_an_error_of_the_step() -> None:
    output = fc.input_layer(
        {"id": tf.constant([1, 4])}, [fc.indicator_column(fc.categorical_column_with_identity("id", 4))]
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="feature id: id >= 4"):
        session.run(output)


def test_sequences() -> None:
    indices = [[0, 0], [0, 1], [2, 0]]
    given = {
        "number": tf.SparseTensor(indices, tf.constant([1.0, 2.0, 3.0]), [3, 2]),
        "word": tf.SparseTensor(indices, tf.constant(["b", "a", "b"]), [3, 2]),
    }
    word = fc.sequence_categorical_column_with_vocabulary_list("word", ["a", "b"])
    steps, lengths = tf.contrib.feature_column.sequence_input_layer(
        given, [fc.sequence_numeric_column("number"), fc.indicator_column(word)]
    )
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        values, counts = session.run([steps, lengths])
    assert counts.tolist() == [2, 0, 1]
    assert values.tolist() == [[[1, 0, 1], [2, 1, 0]], [[0, 0, 0], [0, 0, 0]], [[3, 0, 1], [0, 0, 0]]]


IDENTITY = fc.categorical_column_with_identity("number", 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.numeric_column("x", shape=0), "greater than 0"),
        (lambda: fc.numeric_column("x", dtype=tf.string), "convertible to float"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), [3, 1]), "sorted list"),
        (lambda: fc.bucketized_column(fc.numeric_column("x", shape=(2, 2)), [1]), "one-dimensional"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", ["a", "a"]), "Duplicate keys"),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], default_value=3, num_oov_buckets=2),
            "Can't specify both",
        ),
        (lambda: fc.categorical_column_with_vocabulary_file("x", "/no/such/file"), "does not exist"),
        (lambda: fc.categorical_column_with_identity("x", 3, default_value=3), "not in range"),
        (lambda: fc.crossed_column(["x"], 10), "length > 1"),
        (lambda: fc.crossed_column(["x", fc.categorical_column_with_hash_bucket("y", 3)], 10), "not supported"),
        (lambda: fc.embedding_column(IDENTITY, 0), "Invalid dimension"),
        (lambda: fc.embedding_column(IDENTITY, 2, ckpt_to_load_from="x"), "both"),
        (lambda: fc.input_layer(features(tf), []), "must not be empty"),
        (lambda: fc.input_layer(features(tf), [IDENTITY]), "must be a dense column"),
        (lambda: fc.input_layer(features(tf), [fc.numeric_column("no")]), "not in features"),
        (lambda: fc.input_layer(features(tf), [fc.numeric_column("age")] * 2), "Duplicate feature column name"),
        (
            lambda: fc.make_parse_example_spec([fc.numeric_column("x"), fc.numeric_column("x", shape=2)]),
            "different parse_spec",
        ),
    ],
)
def test_wrong_columns_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
