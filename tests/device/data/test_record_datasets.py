"""The operations on datasets of databases, CSV files and serialized examples, and those that write datasets."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw
from tests.device.data.test_dataset_ops import INT, TEXT, elements

LMDB = Path(__file__).parents[2] / "fixtures" / "lmdb"
BOTH = pytest.mark.parametrize("prefix", ["", "Experimental"])


# ---------------------------------------------------------------------- databases
@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "data.db"
    connection = sqlite3.connect(path)
    connection.execute("create table t(a int, b real, c text, d blob)")
    rows = [
        (1, 2.5, "x", b"ab"),
        (300, -3.7, "12abc", None),
        (None, None, None, "5"),
        (2**63 - 1, 1e300, "", 7.25),
    ]
    connection.executemany("insert into t values(?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return str(path)


def sql(prefix: str, path: str, query: str, types: list[tf.DType], driver: str = "sqlite") -> Any:
    typed = {"output_types": types, "output_shapes": [[]] * len(types)}
    return getattr(raw, f"{prefix}SqlDataset")(driver, path, query, **typed), typed


#: what TensorFlow 2.21 gives
CONVERTED = [
    (
        [tf.int64, tf.float64, tf.string, tf.string],
        [[1, 2.5, b"x", b"ab"], [300, -3.7, b"12abc", b""], [0, 0.0, b"", b"5"], [2**63 - 1, 1e300, b"", b"7.25"]],
    ),
    ([tf.int8, tf.int32, tf.int32, tf.int64], [[1, 2, 0, 0], [44, -3, 12, 0], [0, 0, 0, 5], [-1, -1, 0, 7]]),
    (
        [tf.bool, tf.bool, tf.float64, tf.float64],
        [[True, True, 0.0, 0.0], [True, True, 12.0, 0.0], [False, False, 0.0, 5.0], [True, True, 0.0, 7.25]],
    ),
    (
        [tf.string, tf.string, tf.uint8, tf.bool],
        [[b"1", b"2.5", 0, False], [b"300", b"-3.7", 12, False], [b"", b"", 0, True],
         [b"9223372036854775807", b"1.0e+300", 0, True]],
    ),
]  # fmt: skip


def rows_of(variant: Any, typed: dict[str, Any]) -> list[Any]:
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    start, following = raw.MakeIterator(variant, iterator), raw.IteratorGetNext(iterator, **typed)
    found = []
    with tf.Session() as session:
        session.run(start)
        while True:
            try:
                found.append([v.item() if hasattr(v, "item") else v for v in session.run(following)])
            except tf.errors.OutOfRangeError:
                return found


@BOTH
@pytest.mark.parametrize(("types", "expected"), CONVERTED)
def test_columns_are_converted_as_the_database_does_it(
    database: str, prefix: str, types: list[tf.DType], expected: list[Any]
) -> None:
    """SqlDataset, ExperimentalSqlDataset."""
    assert rows_of(*sql(prefix, database, "select * from t", types)) == expected


@pytest.mark.parametrize(
    ("query", "types", "error", "match"),
    [
        ("selec", [tf.int64], tf.errors.UnknownError, "syntax error"),
        ("select * from nope", [tf.int64], tf.errors.UnknownError, "no such table"),
        ("select 1, 2", [tf.int64], tf.errors.InvalidArgumentError, r"columns in query \(2\) must match"),
        ("insert into t values(7, 7, 7, 7)", [tf.int64], tf.errors.InvalidArgumentError, r"query \(0\)"),
        ("select 1", [tf.float32], tf.errors.InvalidArgumentError, "output_types"),
    ],
)
def test_queries_that_fail(database: str, query: str, types: list[tf.DType], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        rows_of(*sql("", database, query, types))


def test_databases_that_are_not_there(database: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="mysql, is not supported"):
        rows_of(*sql("", database, "select 1", [tf.int64], driver="mysql"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="unable to open"):
        rows_of(*sql("", database + "/beneath", "select 1", [tf.int64]))


def test_a_query_goes_on_where_it_was(database: str) -> None:
    variant, typed = sql("", database, "select a from t where a is not null order by a", [tf.int64])
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    start, following = raw.MakeIterator(variant, iterator), raw.IteratorGetNext(iterator, **typed)
    with tf.Session() as session:
        session.run(start)
        assert session.run(following)[0] == 1
        position = session.run(raw._IteratorPosition(iterator))
        assert session.run(following)[0] == 300
        session.run(raw._RestoreIterator(iterator, [variant], position))
        assert session.run(following)[0] == 300


@BOTH
def test_records_of_lmdb_databases(tmp_path: Path, prefix: str) -> None:
    """LMDBDataset, ExperimentalLMDBDataset; what the library itself reads."""
    recorded = json.loads(gzip.decompress((LMDB / "records.json.gz").read_bytes()))
    paths = []
    for name in ("small", "long_values"):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(gzip.decompress((LMDB / f"{name}.mdb.gz").read_bytes()))
    made = getattr(raw, f"{prefix}LMDBDataset")(
        [str(path) for path in paths], output_types=[tf.string] * 2, output_shapes=[[], []]
    )
    typed: dict[str, Any] = {"output_types": [tf.string] * 2, "output_shapes": [[], []]}
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    following = raw.IteratorGetNext(iterator, **typed)
    expected = [(k.encode("latin-1"), v.encode("latin-1")) for n in ("small", "long_values") for k, v in recorded[n]]
    with tf.Session() as session:
        session.run(raw.MakeIterator(made, iterator))
        assert [tuple(session.run(list(following))) for _ in expected] == expected
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(list(following))


# ---------------------------------------------------------------------- comma-separated values
CSV = 'h1,h2,h3\n1,2.5,"a""b"\n,NA,x\n3,,"multi\nline"\n"7",8,w'


def csv(prefix: str, path: Path, chosen: list[int], **changed: Any) -> tuple[Any, dict[str, Any]]:
    whole, part, text = tf.constant([9], tf.int64), tf.constant([1.5]), tf.constant([], tf.string)
    defaults = [whole, text] if chosen else [whole, part, text]
    types = [tf.int64, tf.string] if chosen else [tf.int64, tf.float32, tf.string]
    typed = {"output_types": types, "output_shapes": [[]] * len(types)}
    given: dict[str, Any] = {
        "filenames": [str(path)], "compression_type": "", "buffer_size": np.int64(64), "header": True,
        "field_delim": ",", "use_quote_delim": True, "na_value": "NA",
    } | changed  # fmt: skip
    made = getattr(raw, f"{prefix}CSVDataset")(
        **given, select_cols=np.array(chosen, np.int64), record_defaults=defaults, output_shapes=typed["output_shapes"]
    )
    return made, typed


@BOTH
def test_rows_of_csv_files(tmp_path: Path, prefix: str) -> None:
    """CSVDataset, ExperimentalCSVDataset; what TensorFlow 2.21 gives."""
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    expected = [[1, 2.5, b'a"b'], [9, 1.5, b"x"], [3, 1.5, b"multi\nline"], [7, 8.0, b"w"]]
    assert rows_of(*csv(prefix, path, [])) == expected
    assert rows_of(*csv(prefix, path, [0, 2])) == [[row[0], row[2]] for row in expected]
    assert rows_of(*csv(prefix, path, [0, 2], filenames=[str(path)] * 2))[4:] == [[r[0], r[2]] for r in expected]


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("4,5\n6,7,8,9\nabc,1,z\n1,2,\n1,2,x\n")
    made, typed = csv("", path, [], header=False)
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    following = raw.IteratorGetNext(iterator, **typed)
    with tf.Session() as session:
        session.run(raw.MakeIterator(made, iterator))
        for match in ("3 fields but have 2", "3 fields but have 4", "not a valid int64: abc", "required but missing"):
            with pytest.raises(tf.errors.InvalidArgumentError, match=match):
                session.run(following)
        assert session.run(following)[2] == b"x"


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"field_delim": "ab"}, "only 1 char"),
        ({"buffer_size": np.int64(0)}, "buffer_size should be positive"),
        ({"compression_type": "LZ4"}, "Unsupported compression_type"),
    ],
)
def test_csv_files_that_cannot_be_read(tmp_path: Path, changed: dict[str, Any], match: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        rows_of(*csv("", tmp_path / "rows.csv", [], **changed))


# ---------------------------------------------------------------------- examples
def example(**features: Any) -> bytes:
    made = tf.train.Example()
    for name, value in features.items():
        kind = "int64_list" if isinstance(value[0], int) else "float_list"
        getattr(made.features.feature[name], kind).value.extend(value)
    return bytes(made.SerializeToString())


@BOTH
def test_parsed_examples_have_components_in_the_order_of_names(prefix: str) -> None:
    """ParseExampleDataset, ExperimentalParseExampleDataset."""
    batches = raw.TensorSliceDataset(
        [np.array([[example(b=[1, 2], a=[0.5]), example(b=[3], c=[7])], [example(b=[4], a=[2.0]), example(a=[1.0])]])],
        output_shapes=[[2]],
    )
    typed = {"output_types": [tf.float32, tf.variant, tf.int64], "output_shapes": [[2], [3], [2, 1]]}
    parsed = getattr(raw, f"{prefix}ParseExampleDataset")(
        batches,
        np.int64(1),
        [tf.constant(-1.0), tf.constant([8], tf.int64)],
        sparse_keys=["b"],
        dense_keys=["a", "c"],
        sparse_types=[tf.int64],
        dense_shapes=[[], [1]],
        **typed,
    )
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    dense, packed, other = raw.IteratorGetNext(iterator, **typed)
    sparse = raw.DeserializeSparse(packed, dtype=tf.int64)
    with tf.Session() as session:
        session.run(raw.MakeIterator(parsed, iterator))
        found = session.run([dense, sparse, other])
        assert found[0].tolist() == [0.5, -1]
        assert [part.tolist() for part in found[1]] == [[[0, 0], [0, 1], [1, 0]], [1, 2, 3], [2, 2]]
        assert found[2].tolist() == [[8], [7]]
        found = session.run([dense, sparse, other])
        assert [part.tolist() for part in found[1]] == [[[0, 0]], [4], [2, 1]]


@BOTH
def test_datasets_are_written_to_files(tmp_path: Path, prefix: str) -> None:
    """DatasetToTFRecord, ExperimentalDatasetToTFRecord."""
    path, write = str(tmp_path / "records"), getattr(raw, f"{prefix}DatasetToTFRecord")
    words = raw.TensorSliceDataset([np.array([b"one", b"", b"three"], object)], output_shapes=[[]])
    with tf.Session() as session:
        session.run(write(words, path, "GZIP"))
        numbers = raw.RangeDataset(np.int64(0), np.int64(3), np.int64(1), **INT)
        with pytest.raises(tf.errors.InvalidArgumentError, match="serialize it first"):
            session.run(write(numbers, path + "2", ""))
    assert elements(raw.TFRecordDataset([path], "GZIP", np.int64(0)), TEXT) == [b"one", b"", b"three"]
