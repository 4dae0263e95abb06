"""Graphs with TensorFlow's older handles of queues, tables and readers, which pass two strings by reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph import ref_handles
from anabranch.proto.graph_pb2 import DT_STRING

OLDER = {newer: older for older, newer in ref_handles.RENAMED.items()}


def with_older_handles(graph: Any) -> Any:
    """The graph as an older program would have written it."""
    message = graph.as_graph_def()
    for node in message.node:
        node.op = OLDER.get(node.op, node.op)
        if node.op == "Identity" and node.attr["T"].type == 20:
            node.op, node.attr["T"].type = "RefIdentity", DT_STRING
    return message


def test_older_handles_become_resources(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n", "utf-8")
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(10, tf.string, shapes=[[]], name="q")
        passed = tf.identity(queue.queue_ref, name="passed")
        queue.enqueue_many([[str(tmp_path / "lines")]], name="enqueue")
        tf.TextLineReader(name="reader").read(passed, name="read")
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["one"], np.array([1])), -1)
        table.lookup(tf.constant(["one", "two"]), name="found")
        queue.close(name="close")
    message = with_older_handles(graph)
    assert {"FIFOQueue", "RefIdentity", "ReaderRead", "LookupTableFind"} <= {n.op for n in message.node}
    with tf.Graph().as_default() as imported, tf.Session() as session:
        tf.import_graph_def(message, name="")
        assert imported.get_tensor_by_name("passed:0").dtype == tf.resource
        session.run("enqueue")
        assert session.run(["read:1", "read:1"])[0] in {b"one", b"two"}
        session.run([op for op in imported.get_operations() if op.type == "InitializeTableV2"])
        assert session.run("found:0").tolist() == [1, -1]
        session.run("close")
        session.run("read:1")
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run("read:1")


def test_other_graphs_are_left_alone() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1.0)
    nodes = list(graph.as_graph_def().node)
    assert all(a is b for a, b in zip(nodes, ref_handles.translate(nodes), strict=True))
