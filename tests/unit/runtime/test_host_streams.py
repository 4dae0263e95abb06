"""What random operations on the host draw from."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from anabranch.runtime.host_streams import generator


def node(name: str = "draw", **seeds: int) -> Any:
    return SimpleNamespace(name=name, attrs=seeds)


def test_each_run_of_each_operation_has_a_stream_of_its_own() -> None:
    nodes = [node(seed=1, seed2=2), node(seed=2, seed2=1), node("one"), node("other"), node(seed=-1)]
    drawn = {
        tuple(generator(op, count, run_seed).integers(0, 2**62, 4).tolist())
        for op, count, run_seed in itertools.product(nodes, range(50), (3, 4))
    }
    # those with a seed of their own do not ask for the seed of the run
    assert len(drawn) == (3 + 2 * 2) * 50


def test_the_same_run_draws_the_same() -> None:
    first, again = (generator(node(seed=5), 7, run_seed) for run_seed in (1, 2))
    np.testing.assert_array_equal(first.normal(size=100), again.normal(size=100))


def test_a_generator_that_draws_does_not_move_where_others_begin() -> None:
    before = generator(node(seed=5), 0, 0).random(3)
    generator(node(seed=5), 0, 0).random(10_000)
    np.testing.assert_array_equal(generator(node(seed=5), 0, 0).random(3), before)


def test_runs_are_as_far_apart_as_numpy_puts_streams() -> None:
    first = generator(node(seed=9, seed2=1), 0, 0).bit_generator
    assert isinstance(first, np.random.PCG64)
    jumped = np.random.Generator(first.jumped(3))
    np.testing.assert_array_equal(generator(node(seed=9, seed2=1), 3, 0).random(50), jumped.random(50))


def test_streams_of_neighbouring_runs_are_not_alike() -> None:
    rows = np.stack([generator(node(seed=1), count, 0).random(2_000) for count in range(40)])
    correlations = np.corrcoef(rows)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(2_000)
    # the first numbers of all runs are as evenly spread as those of one
    counts, _ = np.histogram([generator(node(seed=1), count, 0).random() for count in range(4_000)], 10, (0, 1))
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400)
