"""Operations that only older graphs have: built here as TensorFlow builds them, and read from what it wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.older_types import older_names
from anabranch.proto.graph_pb2 import DT_INT32, GraphDef
from tests.older_programs import STEPS, Program, arrays, programs, splitting

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "older_programs.npz"
PROGRAMS = dict(programs())


@functools.cache
def recorded() -> Any:
    return np.load(FIXTURE, allow_pickle=False)


def check(session: tf.Session, name: str, setup: list[Any], fetches: list[Any]) -> None:
    for item in setup:
        session.run(item.op if isinstance(item, tf.Tensor) else item)
    for step in range(STEPS):
        for number, value in enumerate(session.run(fetches)):
            expected = recorded()[f"{name}/{step}/{number}"]
            if expected.dtype.kind == "S":
                assert np.asarray(value, bytes).tolist() == expected.tolist(), (step, fetches[number])
            else:
                np.testing.assert_allclose(
                    value, expected, rtol=1e-5, atol=5e-6, err_msg=f"step {step}, {fetches[number]}", strict=True
                )


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_built_here_does_what_tensorflows_does(name: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        setup, fetches = PROGRAMS[name](tf)
        check(session, name, list(setup), list(fetches))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_tensorflow_wrote_does_the_same_here(name: str) -> None:
    message = GraphDef.FromString(recorded()[f"{name}/graph"].tobytes())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(message, name="")
        setup = [graph.get_operation_by_name(str(op)) for op in recorded()[f"{name}/setup"]]
        check(session, name, setup, [graph.get_tensor_by_name(str(t)) for t in recorded()[f"{name}/fetches"]])


@pytest.mark.parametrize("name", ["ApplyAdam", "random_1", "branches", "gradient", "arrays", "queues"])
def test_what_is_built_here_can_be_exported(name: str) -> None:
    with tf.Graph().as_default() as graph:
        program: Program = PROGRAMS[name](tf)
        setup, fetches = ([item.name for item in items] for items in program)
        message = graph.as_graph_def()
    assert not {node.op for node in message.node} & set(older_names())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(message, name="")
        check(
            session,
            name,
            [graph.as_graph_element(item.partition(":")[0]) for item in setup],
            [graph.get_tensor_by_name(item) for item in fetches],
        )


# ---------------------------------------------------------------------- references
def test_a_reference_is_looked_at_when_it_is_taken() -> None:
    raw = tf.raw_ops
    with tf.Graph().as_default(), tf.Session() as session:
        w = raw.VariableV2(shape=[], dtype=tf.float32, name="w")
        assert (w.name, w.dtype, w.shape) == ("w:0", tf.float32, [])
        session.run(raw.Assign(ref=w, value=1.0))
        with tf.control_dependencies([raw.AssignAdd(ref=w, value=1.0)]):
            after = tf.identity(w)
        assert session.run(after) == 2
        assert session.run(tf.add(w, 1.0)) == 3
        assert session.run(w) == 2


def test_references_of_an_imported_graph_are_variables() -> None:
    message = GraphDef.FromString(recorded()["gradient/graph"].tobytes())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(message, name="")
        for name in recorded()["gradient/setup"]:
            session.run(graph.get_operation_by_name(str(name)))
        w = graph.get_tensor_by_name("VariableV2:0")
        (mine,) = tf.gradients(graph.get_tensor_by_name(str(recorded()["gradient/fetches"][0])), [w])
        np.testing.assert_allclose(session.run(mine), recorded()["gradient/0/1"], rtol=1e-5, atol=5e-6)
        assert session.run(tf.is_variable_initialized(w))
        assert session.run(tf.assign(w, [[5.0, 6.0], [7.0, 8.0]])).tolist() == [[5, 6], [7, 8]]
        assert session.run(tf.assign_add(w, tf.ones([2, 2]))).tolist() == [[6, 7], [8, 9]]
        assert session.run(tf.assign_sub(w, tf.ones([2, 2]))).tolist() == [[5, 6], [7, 8]]
        assert session.run(tf.scatter_update(w, [0], [[0.0, 1.0]])).tolist() == [[0, 1], [7, 8]]
        assert session.run(tf.identity(w)).tolist() == [[0, 1], [7, 8]]


def test_variables_queues_and_tables_can_be_given_as_references() -> None:
    raw = tf.raw_ops
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=1.0)
        session.run(v.initializer)
        assert session.run(raw.AssignAdd(ref=v, value=2.0)) == 3
        queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
        session.run(raw.QueueEnqueue(handle=queue.queue_ref, components=[5]))
        assert session.run(queue.dequeue()) == 5


def test_an_older_handle_of_a_newer_queue() -> None:
    """FakeQueue: what older operations do with it is done to the queue."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.int32])
        older = tf.raw_ops.FakeQueue(resource=queue, name="older")
        assert older.name == "older:0"
        session.run(tf.raw_ops.QueueEnqueue(handle=older, components=[7]))
        assert session.run(tf.raw_ops.QueueSizeV2(handle=queue)) == 1
        assert session.run(tf.raw_ops.QueueDequeue(handle=older, component_types=[tf.int32])) == [7]
        assert "FakeQueue" not in {node.op for node in graph.as_graph_def().node}


def test_an_imported_handle_of_a_newer_queue() -> None:
    message = GraphDef()
    queue = message.node.add(name="queue", op="FIFOQueueV2")
    queue.attr["component_types"].list.type.append(DT_INT32)
    message.node.add(name="older", op="FakeQueue", input=["queue"])
    message.node.add(name="size", op="QueueSize", input=["older"])
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(message, name="")
        assert session.run(graph.get_tensor_by_name("size:0")) == 0


def test_what_has_one_operation_for_values_keeps_it() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        taken, other = tf.raw_ops.RefSwitch(data=tf.constant(2.0), pred=False)
        assert (taken.op.type, session.run(taken)) == ("RefSwitch", 2)
        assert session.run(tf.raw_ops.RefMerge(inputs=[taken, other]).output) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda raw: raw.Assign(ref=tf.constant(1.0), value=1.0), "requires l-value input"),
        (lambda raw: raw.QueueSize(handle="queue"), "requires l-value input"),
        (lambda raw: raw.Assign(value=1.0), "needs the input 'ref'"),
        (
            lambda raw: raw.Assign(ref=raw.VariableV2(shape=[], dtype=tf.float32), value=tf.constant(1)),
            "does not match",
        ),
        (lambda raw: raw.VariableV2(shape=[]), "needs the attribute 'dtype'"),
        (lambda raw: raw.AssignAdd(ref=raw.VariableV2(shape=[], dtype=tf.string), value="a"), "allowed values"),
        (lambda raw: raw.RefSelect(index=0, inputs=raw.VariableV2(shape=[], dtype=tf.float32)), "Expected list"),
    ],
)
def test_wrong_calls_are_refused(build: Callable[[Any], Any], message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(TypeError, match=message):
        build(tf.raw_ops)


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with tf.Graph().as_default():
        w = tf.raw_ops.VariableV2(shape=[2], dtype=tf.float32)
        with pytest.raises(ValueError, match="compatible"):
            tf.raw_ops.Assign(ref=w, value=[1.0, 2.0, 3.0])


def test_an_index_of_references_is_checked() -> None:
    raw = tf.raw_ops
    with tf.Graph().as_default(), tf.Session() as session:
        first, second = (raw.VariableV2(shape=[], dtype=tf.float32) for _ in range(2))
        session.run(raw.Assign(ref=second, value=2.0))
        index = tf.placeholder(tf.int32, [])
        chosen = raw.RefSelect(index=index, inputs=[first, second])
        assert session.run(chosen, {index: 1}) == 2  # the other one is not read: it is not initialized
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
            session.run(chosen, {index: 2})
        with pytest.raises(ValueError, match="its index is 2"):
            raw.RefSelect(index=2, inputs=[first, second])
        with pytest.raises(TypeError, match="requires l-value"):
            raw.AssignAdd(ref=chosen, value=1.0)


def test_reads_on_opposite_branches_stay_apart() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=1.0)
        session.run(v.initializer)
        p = tf.placeholder(tf.bool, [])
        sides = tf.raw_ops.Switch(data=v.handle, pred=p)
        reads = [tf.raw_ops.ReadVariableOp(resource=side, dtype=tf.float32) for side in sides]
        assert session.run(tf.identity(tf.raw_ops.Merge(inputs=reads).output), {p: True}) == 1


@pytest.mark.parametrize("name", ["arrays", "splitting"])
@pytest.mark.parametrize("version", ["", "V2"])
def test_older_arrays_do_what_those_of_the_third_version_do(name: str, version: str) -> None:
    """TensorFlow took them out of the vocabulary of newer graphs, and builds none."""
    with tf.Graph().as_default(), tf.Session() as session:
        setup, fetches = {"arrays": arrays, "splitting": splitting}[name](tf, version)
        check(session, name, list(setup), list(fetches))


def test_arrays_of_the_first_version_are_packed_and_unpacked() -> None:
    """TensorFlow has these in its vocabulary, and no kernels for them any longer."""
    raw = tf.raw_ops
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        handle = raw.TensorArray(size=3, dtype=tf.float32)
        flow = raw.TensorArrayUnpack(handle=handle, value=x, flow_in=0.0)
        rows = raw.TensorArrayPack(handle=handle, flow_in=flow, dtype=tf.float32, element_shape=[2])
        value, grad = session.run([rows, tf.gradients(rows * rows, x)[0]])
        assert value.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert grad.tolist() == [[2, 4], [6, 8], [10, 12]]


def test_a_dense_table_without_a_key_for_what_is_deleted_is_refused_when_it_runs() -> None:
    """So does TensorFlow, whose kernel asks for the input that this type does not have."""
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.raw_ops.MutableDenseHashTable(empty_key=tf.constant(0, tf.int64), value_dtype=tf.int64)
        with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be equal"):
            session.run(tf.raw_ops.LookupTableSize(table_handle=table))


def test_readers(tmp_path: Path) -> None:
    raw = tf.raw_ops
    (tmp_path / "lines").write_text("one\ntwo\nthree\n", "utf-8")
    with tf.Graph().as_default(), tf.Session() as session:
        queue = raw.FIFOQueue(component_types=[tf.string], shapes=[[]])
        names = np.array([str(tmp_path / "lines")] * 2, object)
        session.run(raw.QueueEnqueueMany(handle=queue, components=[names]))
        reader = raw.TextLineReader(skip_header_lines=1)
        assert session.run(raw.ReaderRead(reader_handle=reader, queue_handle=queue).value) == b"two"
        rest = raw.ReaderReadUpTo(reader_handle=reader, queue_handle=queue, num_records=np.int64(5))
        assert session.run(rest.values).tolist() == [b"three"]
        assert session.run(raw.ReaderNumRecordsProduced(reader_handle=reader)) == 2
        state = session.run(raw.ReaderSerializeState(reader_handle=reader))
        session.run(raw.ReaderReset(reader_handle=reader))
        assert session.run(raw.ReaderNumWorkUnitsCompleted(reader_handle=reader)) == 0
        session.run(raw.ReaderRestoreState(reader_handle=reader, state=state))
        assert session.run(raw.ReaderNumWorkUnitsCompleted(reader_handle=reader)) == 1
        whole = raw.ReaderRead(reader_handle=raw.WholeFileReader(), queue_handle=queue).value
        assert session.run(whole) == b"one\ntwo\nthree\n"


def test_an_operation_of_a_reference_comes_after_the_updates_that_gave_it() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        reference = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="kept")
        updated = tf.assign_add(tf.assign(reference, [4.0, 5.0]), [6.0, 7.0])
        last = tf.raw_ops.DestroyTemporaryVariable(ref=updated, var_name="kept")
        np.testing.assert_array_equal(session.run(last), [10.0, 12.0])
