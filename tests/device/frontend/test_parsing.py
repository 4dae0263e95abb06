"""Records in the graph: examples, comma-separated values, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf


def example(**features: Any) -> bytes:
    found = {}
    for name, values in features.items():
        if isinstance(values[0], bytes):
            found[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif isinstance(values[0], int):
            found[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        else:
            found[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    message: bytes = tf.train.Example(features=tf.train.Features(feature=found)).SerializeToString()
    return message


RECORDS = [example(x=[1.0, 2.0], label=[3], words=[b"a", b"b"]), example(x=[4.0, 5.0], words=[b"c"])]
FEATURES = {
    "x": tf.FixedLenFeature([2], tf.float32),
    "label": tf.FixedLenFeature([], tf.int64, default_value=-1),
    "words": tf.VarLenFeature(tf.string),
}


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_a_batch_of_examples() -> None:
    parsed = tf.parse_example(tf.constant(RECORDS), FEATURES)
    assert parsed["x"].shape.as_list() == [2, 2]
    got = run(parsed)
    assert got["x"].tolist() == [[1, 2], [4, 5]]
    assert got["label"].tolist() == [3, -1]
    assert got["words"].indices.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert got["words"].values.tolist() == [b"a", b"b", b"c"]
    assert got["words"].dense_shape.tolist() == [2, 2]


def test_a_single_example_feeds_an_island() -> None:
    record = tf.placeholder(tf.string, [])
    parsed = tf.parse_single_example(record, FEATURES)
    got = run([tf.reduce_sum(parsed["x"]), parsed["words"]], {record: RECORDS[1]})
    assert got[0] == 9
    assert got[1].indices.tolist() == [[0]]
    assert got[1].dense_shape.tolist() == [1]


def test_any_text_may_name_a_feature() -> None:
    key = "image/class:label (of 10)"
    parsed = tf.parse_example([example(**{key: [3]}), b""], {key: tf.FixedLenFeature([], tf.int64, default_value=-1)})
    np.testing.assert_array_equal(run(parsed[key]), [3, -1])


def test_sequences_are_padded() -> None:
    records = [example(t=[1, 2, 3]), example(t=[4]), example(x=[1.0])]
    feature = tf.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=0)
    assert run(tf.parse_example(tf.constant(records), {"t": feature}))["t"].tolist() == [
        [1, 2, 3],
        [4, 0, 0],
        [0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("record", "features", "message"),
    [
        (b"\xff\xff", FEATURES, "could not parse record 0"),
        (example(words=[b"a"]), FEATURES, r"Name: record 0, Feature: x \(data type: float\) is required"),
        (example(x=[1.0]), FEATURES, r"Key: x, Index: 0.  Number of float .* values size: 1 but output shape: \[2\]"),
        (example(x=[1, 2]), FEATURES, "Data types don't match. Expected type: float  Feature is: int64_list"),
    ],
)
def test_records_that_do_not_fit(record: bytes, features: Any, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.parse_example(tf.constant([record]), features))


def test_bad_descriptions() -> None:
    with pytest.raises(ValueError, match="Missing: features"):
        tf.parse_example(tf.constant(RECORDS), {})
    with pytest.raises(ValueError, match="cannot be parsed as int32"):
        tf.parse_example(tf.constant(RECORDS), {"x": tf.FixedLenFeature([], tf.int32)})
    for shape, message in (
        (None, "Missing shape for feature x"),
        ([None], "First dimension of shape for feature x unknown. Consider using FixedLenSequenceFeature"),
        ([1, None], r"All dimensions of shape for feature x need to be known but received \(1, None\)"),
    ):
        with pytest.raises(ValueError, match=message):
            tf.parse_example(tf.constant(RECORDS), {"x": tf.FixedLenFeature(shape, tf.float32)})


def test_csv() -> None:
    lines = tf.constant(["1,2.5,word", '3,,"a ""b"", c"', "4,NA,x"])
    number, real, text = tf.decode_csv(lines, [tf.constant([], tf.int32), [0.5], [""]], na_value="NA")
    got = run([number, real, text])
    assert got[0].tolist() == [1, 3, 4]
    assert got[0].dtype == np.int32
    assert got[1].tolist() == [2.5, 0.5, 0.5]
    assert got[2].tolist() == [b"word", b'a "b", c', b"x"]
    assert run(tf.decode_csv(lines, [[""]], select_cols=[2])[0])[0] == b"word"
    assert run(tf.decode_csv(['1,"', '2,3"'], [[0]], select_cols=[0])[0]).tolist() == [1, 2]


def test_csv_of_one_record_at_a_time() -> None:
    """As a dataset's function gets them: scalars of the types that were asked for, missing values among them."""
    lines = ["1.5,-2,word,2.25", " 3e-2 ,7,,", "NA,NA,x,inf"]
    rows = tf.data.Dataset.from_tensor_slices(lines).map(
        lambda line: tf.decode_csv(line, [[0.5], [9], ["none"], tf.constant([4.0], tf.float64)], na_value="NA")
    )
    following = tf.data.make_one_shot_iterator(rows).get_next()
    with tf.Session() as session:
        found = [session.run(following) for _ in lines]
    assert [[type(value) for value in row] for row in found] == [[np.float32, np.int32, bytes, np.float64]] * 3
    assert found[0] == (1.5, -2, b"word", 2.25)
    assert found[1] == (np.float32(0.03), 7, b"none", 4.0)
    assert found[2] == (0.5, 9, b"x", np.inf)


@pytest.mark.parametrize("number", ["1_5", "\u0661.5", "1,5", "one"])
def test_csv_refuses_what_python_alone_calls_a_number(number: str) -> None:
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="Field 0 in record 0 is not a valid float|Expect 1 fields"
    ):
        run(tf.decode_csv(number, [[0.0]]))


def test_numbers_of_an_element_are_packed() -> None:
    rows = tf.data.Dataset.range(3).map(lambda n: (tf.stack([n, n * 2, n - 5]), tf.stack([n > 1, n < 1])))
    following = tf.data.make_one_shot_iterator(rows.batch(3)).get_next()
    numbers, truths = run(following)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [[0, 0, -5], [1, 2, -4], [2, 4, -3]]
    assert truths.tolist() == [[False, True], [False, False], [True, False]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,3", "Expect 2 fields but have 3 in record 0"),
        (",1", "Field 0 is required but missing in record 0!"),
        ('1,a"b', "Unquoted fields cannot have quotes"),
        ("x,1", "not a valid int32: x"),
        ("99999999999,1", "not a valid int32"),
    ],
)
def test_csv_that_does_not_fit(line: str, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.decode_csv(tf.constant([line]), [tf.constant([], tf.int32), [0]]))


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "file.txt")
    run(tf.write_file(path, "contents"))
    assert run(tf.read_file(path)) == b"contents"
    assert run(tf.matching_files(str(tmp_path / "*" / "*.txt"))).tolist() == [path.encode()]
    with pytest.raises(tf.errors.NotFoundError):
        run(tf.read_file(str(tmp_path / "nobody")))
