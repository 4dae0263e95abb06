"""The wrappers of `tf.contrib.opt`: old gradients, zeros, norms of variables, moving averages."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

opt = tf.contrib.opt


# ---------------------------------------------------------------------- old gradients
@pytest.mark.parametrize("inner", [tf.train.GradientDescentOptimizer(0.5), tf.train.AdamOptimizer(0.5)])
def test_old_gradients_are_dropped(inner: Any) -> None:
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[4.0])
    seen = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
    made = opt.DropStaleGradientOptimizer(inner, staleness=1)
    pairs = made.compute_gradients(tf.reduce_sum(w))
    others = step.assign_add(seen)  # what other workers do between the two
    with tf.control_dependencies([made._local_step, others, *(grad for grad, _ in pairs)]):
        late = [(tf.identity(grad), var) for grad, var in pairs]
    train = made.apply_gradients(late, global_step=step)
    values = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for count in (0, 1, 2, 5, 1):
            dropped = session.run(train, {seen: count})
            values.append((float(session.run(w)[0]), int(session.run(step)), float(dropped)))
    np.testing.assert_allclose(values, [(3.5, 1, 0), (3, 3, 0), (3, 5, 1), (3, 10, 2), (2.5, 12, 2)], atol=1e-4)
    assert made.get_slot_names() == inner.get_slot_names()
    tags = [op.name for op in tf.get_default_graph().get_operations() if op.type == "ScalarSummary"]
    assert tags == ["Gradient_staleness_percentage"]


def test_workers_in_threads_drop_what_is_old() -> None:
    """Each gradient is either applied and counted by the global step, or counted as dropped."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=0.0)
    made = opt.DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(1.0), staleness=0)
    train = made.minimize(-w, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def work() -> None:
            for _ in range(10):
                session.run(train)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        value, count, dropped = session.run([w, step, "stale_counter:0"])
    assert count + dropped == 30
    assert count >= 1
    assert value == count


def test_steps_that_cannot_be_compared() -> None:
    w = tf.get_variable("w", initializer=[4.0])
    made = opt.DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(0.5), 1)
    with pytest.raises(ValueError, match="the graph has none"):
        made.compute_gradients(tf.reduce_sum(w))
    step = tf.train.get_or_create_global_step()
    with pytest.raises(ValueError, match="give global_step"):
        made.apply_gradients([(tf.ones([1]), w)])
    with pytest.raises(ValueError, match="call compute_gradients first"):
        made.apply_gradients([(tf.ones([1]), w)], global_step=step)


# ---------------------------------------------------------------------- zeros
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", ["momentum", "adam", "lazy"])
def test_zeros_leave_no_trace(kind: str, is_sparse: bool) -> None:
    inner = {
        "momentum": lambda: tf.train.MomentumOptimizer(0.25, 0.9),
        "adam": lambda: tf.train.AdamOptimizer(0.25),
        "lazy": lambda: opt.LazyAdamOptimizer(0.25),
    }[kind]()
    made = opt.MultitaskOptimizerWrapper(inner)
    a, b = (tf.get_variable(name, initializer=np.ones([3, 2], np.float32)) for name in "ab")
    fed = [tf.placeholder(tf.float32, [2, 2] if is_sparse else [3, 2]) for _ in "ab"]
    # rows that stand twice: their sum counts
    grads = [tf.IndexedSlices(value, tf.constant([1, 1]), [3, 2]) for value in fed] if is_sparse else fed
    train = made.apply_gradients(zip(grads, [a, b], strict=True))
    names = made.get_slot_names()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        some, zero = np.ones(fed[0].shape.as_list()), np.zeros(fed[0].shape.as_list())
        if is_sparse:
            zero = np.array([[1.0, 2.0], [-1.0, -2.0]])
        session.run(train, {fed[0]: some, fed[1]: some})
        before = session.run([a, *(made.get_slot(a, name) for name in names)])
        other = session.run(b)
        session.run(train, {fed[0]: zero, fed[1]: some})
        after = session.run([a, *(made.get_slot(a, name) for name in names)])
        for value, same in zip(before, after, strict=True):
            np.testing.assert_array_equal(value, same)
        assert (session.run(b)[1] != other[1]).all()


def test_norms_of_several_gradients() -> None:
    variables = [tf.get_variable(name, [2]) for name in "abcd"]
    grads = [tf.constant([10.0, 15.0]), tf.IndexedSlices(tf.constant([5.0]), tf.constant([1]), [2]), None]
    pairs, norm = opt.clip_gradients_by_global_norm(zip([*grads, tf.zeros([2])], variables, strict=True), 7.0)
    expected = np.sqrt(100 + 225 + 25)
    with tf.Session() as session:
        assert pairs[2] == (None, variables[2])
        found = session.run([norm, pairs[0][0], pairs[1][0].values, pairs[3][0]])
    for value, wanted in zip(found, [expected, np.array([70, 105]) / expected, [35 / expected], [0, 0]], strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)
    with pytest.raises(TypeError, match="instance of tf.train.Optimizer, got str"):
        opt.MultitaskOptimizerWrapper("adam")


# ---------------------------------------------------------------------- norms of variables
def clipped(value: Any, axis: int | tuple[int, ...], limit: float) -> Any:
    norm = np.sqrt((value**2).sum(axis, keepdims=True))
    return value * np.minimum(1, limit / norm)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dims", [[1], [0], [0, 1]])
@pytest.mark.parametrize("is_colocated", [False, True])
def test_variables_become_shorter(is_sparse: bool, dims: list[int], is_colocated: bool) -> None:
    start = np.array([[3.0, 4.0], [0.1, 0.2], [6.0, 8.0], [1.0, 5.0]])
    v, other = tf.get_variable("v", initializer=start), tf.get_variable("other", initializer=start)
    rows, indices = np.array([[0.5, -0.5], [1.0, 1.0], [0.25, 0.25]]), [2, 1, 2]
    whole = np.zeros_like(start)
    np.add.at(whole, indices, rows)
    grad = tf.IndexedSlices(tf.constant(rows), tf.constant(indices), [4, 2]) if is_sparse else tf.constant(whole)
    made = opt.VariableClippingOptimizer(
        tf.train.MomentumOptimizer(1.0, 0.9), {v: dims}, 2.0, colocate_clip_ops_with_vars=is_colocated
    )
    step = tf.train.get_or_create_global_step()
    train = made.apply_gradients([(grad, v), (grad, other), (None, tf.get_variable("n", [2]))], global_step=step)
    moved = start - whole
    expected = clipped(moved, tuple(dims), 2.0)
    if is_sparse and dims == [1]:
        expected[[0, 3]] = start[[0, 3]]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        found = session.run([v, other, step])
        np.testing.assert_allclose(found[0], expected, rtol=1e-6)
        np.testing.assert_allclose(found[1], moved, rtol=1e-6)
        assert found[2] == 1
    assert made.get_slot_names() == ["momentum"]
    assert made.get_slot(v, "momentum").shape.as_list() == [4, 2]


# ---------------------------------------------------------------------- moving averages
@pytest.mark.parametrize("is_sequential", [True, False])
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_averages_are_saved_in_place_of_variables(is_sequential: bool, is_partitioned: bool, tmp_path: Path) -> None:
    starts = {"a": np.array([[10.0, 11.0], [2.0, 3.0]], np.float32), "b": np.array([4.0], np.float32)}

    def variables() -> list[Any]:
        partitioner = tf.fixed_size_partitioner(2) if is_partitioned else None
        with tf.variable_scope("", partitioner=partitioner):
            a = tf.get_variable("a", initializer=tf.constant(starts["a"]))
        return [tf.convert_to_tensor(a), tf.get_variable("b", initializer=starts["b"])]

    a, b = variables()
    made = opt.MovingAverageOptimizer(
        tf.train.MomentumOptimizer(2.0, 0.5), average_decay=0.5, sequential_update=is_sequential
    )
    with pytest.raises(RuntimeError, match="before creating the swapping_saver"):
        made.swapping_saver()
    step = tf.train.get_or_create_global_step()
    train = made.minimize(0.1 * tf.reduce_sum(a) + 0.01 * tf.reduce_sum(b), global_step=step)
    after = [op for op in train.graph.get_operations() if "Momentum" in {before.name for before in op.control_inputs}]
    assert bool({op.name for op in after} - {train.name}) == is_sequential
    saver, plain = made.swapping_saver(), tf.train.Saver()
    kept = {"a": starts["a"].copy(), "b": starts["b"].copy()}
    averages = {"a": starts["a"].copy(), "b": starts["b"].copy()}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        speed = {"a": 0.0, "b": 0.0}
        for _ in range(3):
            session.run(train)
            for name, grad in (("a", 0.1), ("b", 0.01)):
                speed[name] = 0.5 * speed[name] + grad
                kept[name] -= 2 * speed[name]
                averages[name] = 0.5 * averages[name] + 0.5 * kept[name]
        path = saver.save(session, str(tmp_path / "swapped"))
        for found, name in zip(session.run([a, b]), "ab", strict=True):
            np.testing.assert_allclose(found, kept[name], rtol=1e-5)
        plain_path = plain.save(session, str(tmp_path / "plain"))
        session.run(tf.global_variables_initializer())
        saver.restore(session, path)  # what was swapped is swapped again
        np.testing.assert_allclose(session.run(a), kept["a"], rtol=1e-5)
    if is_sequential:
        names = ["a/part_0", "a/part_1"] if is_partitioned else ["a"]
        reader, other = tf.train.load_checkpoint(path), tf.train.load_checkpoint(plain_path)
        np.testing.assert_allclose(reader.get_tensor("a"), averages["a"], rtol=1e-5)
        np.testing.assert_allclose(reader.get_tensor("b/ExponentialMovingAverage"), kept["b"], rtol=1e-5)
        np.testing.assert_allclose(other.get_tensor("a"), kept["a"], rtol=1e-5)
        assert reader.get_tensor("global_step") == 3
        assert len(names) == len([v for v in tf.trainable_variables() if v.op.name.startswith("a")])
        with tf.Graph().as_default(), tf.Session() as session:  # a model that knows nothing of averages
            a, b = variables()
            tf.train.Saver().restore(session, path)
            np.testing.assert_allclose(session.run(a), averages["a"], rtol=1e-5)
            np.testing.assert_allclose(session.run(b), averages["b"], rtol=1e-5)
    assert made.get_slot_names() == ["momentum"]


def test_savers_of_some_variables(tmp_path: Path) -> None:
    a, b = (tf.get_variable(name, initializer=[1.0]) for name in "ab")
    made = opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 0.5)
    made.minimize(a + b, var_list=[a])
    average = next(v for v in tf.global_variables() if v.op.name == "a/ExponentialMovingAverage")
    with pytest.raises(ValueError, match="This breaks MovingAverageOptimizer"):
        made.swapping_saver([a, b])
    for given in ([a, b, average], {"a": a, "renamed": b, "a/ExponentialMovingAverage": average}):
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(average.assign([5.0]))
            path = made.swapping_saver(given).save(session, str(tmp_path / "some"))
        reader = tf.train.load_checkpoint(path)
        assert reader.get_tensor("a").tolist() == [5.0]
        assert reader.get_tensor("a/ExponentialMovingAverage").tolist() == [1.0]
        assert reader.has_tensor("renamed") == isinstance(given, dict)
