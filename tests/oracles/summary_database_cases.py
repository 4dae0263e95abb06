"""Summaries in a database: what is written for the oracle that records it, and for the test; and what is read again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

TABLES = ("Ids", "Users", "Experiments", "Runs", "Graphs", "Tags", "Descriptions", "Nodes", "NodeInputs")


def write(tf: Any, path: Path) -> None:
    """Every kind of event in one run, another run of the same experiment, and one without names."""
    raw = tf.raw_ops
    with tf.Graph().as_default(), tf.Session() as session:
        for number, names in enumerate((("exp", "run", "jane"), ("exp", "run2", "jane"), ("", "", ""))):
            writer = raw.SummaryWriter(shared_name=f"w{number}", container="")
            experiment, run, user = names
            session.run(
                raw.CreateSummaryDbWriter(
                    writer=writer, db_uri=str(path), experiment_name=experiment, run_name=run, user_name=user
                )
            )
            for event in _events(tf, writer) if number == 0 else _scalars(raw, writer):
                session.run(event)
            session.run(raw.FlushSummaryWriter(writer=writer))
            session.run(raw.CloseSummaryWriter(writer=writer))


def _scalars(raw: Any, writer: Any) -> list[Any]:
    return [
        raw.WriteScalarSummary(writer=writer, step=np.int64(3), tag="loss", value=1.5),
        raw.WriteScalarSummary(writer=writer, step=np.int64(4), tag="loss", value=2.5),
        raw.WriteScalarSummary(writer=writer, step=np.int64(4), tag="count", value=np.int64(7)),
    ]


def _events(tf: Any, writer: Any) -> list[Any]:
    raw = tf.raw_ops
    plugin = tf.SummaryMetadata.PluginData(plugin_name="plug", content=b"c")
    metadata = tf.SummaryMetadata(display_name="shown", summary_description="text", plugin_data=plugin)
    at = {"writer": writer, "step": np.int64(5)}
    pixels, color = np.ones((2, 3, 4, 1), np.float32), np.array([255, 0, 0, 255], np.uint8)
    event = tf.Event(wall_time=12.5, step=11)
    event.summary.value.add(tag="ev", simple_value=4.5)
    event.summary.value.add(tag="loss", simple_value=9)
    return [
        *_scalars(raw, writer),
        raw.WriteSummary(
            **at, tensor=np.arange(6.0).reshape(2, 3), tag="t", summary_metadata=metadata.SerializeToString()
        ),
        raw.WriteSummary(**at, tensor=tf.constant(["a", "bc"]), tag="strings", summary_metadata=""),
        raw.WriteHistogramSummary(**at, tag="h", values=[1.0, 2.0, 3.0]),
        raw.WriteImageSummary(**at, tag="im", tensor=pixels, bad_color=color),
        raw.WriteAudioSummary(**at, tag="au", tensor=np.ones((1, 4, 1), np.float32), sample_rate=8000.0),
        raw.WriteGraphSummary(**at, tensor=_graph(tf)),
        raw.ImportEvent(writer=writer, event=event.SerializeToString()),
    ]


def _graph(tf: Any) -> bytes:
    graph = tf.Graph()
    with graph.as_default():
        a, b = tf.constant(1.0, name="scope/a"), tf.placeholder(tf.float32, [2], name="b")
        with tf.device("/cpu:0"):
            c = tf.add_n([a, a], name="c")
        with tf.control_dependencies([c]):
            tf.identity(b, name="d")
    serialized: bytes = graph.as_graph_def().SerializeToString()
    return serialized


def facts(path: Path) -> dict[str, Any]:
    """What a database holds, without identifiers and times that are its own; PNG files by what they are."""
    database = sqlite3.connect(path)

    def rows(query: str) -> list[list[Any]]:
        return [[_plain(cell) for cell in row] for row in database.execute(query)]

    found = {
        "tensors": rows(
            "SELECT run_name, tag_name, display_name, plugin_name, plugin_data, description, step, dtype, shape, data "
            "FROM Tensors LEFT JOIN Tags ON series = tag_id LEFT JOIN Runs ON Runs.run_id = Tags.run_id "
            "LEFT JOIN Descriptions ON Descriptions.id = tag_id WHERE step IS NOT NULL ORDER BY Tags.rowid, step"
        ),
        "strings": rows(
            "SELECT tag_name, idx, TensorStrings.data FROM TensorStrings JOIN Tensors ON tensor_rowid = Tensors.rowid "
            "JOIN Tags ON series = tag_id ORDER BY Tags.rowid, idx"
        ),
        "experiments": rows(
            "SELECT experiment_name, user_name, is_watching, Experiments.started_time FROM Experiments "
            "JOIN Users USING (user_id)"
        ),
        "runs": rows(
            "SELECT run_name, experiment_name, finished_time > 1000, Runs.started_time < 1000 FROM Runs "
            "JOIN Experiments USING (experiment_id)"
        ),
        "nodes": rows("SELECT node_id, node_name, op, device FROM Nodes"),
        "inputs": rows("SELECT node_id, idx, input_node_id, input_node_idx, is_control FROM NodeInputs"),
        "indexes": rows("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index' ORDER BY name"),
    }
    found |= {f"number of {table}": rows(f"SELECT count(*) FROM {table}") for table in TABLES}
    found |= {f"columns of {table}": [row[1:4] for row in rows(f"PRAGMA table_info({table})")] for table in TABLES}
    database.close()
    return found


def _plain(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return "PNG" if cell.startswith(b"\x89PNG") else cell.decode("latin-1")
    return cell
