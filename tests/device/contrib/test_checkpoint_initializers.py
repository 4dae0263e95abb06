"""Matrices of a checkpoint in another order, records of files, and graphs with a fused part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

load = tf.contrib.framework
OLD, NEW = ["knitting", "eminem", "moma"], ["MISSING", "moma", "knitting", "cat"]
STORED = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of a matrix [3, 4], and two vocabularies."""
    with tf.Graph().as_default(), tf.Session() as sess:
        matrix = tf.get_variable("matrix", initializer=STORED)
        column = tf.get_variable("bias", initializer=STORED[:, :1])
        sess.run(tf.global_variables_initializer())
        tf.train.Saver([matrix, column]).save(sess, str(tmp_path / "model"))
    (tmp_path / "old").write_text("\n".join(OLD) + "\n")
    (tmp_path / "new").write_text("\n".join(NEW) + "\n")
    return tmp_path


def values(*tensors: Any) -> Any:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(tensors)


def nines(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
    return tf.fill(shape, 9.0)


def in_new_order(rows: Any, further: int) -> Any:
    known = [rows[OLD.index(word)] if word in OLD else np.full_like(rows[0], 9) for word in NEW]
    return np.stack(known + [np.full_like(rows[0], 9)] * further)


@pytest.mark.parametrize("parts", [None, 3])
def test_rows_of_a_variable_and_of_its_parts(folder: Path, parts: int | None) -> None:
    make = load.load_and_remap_matrix_initializer(
        str(folder / "model"),
        "matrix",
        4,
        4,
        old_row_vocab_file=str(folder / "old"),
        new_row_vocab_file=str(folder / "new"),
        num_row_oov_buckets=2,
        initializer=nines,
        max_rows_in_memory=1,
    )
    cut = None if parts is None else tf.fixed_size_partitioner(parts)
    variable = tf.get_variable("loaded", [6, 4], initializer=make, partitioner=cut)
    np.testing.assert_array_equal(values(tf.convert_to_tensor(variable))[0], in_new_order(STORED, 2))


def test_rows_and_columns(folder: Path) -> None:
    (folder / "columns").write_text("d\nb\nnone\n")
    (folder / "old columns").write_text("a\nb\nc\nd\n")
    make = load.load_and_remap_matrix_initializer(
        str(folder / "model"),
        "matrix",
        2,
        3,
        2,
        str(folder / "old"),
        str(folder / "new"),
        str(folder / "old columns"),
        str(folder / "columns"),
        num_row_oov_buckets=1,
        num_col_oov_buckets=1,
        initializer=nines,
    )
    # of the old rows two count, so that "moma" is new; of the new ones two as well
    wanted = np.full([3, 4], 9.0)
    np.testing.assert_array_equal(values(make([3, 4]))[0], wanted)
    columns = load.load_and_remap_matrix_initializer(
        str(folder / "model"),
        "matrix",
        3,
        3,
        old_col_vocab_file=str(folder / "old columns"),
        new_col_vocab_file=str(folder / "columns"),
    )
    np.testing.assert_array_equal(values(columns([3, 3]))[0][:, :2], STORED[:, [3, 1]])


def test_an_embedding_biases_and_a_slot(folder: Path) -> None:
    files = {"old": str(folder / "old"), "new": str(folder / "new")}
    path = str(folder / "model")
    embedding = load.load_embedding_initializer(path, "matrix", 4, 4, files["old"], files["new"])([4, 4])
    biases = load.load_linear_multiclass_bias_initializer(path, "bias", 4, files["old"], files["new"], 1)([5, 1])
    second = tf.get_variable(
        "whole", [5, 1], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(2)
    )
    offset = int(next(iter(second)).shape[0])

    class Place:
        def single_offset(self, shape: Any) -> int:
            return offset

    slot = load.load_variable_slot_initializer(
        path, "bias", Place(), 4, 1, files["old"], files["new"], num_row_oov_buckets=1, initializer=nines
    )([2, 1], tf.float32, None)
    found, bias, of_slot = values(embedding, biases, slot)
    np.testing.assert_array_equal(found[1:3], STORED[[2, 0]])
    assert 0 < np.abs(found[[0, 3]]).max() <= 2 * 0.5  # normal, cut off at two deviations of 1 / sqrt(4)
    assert bias.ravel().tolist() == [0, 8, 0, 0, 0]
    assert of_slot.ravel().tolist() == [9, 9]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, ValueError, "either row or column vocab files"),
        ({"new_row_vocab_file": "a"}, ValueError, "both be specified"),
        ({"num_row_oov_buckets": -1}, ValueError, "must be >= 0"),
        ({"initializer": 3}, TypeError, "must be callable"),
    ],
)
def test_arguments_that_are_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        load.load_and_remap_matrix_initializer("model", "matrix", 4, 4, **given)


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "said"),
    [
        ([4], tf.float32, ValueError, "2 dimensions"),
        ([4, 3], tf.float32, ValueError, "2nd dim"),
        ([5, 4], tf.float32, ValueError, "fewer"),
        ([4, 4], tf.float64, TypeError, "only float32"),
    ],
)
def test_shapes_that_do_not_fit(shape: list[int], dtype: tf.DType, error: type[Exception], said: str) -> None:
    make = load.load_and_remap_matrix_initializer("m", "n", 4, 4, old_row_vocab_file="a", new_row_vocab_file="b")
    with pytest.raises(error, match=said):
        make(shape, dtype)


# ---------------------------------------------------------------------- records
@pytest.mark.parametrize("kind", ["NONE", "GZIP"])
def test_records_in_batches(tmp_path: Path, kind: str) -> None:
    compression = getattr(tf.python_io.TFRecordCompressionType, kind)
    for number in range(2):
        options = tf.python_io.TFRecordOptions(compression)
        with tf.python_io.TFRecordWriter(str(tmp_path / f"part{number}"), options) as writer:
            for record in range(3):
                writer.write(b"%d" % (3 * number + record))
    given: dict[str, Any] = {"file_pattern": str(tmp_path / "part*"), "buffer_size": 6, "compression_type": compression}
    batch = load.RecordInput(batch_size=3, **given).get_yield_op()
    several = load.RecordInput(batch_size=3, batches=2, **given).get_yield_op()
    assert batch.shape.as_list() == [3]
    with tf.Session() as sess:
        first = [*sess.run(batch), *sess.run(batch)]
        assert sorted(first) == [b"%d" % i for i in range(6)]
        lists = sess.run(several)
    assert [len(part) for part in lists] == [3, 3]
    assert sorted(lists[0] + lists[1]) == [b"%d" % i for i in range(6)]


# ---------------------------------------------------------------------- a fused part
def graph_of(*nodes: tuple[str, str, list[str]]) -> tf.GraphDef:
    return tf.GraphDef(node=[tf.NodeDef(name=name, op=op, input=inputs) for name, op, inputs in nodes])


def test_a_part_becomes_one_operation() -> None:
    graph = graph_of(
        ("x", "Placeholder", []),
        ("a", "Neg", ["x"]),
        ("b", "Split", ["a:0", "^x"]),
        ("y", "Identity", ["b"]),
        ("z", "Identity", ["b:1"]),
        ("end", "Add", ["y", "z"]),
    )
    fused = load.fuse_op(graph, ["x"], ["y", "z"], [1, 1], True, "one", "Fused")
    assert [(n.name, n.op, list(n.input)) for n in fused.node] == [
        ("x", "Placeholder", []),
        ("one", "Fused", ["x"]),
        ("y", "Identity", ["one"]),
        ("z", "Identity", ["one:1"]),
        ("end", "Add", ["y", "z"]),
    ]
    assert list(fused.node[1].attr["_output_types"].list.type) == [1, 1]
    assert fused.node[1].attr["_output_quantized"].b
    assert len(graph.node) == 6


def test_parts_that_cannot_be_fused() -> None:
    graph = graph_of(("w", "A", []), ("x", "B", ["w"]), ("y", "C", ["x", "w"]), ("z", "D", ["y"]))
    with pytest.raises(TypeError, match="Node y uses input w not in input_nodes"):
        load.fuse_op(graph, ["x"], ["z"], [1], False, "one", "Fused")
    with pytest.raises(ValueError, match="none is not in graph"):
        load.fuse_op(graph, ["none"], ["z"], [1], False, "one", "Fused")
    with pytest.raises(TypeError, match="must be a list"):
        load.fuse_op(graph, "x", ["z"], [1], False, "one", "Fused")
    with pytest.raises(TypeError, match="must be a tf.GraphDef"):
        load.fuse_op("x", ["x"], ["z"], [1], False, "one", "Fused")
