"""Checkpoints of objects: names follow attributes, and what is saved comes back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from anabranch.train import checkpoint_manager


class Layer(tf.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.w = tf.Variable([value, value])
        self.parts = [tf.Variable(value + 1.0), {"inner": tf.Variable(value + 2.0)}]


def values(session: tf.Session, layer: Layer) -> list[Any]:
    return [v.tolist() for v in session.run([layer.w, layer.parts[0], layer.parts[1]["inner"]])]


def test_objects_are_saved_by_their_attributes_and_restored(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        layer, step = Layer(1.0), tf.Variable(7, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(layer=layer, step=step)
        session.run(tf.global_variables_initializer())
        path = checkpoint.save(str(tmp_path / "ckpt"))
        assert path == tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-1")
        assert checkpoint.save(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt-2")
    names = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for name, _ in tf.train.list_variables(path)}
    objects = "_CHECKPOINTABLE_OBJECT_GRAPH"
    assert names == {"layer/w", "layer/parts/0", "layer/parts/1/inner", "step", "save_counter", objects}

    with tf.Graph().as_default(), tf.Session() as session:
        other = Layer(50.0)
        restored = tf.train.Checkpoint(layer=other, step=tf.Variable(0, dtype=tf.int64))
        restored.restore(path).assert_consumed().run_restore_ops()
        assert values(session, other) == [[1.0, 1.0], 2.0, 3.0]
        assert session.run(restored.step) == 7
        assert session.run(restored.save_counter) == 1


def test_tables_are_saved_too(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table, passing = (
            tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1, checkpoint=saved) for saved in (True, False)
        )
        checkpoint = tf.train.Checkpoint(tables=[table, passing])
        insert = [t.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)) for t in (table, passing)]
        session.run(insert)
        path = checkpoint.save(str(tmp_path / "ckpt"))
        session.run([t.insert(tf.constant(["a", "c"]), tf.constant([5, 6], tf.int64)) for t in (table, passing)])
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        looked_up = session.run([t.lookup(tf.constant(["a", "b", "c"])) for t in (table, passing)])
        assert [values.tolist() for values in looked_up] == [[1, 2, -1], [5, 2, 6]]
        with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint .*ckpt-1': \(root\)\.tables\.0"):
            tf.train.Checkpoint(tables=[]).restore(path).assert_consumed()
        more = tf.train.Checkpoint(
            tables=[table], more={"t": tf.contrib.lookup.MutableHashTable(tf.int64, tf.int64, 0)}
        )
        status = more.restore(path)
        with pytest.raises(AssertionError, match=r"not bound to checkpointed values.*\(more/t\)"):
            status.assert_existing_objects_matched()
        status.initialize_or_restore()


def test_what_does_not_match_is_told_or_initialised(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(2.0))
        session.run(tf.global_variables_initializer())
        path = checkpoint.write(str(tmp_path / "plain"))
    with tf.Graph().as_default(), tf.Session() as session:
        a, c = tf.Variable(0.0), tf.Variable(9.0)
        status = tf.train.Checkpoint(a=a, c=c).restore(path)
        with pytest.raises(AssertionError, match=r"not bound to checkpointed values.*\(c\)"):
            status.assert_existing_objects_matched()
        status.expect_partial().initialize_or_restore()
        assert session.run([a, c]) == [1.0, 9.0]
        with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint .*\(root\)\.b"):
            tf.train.Checkpoint(a=a).restore(path).assert_consumed()
        with pytest.raises(AssertionError, match=r"Nothing except the root object matched.*\(d\)"):
            tf.train.Checkpoint(d=c).restore(path).assert_nontrivial_match()
        with pytest.raises(ValueError, match="expecting a trackable object"):
            tf.train.Checkpoint(d=3)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="in a session"):
        tf.train.Checkpoint(a=tf.Variable(1.0)).write(path)


def test_optimizers_are_saved_with_their_slots(tmp_path: Path) -> None:
    v = None
    for value in (3.0, 5.0):
        with tf.Graph().as_default(), tf.Session() as session:
            v = tf.Variable(value)
            optimizer = tf.train.MomentumOptimizer(0.5, 0.9)
            train = optimizer.minimize(v * v)
            checkpoint = tf.train.Checkpoint(v=v, optimizer=optimizer)
            session.run(tf.global_variables_initializer())
            if value == 3.0:
                session.run(train)
                checkpoint.write(str(tmp_path / "trained"))
                expected = session.run([v, optimizer.get_slot(v, "momentum")])
            else:
                checkpoint.restore(str(tmp_path / "trained")).assert_consumed().run_restore_ops()
                assert session.run([v, optimizer.get_slot(v, "momentum")]) == expected == [0.0, 6.0]


def test_a_manager_keeps_the_newest(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
        session.run(tf.global_variables_initializer())
        manager = tf.train.CheckpointManager(checkpoint, str(tmp_path / "kept"), max_to_keep=2)
        assert manager.latest_checkpoint is None
        paths = [manager.save() for _ in range(3)] + [manager.save(checkpoint_number=17)]
        assert manager.checkpoints == paths[2:]
        assert [tf.train.checkpoint_exists(path) for path in paths] == [False, False, True, True]
        again = tf.train.CheckpointManager(checkpoint, str(tmp_path / "kept"), max_to_keep=1)
        assert again.checkpoints == paths[2:]
        assert again.latest_checkpoint == str(tmp_path / "kept" / "ckpt-17")
        with pytest.raises(ValueError, match="positive integer"):
            tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=0)


def test_a_managed_folder_may_be_moved(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(5.0)
        session.run(v.initializer)
        checkpoint = tf.train.Checkpoint(v=v)
        for save in (checkpoint.save, tf.train.CheckpointManager(checkpoint, str(tmp_path / "here"), 2).save):
            save(str(tmp_path / "here" / "ckpt")) if save == checkpoint.save else save()
            shutil.move(tmp_path / "here", tmp_path / "there")
            session.run(v.assign(0.0))
            latest = tf.train.latest_checkpoint(str(tmp_path / "there"))
            assert latest is not None
            checkpoint.restore(latest).run_restore_ops()
            assert session.run(v) == 5.0
            shutil.move(tmp_path / "there", tmp_path / "here")


def test_a_manager_leaves_alone_what_others_wrote(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session():
        checkpoint = tf.train.Checkpoint()
        theirs = checkpoint.save(str(tmp_path / "other"))
        manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=1)
        assert (manager.latest_checkpoint, manager.checkpoints) == (theirs, [])
        paths = [manager.save() for _ in range(2)]
        assert manager.checkpoints == paths[1:]
        assert [tf.train.checkpoint_exists(path) for path in [theirs, *paths]] == [True, False, True]


def test_a_manager_numbers_by_a_variable_and_counts_all(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.Variable(6)
        checkpoint = tf.train.Checkpoint(step=step)
        session.run(step.initializer)
        manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=None)
        assert manager.save(checkpoint_number=step) == str(tmp_path / "ckpt-6")
        assert session.run(checkpoint.save_counter) == 1


def test_a_manager_keeps_one_of_every_so_many_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10_000.0
    monkeypatch.setattr(checkpoint_manager.time, "time", lambda: now)
    with tf.Graph().as_default(), tf.Session():
        checkpoint = tf.train.Checkpoint()
        manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), 1, keep_checkpoint_every_n_hours=1.0)
        paths = []
        for _ in range(6):
            paths.append(manager.save())
            now += 2000.0
        assert manager.checkpoints == paths[-1:]
        # at 0, 2000, 4000, … seconds: those at 4000 and 8000 are the first of an hour
        assert [tf.train.checkpoint_exists(path) for path in paths] == [False, False, True, False, True, True]
