"""The random functions: names, dtypes, shapes, arguments, and what seeds of the graph and of the operation do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.arithmetic import random
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.framework import set_random_seed
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize("shape", [[2, 3], (2, 3), TensorShape([2, 3]), np.array([2, 3]), [np.int64(2), 3]])
def test_shapes(shape: Any) -> None:
    tensor = random.random_uniform(shape)
    assert tensor.shape.as_list() == [2, 3]
    assert run(tensor).shape == (2, 3)


def test_shapes_with_unknown_parts() -> None:
    rows = raw.Placeholder(dtype="int32", shape=[])
    tensor = random.random_normal([rows, 3])
    assert tensor.shape.as_list() == [None, 3]
    assert run(tensor, {rows: 4}).shape == (4, 3)
    assert run(random.random_uniform([])).shape == ()


@pytest.mark.parametrize("dtype", dtypes.FLOATING)
def test_floating_types(dtype: Any) -> None:
    made = [
        random.random_uniform([100], 2, 3, dtype),
        random.random_normal([100], 5.0, 0.0, dtype),
        random.truncated_normal([100], 5.0, 0.1, dtype),
    ]
    uniform, constant, near = run(made)
    assert all(t.dtype is dtype for t in made)
    assert uniform.min() >= 2
    assert uniform.max() <= 3
    assert np.all(constant == 5)
    assert np.all(np.abs(near.astype(np.float64) - 5) < 0.21 + 0.05)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64])
def test_integers(dtype: Any) -> None:
    tensor = random.random_uniform([50], 3, 6, dtype)
    assert tensor.dtype is dtype
    assert set(run(tensor)) == {3, 4, 5}


def test_shapes_that_no_int32_holds() -> None:
    for make in (random.random_uniform, random.random_normal, random.truncated_normal):
        assert make([2**33, 1]).shape.as_list() == [2**33, 1]
        assert make([]).shape.as_list() == []
    whole = random.random_uniform([2, 3], maxval=9, dtype=dtypes.int64)
    assert whole.op.inputs[0].dtype is dtypes.int32


def test_bad_arguments_of_random_uniform() -> None:
    with pytest.raises(ValueError, match="Must specify maxval"):
        random.random_uniform([2], dtype=dtypes.int32)
    with pytest.raises(ValueError, match="Invalid dtype"):
        random.random_uniform([2], dtype=dtypes.uint8, maxval=2)
    with pytest.raises(InvalidArgumentError, match="Need minval < maxval, got 5 >= 2"):
        run(random.random_uniform([2], 5, 2, dtypes.int32))


def test_names() -> None:
    assert random.random_uniform([2]).op.name == "random_uniform"
    assert random.random_uniform([2], name="u").op.name == "u"
    assert random.random_normal([2]).op.name == "random_normal"
    assert random.truncated_normal([2]).op.name == "truncated_normal"
    assert random.random_uniform([2], maxval=3, dtype=dtypes.int32).op.name == "random_uniform_1"
    assert random.random_shuffle([2]).op.name == "RandomShuffle"
    assert random.multinomial([[1.0]], 2).op.name == "multinomial/Multinomial"


def test_the_gradients_by_mean_and_deviation() -> None:
    mean, deviation = (raw.Const(value=np.float32(v), dtype="float32") for v in (1.0, 2.0))
    numbers = random.random_normal([1000], mean, deviation, seed=1)
    by_mean, by_deviation, values = run([*gradients(numbers, [mean, deviation]), numbers])
    assert by_mean == 1000
    np.testing.assert_allclose(by_deviation, ((values - 1) / 2).sum(), rtol=1e-3, atol=1e-2)


def test_gamma_and_poisson() -> None:
    gamma = random.random_gamma([5], [[1.0], [2.0]], beta=[1.0, 2.0, 4.0], seed=3)
    assert gamma.shape.as_list() == [5, 2, 3]
    assert np.all(run(gamma) > 0)
    poisson = random.random_poisson([1.0, 50.0], [200], dtype=dtypes.int64, seed=3)
    assert poisson.shape.as_list() == [200, 2]
    np.testing.assert_allclose(run(poisson).mean(axis=0), [1.0, 50.0], rtol=0.3)
    assert run(random.random_poisson(3, [2])).dtype == np.float32
    with pytest.raises(InvalidArgumentError, match=r"must not be negative, got -1"):
        run(random.random_poisson([-1.0], [2]))


def test_multinomial_and_categorical() -> None:
    logits = np.log([[0.5, 0.5, 1e-30], [1e-30, 0.5, 0.5]])
    found, same = run([random.multinomial(logits, 50, seed=1), random.categorical(logits, 50, "int32", seed=1)])
    assert found.dtype == np.int64
    assert same.dtype == np.int32
    assert set(found[0]) == {0, 1}
    assert set(found[1]) == {1, 2}


def test_stateless_functions() -> None:
    seed = [3, 4]
    made = [
        random.stateless_random_uniform([4], seed, 2, 3),
        random.stateless_random_uniform([4], seed, 2, 9, dtypes.int32),
        random.stateless_random_normal([4], seed, 10.0, 0.1),
        random.stateless_truncated_normal([4], seed, -10.0, 0.1),
        random.stateless_multinomial([[0.0, 0.0]], 4, seed),
        random.stateless_categorical([[0.0, 0.0]], 4, seed),
    ]
    first, second = run(made), run(made)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all((first[0] >= 2) & (first[0] < 3))
    assert np.all(np.abs(first[2] - 10) < 1)
    assert np.all(np.abs(first[3] + 10) <= 0.2001)


def test_parameterized_truncated_normal() -> None:
    values = run(random.parameterized_truncated_normal([2, 100], [0.0, 100.0], 1.0, [-1.0, 99.0], [1.0, 101.0], seed=1))
    assert np.all(np.abs(values - [[0.0], [100.0]]) <= 1)


# ---------------------------------------------------------------------- seeds
def draw(graph_seed: int | None, op_seed: int | None, before: int = 0) -> list[Any]:
    """Two runs of one operation in a new graph and session."""
    with Graph().as_default() as graph:
        if graph_seed is not None:
            set_random_seed(graph_seed)
        for _ in range(before):
            raw.NoOp()
        numbers = random.random_uniform([3], seed=op_seed)
        with Session(graph=graph) as session:
            return [session.run(numbers).tolist() for _ in range(2)]


def test_seeds_make_sessions_repeat() -> None:
    assert draw(None, None) != draw(None, None)
    assert draw(7, None) == draw(7, None)
    assert draw(None, 7) == draw(None, 7)
    assert draw(7, 7) == draw(7, 7)
    assert draw(7, 8) != draw(7, 7)
    assert draw(8, 7) != draw(7, 7)
    assert draw(7, None)[0] != draw(7, None)[1]


def test_under_a_graph_seed_operations_still_differ() -> None:
    set_random_seed(1)
    first, second = run([random.random_uniform([3]), random.random_uniform([3])])
    assert not np.any(first == second)
    assert draw(7, None) != draw(7, None, before=1)
    assert draw(7, 5) == draw(7, 5, before=1)


def test_under_a_graph_seed_bodies_differ() -> None:
    """Two dropouts in branches that look the same do not drop the same."""
    set_random_seed(1)
    pred = raw.PlaceholderWithDefault(True, [])

    def branch() -> Any:
        return random.random_uniform([3])

    first, second = run([cond(pred, branch, branch), cond(pred, branch, branch)])
    assert not np.any(first == second)
