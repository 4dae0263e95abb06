"""Paths that are bytes, as `Estimator.export_saved_model` gives one, name the same files as text does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory; what a path is taken for that is not understood would lie elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return os.fsencode(tmp_path / "here")


@pytest.fixture(autouse=True)
def nothing_is_elsewhere(tmp_path: Path, folder: Any) -> Any:
    yield
    assert list((tmp_path / "elsewhere").iterdir()) == []


def path(*parts: str | bytes) -> Any:
    """Its bytes; of a type that programs give without regard to annotations."""
    return os.path.join(*map(os.fsencode, parts))


def test_checkpoints(folder: Any) -> None:
    x = tf.get_variable("x", initializer=1.0)
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(x.initializer)
        prefix = saver.save(session, path(folder, b"model"), global_step=1)
        assert prefix == os.path.join(os.fsdecode(folder), "model-1")
        session.run(x.assign(2.0))
        saver.restore(session, path(prefix))
        assert session.run(x) == 1.0
    state = tf.train.get_checkpoint_state(folder)
    assert state is not None
    assert tf.train.latest_checkpoint(folder) == state.model_checkpoint_path == prefix
    assert tf.train.checkpoint_exists(path(prefix))
    assert tf.train.load_checkpoint(folder).get_tensor("x") == 1.0
    assert tf.train.list_variables(folder) == [("x", [])]
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(x=x), folder, 1)
    with tf.Session().as_default() as session:
        session.run(x.initializer)
        assert Path(manager.save()).parent == Path(os.fsdecode(folder))


def test_graphs_and_models(folder: Any) -> None:
    p = tf.placeholder(tf.float32, [], "p")
    doubled = tf.multiply(p, 2.0, name="doubled")
    assert (
        tf.train.write_graph(tf.get_default_graph(), folder, path("graph.pb"), as_text=False)
        == os.fsdecode(folder) + "/graph.pb"
    )
    tf.train.export_meta_graph(path(folder, b"graph.meta"))
    model: Any = path(folder, b"model")
    with tf.Session() as session:
        tf.saved_model.simple_save(session, model, {"p": p}, {"doubled": doubled})
    assert tf.saved_model.contains_saved_model(model)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.loader.load(session, ["serve"], model)
        assert session.run("doubled:0", {"p:0": 3.0}) == 6.0
    with tf.Graph().as_default():
        tf.train.import_meta_graph(path(folder, b"graph.meta"))


def test_records_and_events(folder: Any) -> None:
    tf.gfile.MakeDirs(folder)
    records: Any = path(folder, b"records")
    with tf.python_io.TFRecordWriter(records) as writer:
        writer.write(b"a record")
    assert list(tf.python_io.tf_record_iterator(records)) == [b"a record"]
    with tf.summary.FileWriter(folder) as events:
        assert events.get_logdir() == os.fsdecode(folder)
    (written,) = tf.gfile.Glob(path(folder, b"events*"))
    assert [event.file_version for event in tf.train.summary_iterator(path(written))] == ["brain.Event:2"]


def test_monitored_trainings(folder: Any) -> None:
    step = tf.train.get_or_create_global_step()
    update = step.assign_add(1)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
        session.run(update)
    assert tf.train.latest_checkpoint(os.fsdecode(folder)) == os.fsdecode(folder) + "/model.ckpt-1"


def test_supervisors(folder: Any) -> None:
    supervisor = tf.train.Supervisor(logdir=path(folder, b"supervised"))
    assert supervisor.save_path == os.fsdecode(folder) + "/supervised/model.ckpt"
