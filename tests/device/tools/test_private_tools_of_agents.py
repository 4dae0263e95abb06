"""Private modules that libraries of agents and official models take: profiles, monitoring, messages of structures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import derived_seeds, eager_profiler, monitoring, reduced_shapes, structure_messages
from anabranch.contrib import all_reduce
from anabranch.frontend.bounded_specs import BoundedTensorSpec
from anabranch.proto import profile_pb2
from anabranch.tools.tensorflow_alias import absence_of


def test_they_are_where_programs_look_for_them() -> None:
    names = (
        "eager.profiler.start",
        "eager.monitoring.IntGauge",
        "saved_model.nested_structure_coder.StructureCoder",
        "ops.distributions.util.gen_new_seed",
        "ops.math_ops.reduced_shape",
        "training.tracking.base.TrackableReference",
    )
    assert [absence_of(f"tensorflow.python.{name}") for name in names] == [None] * len(names)


def test_a_profile_of_the_process_is_written_where_tensorboard_looks(tmp_path: Path) -> None:
    with pytest.raises(eager_profiler.ProfilerNotRunningError):
        eager_profiler.stop()
    with tf.Session() as session, eager_profiler.Profiler(str(tmp_path)):
        with pytest.raises(eager_profiler.ProfilerAlreadyRunningError):
            eager_profiler.start()
        session.run(tf.matmul(np.ones([64, 64], np.float32), tf.ones([64, 64]) + session.run(tf.constant(1.0))))
    (profile,) = tmp_path.glob("plugins/profile/*/local.xplane.pb")
    assert profile_pb2.Space.FromString(profile.read_bytes()).planes
    assert len(list(tmp_path.glob("*.profile-empty"))) == 1
    eager_profiler.maybe_create_event_file(str(tmp_path))
    assert len(list(tmp_path.glob("*.profile-empty"))) == 1


def test_numbers_that_libraries_count() -> None:
    counter = monitoring.Counter("calls", "how many", "method")
    counter.get_cell("a").increase_by(2)
    counter.get_cell("a").increase_by(3)
    assert (counter.get_cell("a").value(), counter.get_cell("b").value()) == (5, 0)
    with pytest.raises(ValueError, match="labels"):
        counter.get_cell()
    with pytest.raises(ValueError, match="fall"):
        counter.get_cell("a").increase_by(-1)
    gauge, text, flag = (kind("g", "d") for kind in (monitoring.IntGauge, monitoring.StringGauge, monitoring.BoolGauge))
    assert (gauge.get_cell().value(), text.get_cell().value(), flag.get_cell().value()) == (0, "", False)
    gauge.get_cell().set(7)
    assert gauge.get_cell().value() == 7
    sampler = monitoring.Sampler("s", monitoring.ExponentialBuckets(1.0, 2.0, 3), "d")
    for sample in (0.5, 1.0, 3.0, 100.0):
        sampler.get_cell().add(sample)
    assert sampler.get_cell().value() == [1, 1, 1, 1]


class Pair(NamedTuple):
    """Two things."""

    first: Any
    second: Any


def test_structures_become_messages_and_come_back() -> None:
    coder = structure_messages.StructureCoder()
    spec, bounded = tf.TensorSpec([None, 2], tf.float32, "x"), BoundedTensorSpec([2], tf.int32, 0, [3, 4], "b")
    given: dict[str, Any] = {"a": [1, 2.5, "text", None, True], "c": (spec, bounded)}
    given["b"] = (tf.TensorShape([3]), tf.int64, Pair([], ()))
    made = coder.decode_proto(coder.encode_structure(given))
    assert made["a"] == given["a"]
    assert made["b"] == given["b"]
    assert type(made["b"][2]).__name__ == "Pair"
    assert made["c"][0] == spec
    assert (made["c"][1].dtype, made["c"][1].maximum.tolist()) == (tf.int32, [3, 4])
    assert coder.can_encode(given)
    assert not coder.can_encode([object()])


def test_seeds_from_seeds() -> None:
    seeds = {derived_seeds.gen_new_seed(seed, salt) for seed in (1, 2) for salt in ("a", "b")}
    assert len(seeds) == 4
    assert all(seed is not None and 0 <= seed < 2**31 for seed in seeds)
    assert derived_seeds.gen_new_seed(None, "a") is None


def test_a_bounded_spec_of_one_with_numpys_dtype() -> None:
    class Spec:
        shape, dtype, name = (2,), np.dtype(np.int32), "n"

    made = BoundedTensorSpec.from_spec(Spec())  # type: ignore[arg-type]
    assert (made.dtype, made.shape.as_list(), made.name) == (tf.int32, [2], "n")
    assert (made.minimum == np.iinfo(np.int32).min).all()


def test_copies_of_sparse_and_ragged_tensors() -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    with tf.control_dependencies([tf.assign_add(v, [1.0, 1.0])]):
        sparse = tf.identity(tf.SparseTensor([[0, 1], [1, 0]], [3, 4], [2, 2]), name="s")
        ragged = tf.identity(tf.ragged.constant([[1, 2], [], [3]]))
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(sparse).values.tolist() == [3, 4]
        assert session.run(v).tolist() == [2.0, 3.0]
        assert session.run(ragged).to_list() == [[1, 2], [], [3]]


def test_what_libraries_ask_the_one_replica_for() -> None:
    extended = tf.distribute.get_strategy().extended
    v, w = tf.get_variable("v", initializer=1.0), tf.get_variable("w", initializer=5.0)
    update = extended.update(v, lambda a, b, factor: a.assign_add(b * factor), args=(2.0,), kwargs={"factor": 3.0})
    assert extended.update(v, lambda _: 1, group=False) == (1,) == extended.update_non_slot(v, lambda: 1, group=False)
    assert extended.non_slot_devices([w, v]) is v
    assert extended.call_for_each_replica(lambda x: x + 1, (1,)) == 2
    assert extended.value_container(extended.reduce_to("SUM", 3, None)) == 3
    with pytest.raises(ValueError, match="MAX"):
        extended.reduce_to("MAX", 3, None)
    with extended.colocate_vars_with(v), tf.Session() as session:
        session.run(v.initializer)
        session.run(update)
        assert session.run(extended.read_var(v)) == 7.0
    assert extended.variable_created_in_scope(v)


def test_arrays_of_lists_are_joined_element_by_element() -> None:
    raw, no_shape = tf.raw_ops, np.zeros([0], np.int32)
    lists = tf.stack([raw.TensorListFromTensor(tensor=[i, 2], element_shape=no_shape) for i in range(2)])
    joined = raw.TensorListConcatLists(input_a=lists, input_b=lists, element_dtype=tf.int32)
    assert joined.shape.as_list() == [2]
    stacked = [
        raw.TensorListStack(input_handle=joined[i], element_shape=no_shape, element_dtype=tf.int32) for i in range(2)
    ]
    with tf.Session() as session:
        assert [each.tolist() for each in session.run(stacked)] == [[0, 2, 0, 2], [1, 2, 1, 2]]


def test_datasets_take_turns_by_as_many_as_there_are_processors() -> None:
    dataset = tf.data.Dataset.range(1).interleave(lambda x: tf.data.Dataset.from_tensors(x + 1).repeat(2))
    element = dataset.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [int(session.run(element)) for _ in range(2)] == [1, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)


def test_shapes_of_reductions() -> None:
    with tf.Session() as session:
        assert session.run(reduced_shapes.reduced_shape([2, 3, 5], -1)).tolist() == [2, 3, 1]
        assert session.run(reduced_shapes.reduced_shape([2, 3, 5], [0, -2])).tolist() == [1, 1, 5]


def test_messages_of_tensors_are_tensors() -> None:
    message = tf.make_tensor_proto([[1, 2]], tf.int64)
    with tf.Session() as session:
        assert session.run(tf.constant(message)).tolist() == [[1, 2]]
        assert session.run(tf.convert_to_tensor(message) + [1]).dtype == np.int64


def test_elements_of_a_variable_of_strings() -> None:
    words = tf.get_variable("words", initializer=[["a", "b"], ["c", "d"]])
    rows, element = tf.gather(words, [1, 0]), tf.gather_nd(words, [[1, 0]])
    with tf.Session() as session:
        session.run(words.initializer)
        assert session.run(rows).tolist() == [[b"c", b"d"], [b"a", b"b"]]
        assert session.run(element).tolist() == [b"c"]
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
            session.run(tf.gather(words, [2]))


def test_each_device_gets_what_all_have_together() -> None:
    names = [f"tensorflow.contrib.all_reduce.python.all_reduce.build_{kind}_all_reduce" for kind in ("nccl", "ring")]
    assert [absence_of(name) for name in names] == [None, None]
    tensors = [tf.constant([float(i), 1.0]) for i in range(3)]
    results = [
        all_reduce.build_nccl_all_reduce(tensors, tf.add),
        all_reduce.build_ring_all_reduce(tensors, 1, 2, [0, 1, 2], tf.add),
        all_reduce.build_nccl_then_ring(tensors, 1, tf.add),
        all_reduce.build_shuffle_all_reduce(tensors, ["cpu:0"], tf.add_n),
        all_reduce.build_nccl_then_shuffle(tensors, ["cpu:0"], tf.add, tf.add_n),
        all_reduce.build_shuffle_then_shuffle(tensors, ["cpu:0"], ["cpu:0"], tf.add_n),
        all_reduce.build_shuffle_then_ring(tensors, ["cpu:0"], 1, tf.add_n, tf.add),
    ]
    halves = all_reduce.build_recursive_hd_all_reduce(tensors, tf.maximum, lambda x: x / 2)
    with tf.Session() as session:
        for of_all in session.run(results):
            assert [each.tolist() for each in of_all] == [[3.0, 3.0]] * 3
        assert [each.tolist() for each in session.run(halves)] == [[1.0, 0.5]] * 3
    with pytest.raises(ValueError, match="empty"):
        all_reduce.build_nccl_all_reduce([], tf.add)
