"""Restoring objects: what is made later, what is shared, what other programs and this package's older files hold."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.io import checkpoint_store, tensor_bundle_writer
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph
from anabranch.tools import convert
from anabranch.train.load_status import CheckpointLoadStatus

OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "object_checkpoints"
PEERS = Path(__file__).parents[3] / ".venv-peers" / "bin" / "python"


class Model(tf.Module):
    """What the fixtures hold."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([0.0, 0.0], name="w")
        self.parts = [tf.Variable(0.0, name="part"), {"a/b": tf.Variable(0.0, name="inner")}]
        self.pair = (tf.Variable(0.0, name="paired"),)
        self.itself = self


class Training:
    """A model with two optimizers, of which each trains a variable."""

    def __init__(self, with_steps: bool = True) -> None:
        self.model = Model()
        self.adam, self.momentum = tf.train.AdamOptimizer(0.5), tf.train.MomentumOptimizer(0.5, 0.9)
        self.step = tf.train.get_or_create_global_step()
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, adam=self.adam, momentum=self.momentum, step=self.step, shared=self.model.w
        )
        self.train: list[tf.Operation] = []
        if with_steps:
            self.add_steps()

    def add_steps(self) -> None:
        w, part = self.model.w, self.model.parts[0]
        self.train = [
            self.adam.minimize(tf.reduce_sum(w * w), global_step=self.step, var_list=[w]),
            self.momentum.minimize(part * part, var_list=[part]),
        ]

    def values(self, session: tf.Session) -> dict[str, Any]:
        """What the training has, slots and all, by name."""
        w, part = self.model.w, self.model.parts[0]
        held = {
            "w": w,
            "part": part,
            "inner": self.model.parts[1]["a/b"],
            "pair": self.model.pair[0],
            "m": self.adam.get_slot(w, "m"),
            "v": self.adam.get_slot(w, "v"),
            "step": self.step,
            "momentum": self.momentum.get_slot(part, "momentum"),
            "powers": list(self.adam._get_beta_accumulators()),
        }
        return {name: np.asarray(value).tolist() for name, value in session.run(held).items()}


#: what the fixtures `graph` and `names` hold: a step of Adam and one of momentum
TRAINED = {"part": 0.0, "inner": 4.0, "pair": 5.0, "step": 1, "momentum": 6.0}


def check_trained(values: dict[str, Any]) -> None:
    for name, value in TRAINED.items():
        assert values[name] == value, name
    for name, expected in (("w", [0.5, 1.5]), ("m", [0.2, 0.4]), ("v", [0.004, 0.016]), ("powers", [0.81, 0.998001])):
        np.testing.assert_allclose(values[name], expected, rtol=2e-5)


# ---------------------------------------------------------------------- TensorFlow
def test_what_tensorflow_saved_is_restored_with_slots() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training()
        training.checkpoint.restore(str(FIXTURES / "graph-1")).assert_consumed().run_restore_ops()
        check_trained(training.values(session))
        assert session.run(training.checkpoint.save_counter) == 1


def test_variables_and_slots_that_are_made_later_are_restored() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training(with_steps=False)
        del training.checkpoint.model
        status = training.checkpoint.restore(str(FIXTURES / "graph-1"))
        with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint .*\(root\)\.model\.parts\.0"):
            status.assert_consumed()
        training.checkpoint.model = training.model
        with pytest.raises(AssertionError, match=r"state 'm' for \(root\)\.shared"):
            status.assert_consumed()
        status.assert_existing_objects_matched()
        training.add_steps()
        status.assert_consumed().initialize_or_restore()
        check_trained(training.values(session))


def test_what_tensorflow_saved_by_names_is_restored_by_names() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training()
        status = training.checkpoint.restore(str(FIXTURES / "names"))
        with pytest.raises(AssertionError, match="not restored by name"):
            status.assert_consumed()
        status.initialize_or_restore()
        status.assert_consumed()
        check_trained(training.values(session))
        saver = tf.train.Saver(training.model.variables)
        session.run(tf.global_variables_initializer())
        saver.restore(session, str(FIXTURES / "graph-1"))  # and the other way round
        assert session.run(training.model.parts[1]["a/b"]) == 4.0


def test_what_tensorflow_2_saved_is_restored_but_for_positions_of_iterators() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        model = tf.Module()
        model.kernel = tf.Variable([[0.0, 0.0]])
        model.table = tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1)
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(10))
        number = iterator.get_next()
        status = tf.train.Checkpoint(model=model, iterator=iterator).restore(str(FIXTURES / "eager"))
        status.assert_existing_objects_matched()
        with pytest.raises(AssertionError, match=r"\(root\)\.iterator .*ITERATOR"):
            status.assert_consumed()
        status.expect_partial().initialize_or_restore()
        found = [session.run(model.kernel), session.run(model.table.lookup(tf.constant(["a", "b", "c"])))]
        assert [value.tolist() for value in found] == [[[1.0, 2.0]], [1, 2, -1]]
        assert session.run(number) == 0


READ_IT = """
import json, os, sys
import numpy as np, tensorflow as tf
tf1 = tf.compat.v1
class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([0.0, 0.0])
        self.parts = [tf.Variable(0.0), {"a/b": tf.Variable(0.0)}]
        self.pair = (tf.Variable(0.0),)
        self.itself = self
eager = Model()
tf.train.Checkpoint(model=eager, step=tf.Variable(0, dtype=tf.int64)).restore(sys.argv[1]).expect_partial()
with tf.Graph().as_default(), tf1.Session() as session:
    tf1.enable_resource_variables()
    model, step = Model(), tf1.train.get_or_create_global_step()
    adam, momentum = tf1.train.AdamOptimizer(0.5), tf1.train.MomentumOptimizer(0.5, 0.9)
    checkpoint = tf1.train.Checkpoint(model=model, adam=adam, momentum=momentum, step=step, shared=model.w)
    status = checkpoint.restore(sys.argv[1])
    adam.minimize(tf.reduce_sum(model.w * model.w), global_step=step, var_list=[model.w])
    momentum.minimize(model.parts[0] * model.parts[0], var_list=[model.parts[0]])
    status.assert_consumed().run_restore_ops(session)
    found = session.run({
        "w": model.w, "part": model.parts[0], "inner": model.parts[1]["a/b"], "pair": model.pair[0],
        "m": adam.get_slot(model.w, "m"), "v": adam.get_slot(model.w, "v"), "step": step,
        "momentum": momentum.get_slot(model.parts[0], "momentum"), "powers": list(adam._get_beta_accumulators()),
    })
found = {name: np.asarray(value).tolist() for name, value in found.items()}
print(json.dumps([found, eager.w.numpy().tolist(), float(eager.parts[1]["a/b"])]))
"""


@pytest.mark.skipif(not PEERS.exists(), reason="needs TensorFlow: make bench-env")
def test_tensorflow_restores_what_is_saved_here(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training()
        training.checkpoint.restore(str(FIXTURES / "graph-1")).run_restore_ops()
        session.run(training.train)
        path = training.checkpoint.save(str(tmp_path / "ours"))
        path = training.checkpoint.write(path)  # in its place
        mine = training.values(session)
    done = subprocess.run([PEERS, "-c", READ_IT, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs, w, inner = json.loads(done.stdout.splitlines()[-1])
    assert theirs == mine
    assert (w, inner) == (mine["w"], 4.0)


def test_the_description_of_objects_is_tensorflows(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session():
        training = Training()
        training.checkpoint.restore(str(FIXTURES / "graph-1")).run_restore_ops()
        mine = tf.contrib.checkpoint.object_metadata(training.checkpoint.write(str(tmp_path / "ours")))
    theirs = tf.contrib.checkpoint.object_metadata(str(FIXTURES / "graph-1"))
    for node in theirs.nodes:
        node.ClearField("has_checkpoint_values")  # of TensorFlow 2; 1.15 has none
    assert mine == theirs


# ---------------------------------------------------------------------- later and earlier restores
def test_restoring_what_is_new_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        saved = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Module(), c=tf.Module())
        saved.b.v, saved.c.v = tf.Variable(2.0), tf.Variable(3.0)
        session.run(tf.global_variables_initializer())
        other = tf.train.Checkpoint(a=tf.Variable(0.0), b=tf.Module())
        status = other.restore(saved.write(str(tmp_path / "model")))
        assert isinstance(status, CheckpointLoadStatus)
        status.restore_new()
        session.run(other.a.assign(10.0))
        replaced, other.b, other.c = other.b, tf.Module(), tf.Module()
        replaced.v, other.b.v, other.c.v = tf.Variable(0.0), tf.Variable(20.0), tf.Variable(30.0)
        session.run([replaced.v.initializer, other.b.v.initializer])
        status.restore_new()  # `c` is new; another object stands where `b` was
        assert session.run([other.a, other.b.v, other.c.v]) == [10.0, 20.0, 3.0]


def test_of_two_restores_the_later_counts_for_what_is_made_afterwards(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        saved = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(2.0))
        session.run([saved.a.initializer, saved.b.initializer])
        first = saved.write(str(tmp_path / "first"))
        session.run([saved.a.assign(10.0), saved.b.assign(20.0)])
        second = saved.write(str(tmp_path / "second"))

        other = tf.train.Checkpoint(a=tf.Variable(0.0))
        earlier, later = other.restore(first), other.restore(second)
        other.b = tf.Variable(0.0)
        later.run_restore_ops()
        earlier.run_restore_ops()
        assert session.run([other.a, other.b]) == [1.0, 20.0]
        other.c = tf.Variable(5.0)
        earlier.initialize_or_restore()
        assert session.run(other.c) == 5.0


def test_saving_and_restoring_again_add_nothing_to_the_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        training = Training()
        session.run(tf.global_variables_initializer())
        paths = [training.checkpoint.save(str(tmp_path / "ckpt")) for _ in range(2)]
        training.checkpoint.restore(paths[0])
        graph.finalize()
        training.checkpoint.save(str(tmp_path / "ckpt"))
        training.checkpoint.restore(paths[1]).assert_consumed().run_restore_ops()


def test_a_checkpoint_in_the_place_of_another_is_there_at_every_moment(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(1.0)
        checkpoint = tf.train.Checkpoint(v=variable)
        path = str(tmp_path / "model")
        for value in (1.0, 2.0, 3.0):
            session.run(variable.assign(value))
            checkpoint.write(path)
            assert tf.train.load_variable(path, "v" + VALUE) == value
            assert len(checkpoint_store.list_files(path)) == (3 if value == 2.0 else 2)
        tf.train.Saver([variable]).save(session, path, write_meta_graph=False)  # of our own format
        checkpoint.write(path)
        assert sorted(name.name for name in tmp_path.iterdir() if name.name.startswith("model")) == [
            "model.data-00000-of-00002",
            "model.data-00001-of-00002",
            "model.index",
        ]
        tf.train.remove_checkpoint(path)
        assert not list(tmp_path.glob("model*"))


def test_what_was_not_used_is_told_when_a_restore_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "tensorflow")
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint = tf.train.Checkpoint(a=tf.Variable(1.0), left_over=tf.Variable(2.0))
        session.run([checkpoint.a.initializer, checkpoint.left_over.initializer])
        path = checkpoint.write(str(tmp_path / "both"))
        for expected in (True, False):
            caplog.clear()
            one = tf.train.Checkpoint(a=tf.Variable(0.0))
            status = one.restore(path)
            if expected:
                status.expect_partial()
            del one, status
            gc.collect()
            assert ("Unresolved object in checkpoint: (root).left_over" in caplog.text) is not expected


# ---------------------------------------------------------------------- kinds of objects
def test_layers_cells_and_templates_have_tensorflows_names(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        dense, normalization = tf.layers.Dense(2), tf.layers.BatchNormalization()
        normalization(dense(tf.ones([1, 3])), training=True)
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.LSTMCell(2), 0.5)])
        cell(tf.ones([1, 2]), cell.zero_state(1, tf.float32))
        inner = tf.make_template("inner", lambda: tf.get_variable("v", [2]))
        outer = tf.make_template("outer", lambda: (tf.get_variable("u", [2]), inner()))
        outer()
        checkpoint = tf.train.Checkpoint(layers=[dense, normalization], cell=cell, outer=outer)
        session.run(tf.global_variables_initializer())
        before = session.run([dense.kernel, outer.variables])
        path = checkpoint.write(str(tmp_path / "layers"))
        session.run(tf.global_variables_initializer())
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        after = session.run([dense.kernel, outer.variables])
        np.testing.assert_array_equal(np.concatenate(after[1]), np.concatenate(before[1]))
        np.testing.assert_array_equal(after[0], before[0])
    names = {name.removesuffix(VALUE) for name, _ in tf.train.list_variables(path)} - {OBJECTS}
    assert names == {
        *("layers/0/kernel", "layers/0/bias"),
        *(f"layers/1/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")),
        *("cell/cell-0/cell/kernel", "cell/cell-0/cell/bias"),
        *("outer/u", "outer/inner/v"),
    }


def test_partitioned_variables_are_saved_whole_with_their_slots(tmp_path: Path) -> None:
    def made() -> tuple[Any, tf.train.MomentumOptimizer, tf.Operation]:
        partitioner = tf.fixed_size_partitioner(2)
        table = tf.get_variable("table", [4, 2], partitioner=partitioner, initializer=tf.ones_initializer())
        optimizer = tf.train.MomentumOptimizer(0.5, 0.9)
        return (
            table,
            optimizer,
            optimizer.minimize(tf.reduce_sum(table.as_tensor() * tf.reshape(tf.range(8.0), [4, 2]))),
        )

    with tf.Graph().as_default(), tf.Session() as session:
        table, optimizer, train = made()
        session.run(tf.global_variables_initializer())
        session.run(train)
        expected = session.run(table.as_tensor())
        path = tf.train.Checkpoint(table=table, optimizer=optimizer).write(str(tmp_path / "parts"))
    slot = "table/.OPTIMIZER_SLOT/optimizer/momentum" + VALUE
    assert dict(tf.train.list_variables(path)) == {OBJECTS: [], "table" + VALUE: [4, 2], slot: [4, 2]}
    np.testing.assert_array_equal(tf.train.load_variable(path, slot), np.arange(8.0).reshape(4, 2))
    with tf.Graph().as_default(), tf.Session() as session:
        table, optimizer, train = made()
        checkpoint = tf.train.Checkpoint(table=table, optimizer=optimizer)
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        np.testing.assert_array_equal(session.run(table.as_tensor()), expected)
        session.run(train)
        checkpoint.write(str(tmp_path / "again"))
    again = tf.train.load_variable(str(tmp_path / "again"), slot)
    np.testing.assert_allclose(again, 1.9 * np.arange(8.0).reshape(4, 2), rtol=1e-6)


def test_positions_of_iterators_are_restored(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(10))
        number = iterator.get_next()
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        session.run(iterator.initializer)
        assert [session.run(number) for _ in range(3)] == [0, 1, 2]
        path = checkpoint.write(str(tmp_path / "position"))
        assert session.run(number) == 3
        checkpoint.restore(path).assert_consumed().initialize_or_restore()
        assert session.run(number) == 3


def test_loss_scales_and_optimizers_around_others_are_saved(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(1.0)
        optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(0.5), "dynamic")
        optimizer.minimize(v * v, var_list=[v])
        session.run(tf.global_variables_initializer())
        path = tf.train.Checkpoint(v=v, optimizer=optimizer).write(str(tmp_path / "scaled"))
    names = {name.removesuffix(VALUE) for name, _ in tf.train.list_variables(path)} - {OBJECTS}
    assert names == {
        *("v", "v/.OPTIMIZER_SLOT/optimizer/m", "v/.OPTIMIZER_SLOT/optimizer/v"),
        *("optimizer/base_optimizer/beta1_power", "optimizer/base_optimizer/beta2_power"),
        *("optimizer/loss_scale/current_loss_scale", "optimizer/loss_scale/good_steps"),
    }


def test_what_is_no_dependency_is_not_saved(tmp_path: Path) -> None:
    class Holder(tf.contrib.checkpoint.Checkpointable):
        pass

    with tf.Graph().as_default(), tf.Session() as session:
        holder: Any = Holder()
        holder.aside = tf.contrib.checkpoint.NoDependency(tf.Variable(1.0))
        holder.kept = tf.Variable(2.0)
        holder.gone = tf.Variable(3.0)
        del holder.gone
        session.run(tf.global_variables_initializer())
        assert session.run(holder.aside) == 1.0
        checkpoint = tf.train.Checkpoint(holder=holder)
        path = checkpoint.write(str(tmp_path / "kept"))
        assert dict(tf.train.list_variables(path)).keys() == {OBJECTS, "holder/kept" + VALUE}
        holder.aside = tf.Variable(4.0)  # and now it is one
        assert len(tf.contrib.checkpoint.list_objects(checkpoint)) == 4
        holder.named = {1: holder.kept}
        with pytest.raises(ValueError, match="non-string key, 1"):
            checkpoint.write(path)


# ---------------------------------------------------------------------- older files, other readers
def test_files_of_before_there_were_descriptions_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "older")
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training()
        training.checkpoint.restore(str(FIXTURES / "graph-1")).run_restore_ops()
        w, part = training.model.w, training.model.parts[0]
        powers = training.adam._get_beta_accumulators()
        named = {
            "shared": w,
            "model/parts/0": part,
            "model/parts/1/a.Sb": training.model.parts[1]["a/b"],
            "model/pair/0": training.model.pair[0],
            "step": training.step,
            "save_counter": training.checkpoint.save_counter,
            **{f"adam/{v.op.name}": v for v in powers},
            **{f"adam/{v.op.name.replace('/', '.S')}": v for v in [training.adam.get_slot(w, n) for n in ("m", "v")]},
        }
        momentum = training.momentum.get_slot(part, "momentum")
        named[f"momentum/{momentum.op.name.replace('/', '.S')}"] = momentum
        tf.train.Saver({name + VALUE: v for name, v in named.items()}).save(session, path, write_meta_graph=False)
    with tf.Graph().as_default(), tf.Session() as session:
        training = Training()
        training.checkpoint.restore(path).assert_consumed().run_restore_ops()
        check_trained(training.values(session))


def test_variables_start_from_checkpoints_of_objects() -> None:
    path = str(FIXTURES / "graph-1")
    with tf.Graph().as_default(), tf.Session() as session:
        w, inner = tf.get_variable("w", [2]), tf.get_variable("inner", [])
        tf.train.warm_start(path)
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(session.run(w), [0.5, 1.5], rtol=1e-6)
        assert session.run(inner) == 4.0
        other = tf.get_variable("other", [2])
        tf.train.init_from_checkpoint(path, {"shared" + VALUE: other})
        session.run(other.initializer)
        np.testing.assert_allclose(session.run(other), [0.5, 1.5], rtol=1e-6)


def test_a_drawing_of_the_objects() -> None:
    drawn = tf.contrib.checkpoint.dot_graph_from_checkpoint(str(FIXTURES / "graph-1"))
    assert drawn.startswith("digraph {\n")
    assert drawn.count("color=orange") == 3  # slots
    assert drawn.count("color=red") == 2
    assert 'tooltip="Variable w shape=[2] float32"' in drawn
    assert 'label="a/b"' in drawn
    with pytest.raises(ValueError, match="does not appear to be object-based"):
        tf.contrib.checkpoint.dot_graph_from_checkpoint(str(FIXTURES / "names"))


def test_other_formats_hold_them_too(tmp_path: Path) -> None:
    source = str(FIXTURES / "graph-1")
    for target, kind in (("own", "anabranch"), ("again", "tensorflow")):
        assert convert.convert(source, str(tmp_path / target), kind) == 12
        with tf.Graph().as_default(), tf.Session() as session:
            training = Training()
            training.checkpoint.restore(str(tmp_path / target)).assert_consumed().run_restore_ops()
            check_trained(training.values(session))
    plain = str(tmp_path / "plain.safetensors")
    assert convert.convert(source, plain, "safetensors") == 11  # all but the description
    assert tf.train.load_variable(plain, "step" + VALUE) == 1


# ---------------------------------------------------------------------- damage
def written(path: Path, message: TrackableObjectGraph | bytes | np.ndarray[Any, Any]) -> str:
    """A checkpoint with a variable `v` and a description."""
    described = message.SerializeToString() if isinstance(message, TrackableObjectGraph) else message
    value = described if isinstance(described, np.ndarray) else np.array(described, object)
    tensor_bundle_writer.write_bundle(path, [(OBJECTS, value), ("v" + VALUE, np.float32(7.0))], replace=True)
    return str(path)


def test_damaged_descriptions_say_what_is_wrong(tmp_path: Path) -> None:
    empty = TrackableObjectGraph()
    child, slot, original = TrackableObjectGraph(), TrackableObjectGraph(), TrackableObjectGraph()
    child.nodes.add().children.add(node_id=5, local_name="v")
    slot.nodes.add().slot_variables.add(slot_name="m", slot_variable_node_id=-3)
    original.nodes.add().slot_variables.add(slot_name="m", original_variable_node_id=1 << 30)
    cases: list[tuple[Any, str]] = [
        (empty, "no object, not even a root"),
        (child, "object 0 holds under 'v' object 5, but there are 1 objects"),
        (slot, "object 0 has as the slot 'm' object -3"),
        (original, "slot 'm' belongs to object 1073741824"),
        (b"\xff\xff\xff", "parsing message"),
        (np.float32([1.0]), r"float32 of shape \[1\], and no string"),
    ]
    with tf.Graph().as_default():
        checkpoint = tf.train.Checkpoint(v=tf.Variable(0.0))
        for message, problem in cases:
            path = written(tmp_path / "damaged", message)
            with pytest.raises(errors.DataLossError, match=f"{path}.*{problem}|{problem}") as caught:
                checkpoint.restore(path)
            assert path in str(caught.value)
            assert OBJECTS in str(caught.value)


def test_circles_and_values_that_are_not_there(tmp_path: Path) -> None:
    message = TrackableObjectGraph()
    for number in range(2000):  # each holds all others that are near, itself too
        node = message.nodes.add()
        for other in range(number - 3, number + 4):
            node.children.add(node_id=max(0, min(other, 1999)), local_name=f"o{other}")
    message.nodes[0].children.add(node_id=1999, local_name="v")
    message.nodes[1999].attributes.add(name="VARIABLE_VALUE", checkpoint_key="v" + VALUE)
    message.nodes[1000].attributes.add(name="VARIABLE_VALUE", checkpoint_key="absent" + VALUE)
    path = written(tmp_path / "circles", message)
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(0.0)
        status = tf.train.Checkpoint(v=variable).restore(path)
        with pytest.raises(AssertionError, match=r"\(root\)\.o"):
            status.assert_consumed()
        status.expect_partial().run_restore_ops()
        assert session.run(variable) == 7.0

        message.nodes[1999].attributes[0].checkpoint_key = "absent" + VALUE
        absent = tf.train.Checkpoint(v=variable).restore(written(tmp_path / "absent", message)).expect_partial()
        with pytest.raises(errors.NotFoundError, match="Key absent/.ATTRIBUTES/VARIABLE_VALUE not found in checkpoint"):
            absent.run_restore_ops()
        other = tf.train.Checkpoint(v=tf.Variable([0.0, 0.0])).restore(path).expect_partial()
        with pytest.raises(errors.InvalidArgumentError, match=r"wanted float32 \[2\], stored float32 \[\]"):
            other.run_restore_ops()


def test_two_ways_to_an_object_that_lead_to_two_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "tensorflow")
    with tf.Graph().as_default(), tf.Session() as session:
        shared = tf.Variable(3.0)
        session.run(shared.initializer)
        path = tf.train.Checkpoint(a=shared, b=shared).write(str(tmp_path / "shared"))
        apart = tf.train.Checkpoint(a=tf.Variable(0.0), b=tf.Variable(1.0))
        status = apart.restore(path)
        assert "Two checkpoint references to (root).a resolved to different objects" in caplog.text
        with pytest.raises(AssertionError, match=r"\(b\)"):
            status.assert_existing_objects_matched()
        status.initialize_or_restore()
        assert session.run([apart.a, apart.b]) == [3.0, 1.0]


def test_copies_of_cells_hold_copies_of_what_those_hold() -> None:
    with tf.Graph().as_default():
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(2)])
        again = copy.deepcopy(cell)
        held = dict(again._checkpoint_dependencies)
        assert held["cell-0"] is held["_cells"][0]
        assert held["cell-0"] is not dict(cell._checkpoint_dependencies)["cell-0"]
