"""The comparison of first steps: what is kept comes back, and differences are found where they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.first_steps.moments import Moment, dense, difference, read, write
from tests.first_steps.watcher import Watcher, ancestors


def test_moments_are_kept(tmp_path: Path) -> None:
    moment = Moment("optimizer", ["w"], {"w": np.zeros(3)}, {"x:0": np.array([b"a", b"bc"])})
    moment.drawn, moment.kinds = {"r": [np.ones(2), np.zeros(())]}, {"r": "RandomUniform"}
    moment.gradients = [np.full(3, np.nan, np.float32)]
    write(tmp_path / "kept.npz", {2: moment})
    back = read(tmp_path / "kept.npz")[2]
    assert (back.kind, back.names, back.kinds, back.within) == ("optimizer", ["w"], moment.kinds, [])
    assert back.fed["x:0"].tolist() == [b"a", b"bc"]
    np.testing.assert_array_equal(back.drawn["r"][0], np.ones(2))
    np.testing.assert_array_equal(back.gradients[0], moment.gradients[0])
    assert read(tmp_path / "none.npz") == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([np.nan, 2.0], [np.nan, 2.0], 0.0),
        ([1.0, 2.0], [np.nan, 2.0], np.nan),
        ([0.0, np.nan], [0.0, 2.0], np.nan),
        ([1.0], [1.0, 0.0], 0.0),
        ([1e-9], [2e-9], 1e-6),
    ],
)
def test_differences(ours: list[float], theirs: list[float], found: float) -> None:
    sides = [Moment("optimizer", ["w", "v"], gradients=[np.array(g), np.full(1, 10.0)]) for g in (ours, theirs)]
    np.testing.assert_allclose(difference(*sides)[0], found)


def test_rows_of_sparse_gradients_are_summed() -> None:
    rows = dense([3, 2], np.array([2, 0, 2]), np.ones((3, 2)))
    assert rows.tolist() == [[1, 1], [0, 0], [2, 2]]


@contextlib.contextmanager
def _watched(path: Path, kept: Path | None) -> Iterator[tuple[Any, Watcher]]:
    """An interface like anabranch's, whose optimizers and sessions are watched; the package's own stay as they are."""

    class Optimizer(tf.train.GradientDescentOptimizer):
        def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
            return super().apply_gradients(*args, **kwargs)

    class Session(tf.Session):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            return super().run(*args, **kwargs)

    names = ("GraphKeys", "SparseTensorValue")
    module = SimpleNamespace(**{name: getattr(tf, name) for name in names})
    module.train = SimpleNamespace(Optimizer=Optimizer)
    module.gradients = tf.gradients
    module.Session = module.InteractiveSession = Session
    watcher = Watcher(module, path, kept, 0.0, lambda: None)
    watcher.install()
    yield module, watcher


def _program(module: Any, start: float, fed: float, seed: int) -> float:
    """Two steps of a program; gives the variable after them."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2], "x")
        w = tf.get_variable("w", initializer=[start, 1.0])
        table = tf.get_variable("table", initializer=tf.ones([3, 2]))
        noise = tf.random_uniform([2], seed=seed, name="noise")
        loss = tf.reduce_sum(w * w * x * noise) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 1]) * x)
        train = module.train.Optimizer(0.1).minimize(loss)
        slope = module.gradients(loss, x)[0]
        with module.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {x: [fed, 2.0]})
            session.run([slope], {x: [3.0, fed]})
            return float(session.run(w)[0])


def test_a_step_is_made_again_from_what_was_kept(tmp_path: Path) -> None:
    with _watched(tmp_path / "one.npz", None) as (module, watcher):
        _program(module, 0.5, 1.0, 1)
        assert sorted(watcher.moments) == [0, 1]
    with _watched(tmp_path / "two.npz", tmp_path / "one.npz") as (module, watcher):
        after = _program(module, 7.0, 9.0, 2)
    one, two = read(tmp_path / "one.npz"), read(tmp_path / "two.npz")
    assert [moment.names for moment in one.values()] == [["w", "table"], ["x"]]
    assert one[0].kinds == {"noise/RandomUniform": "RandomUniform"}
    np.testing.assert_allclose(one[0].gradients[0], 2 * np.array([0.5, 2.0]) * one[0].drawn["noise/RandomUniform"][0])
    assert one[0].gradients[1].tolist() == [[0, 0], [2, 4], [0, 0]]
    for number in (0, 1):
        assert difference(two[number], one[number])[0] < 1e-6
        assert two[number].unknown == []
        assert two[number].made_from == number
    assert after < 0.5  # it went on from the variables that were loaded


def test_what_the_other_side_did_not_have_is_told(tmp_path: Path) -> None:
    with _watched(tmp_path / "one.npz", None) as (module, _):
        _program(module, 0.5, 1.0, 1)
    kept = read(tmp_path / "one.npz")
    kept[0].drawn.clear()
    del kept[1]
    write(tmp_path / "one.npz", kept)
    with _watched(tmp_path / "two.npz", tmp_path / "one.npz") as (module, watcher):
        _program(module, 0.5, 1.0, 1)
    assert watcher.moments[0].unknown == ["RandomUniform noise/RandomUniform (here only)"]
    assert watcher.moments[1].unknown == ["the other side has no such step"]


def test_ancestors_hold_control_inputs() -> None:
    with tf.Graph().as_default():
        a = tf.constant(1.0, name="a")
        with tf.control_dependencies([tf.no_op("first")]):
            b = tf.identity(a, "b")
        assert set(ancestors([b.op])) == {"a", "b", "first"}
