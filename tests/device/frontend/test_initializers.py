"""Initializers and regularizers: values, scales, configurations, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anabranch.contrib import regularizers
from anabranch.core import dtypes
from anabranch.frontend.variables import initializers as init
from anabranch.frontend.variables.partitioned import PartitionInfo
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.session import Session

LARGE = [200, 300]


def value(tensor: Any) -> Any:
    with Session() as session:
        return session.run(tensor)


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (init.Zeros(), [[0, 0], [0, 0]]),
        (init.zeros_initializer(dtypes.int32), [[0, 0], [0, 0]]),
        (init.ones_initializer(), [[1, 1], [1, 1]]),
        (init.constant_initializer(2.5), [[2.5, 2.5], [2.5, 2.5]]),
        (init.constant_initializer([1, 2, 3]), [[1, 2], [3, 3]]),
        (init.constant_initializer([[1, 2], [3, 4]], verify_shape=True), [[1, 2], [3, 4]]),
        (init.identity_initializer(3.0), [[3, 0], [0, 3]]),
    ],
)
def test_fixed_values(initializer: Any, expected: list[list[float]]) -> None:
    tensor = initializer([2, 2])
    assert tensor.dtype is initializer.dtype
    assert value(tensor).tolist() == expected


@pytest.mark.parametrize(
    ("initializer", "mean", "stddev", "limit"),
    [
        (init.random_normal_initializer(3.0, 2.0, seed=1), 3.0, 2.0, None),
        (init.truncated_normal_initializer(0.0, 2.0, seed=1), 0.0, 2.0 * 0.8796, 4.0),
        (init.random_uniform_initializer(-1.0, 3.0, seed=1), 1.0, 4 / math.sqrt(12), None),
        (init.uniform_unit_scaling_initializer(2.0, seed=1), 0.0, 2.0 / math.sqrt(200), 2 * math.sqrt(3 / 200)),
        (init.variance_scaling_initializer(seed=1), 0.0, 1 / math.sqrt(200), None),
        (init.variance_scaling_initializer(2.0, "fan_out", "uniform", seed=1), 0.0, math.sqrt(2 / 300), 3.0),
        (
            init.variance_scaling_initializer(1.0, "fan_avg", "untruncated_normal", seed=1),
            0.0,
            math.sqrt(1 / 250),
            None,
        ),
        (init.glorot_uniform_initializer(seed=1), 0.0, math.sqrt(1 / 250), math.sqrt(3 / 250)),
        (init.glorot_normal_initializer(seed=1), 0.0, math.sqrt(1 / 250), None),
        (init.he_normal(seed=1), 0.0, math.sqrt(2 / 200), None),
        (init.he_uniform(seed=1), 0.0, math.sqrt(2 / 200), math.sqrt(6 / 200)),
        (init.lecun_normal(seed=1), 0.0, math.sqrt(1 / 200), None),
        (init.lecun_uniform(seed=1), 0.0, math.sqrt(1 / 200), math.sqrt(3 / 200)),
    ],
)
def test_random_values(initializer: Any, mean: float, stddev: float, limit: float | None) -> None:
    found = value(initializer(LARGE))
    assert found.dtype == np.float32
    assert abs(found.mean() - mean) < 0.03 * stddev
    assert abs(found.std() / stddev - 1) < 0.02
    if limit is not None:
        assert np.abs(found).max() <= limit + 1e-6


def test_integers_are_uniform() -> None:
    found = value(init.RandomUniform(2, 5, seed=1, dtype=dtypes.int32)([1000]))
    assert set(found.tolist()) == {2, 3, 4}


def test_the_window_counts_as_inputs() -> None:
    found = value(init.he_normal(seed=1)([5, 5, 16, 32]))
    assert abs(found.std() / math.sqrt(2 / 400) - 1) < 0.05


def test_the_whole_decides_the_scale_of_a_part() -> None:
    info = PartitionInfo([1000, 10], [0, 0])
    found = value(init.VarianceScaling(seed=1)([10, 10], partition_info=info))
    assert np.abs(found).max() < 0.1
    part = init.Identity()([2, 3], partition_info=PartitionInfo([4, 3], [1, 0]))
    assert value(part).tolist() == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 3, 2, 5)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    found = value(init.orthogonal_initializer(gain=2.0, seed=1)(shape)).reshape(-1, shape[-1])
    gram = found.T @ found if found.shape[0] >= found.shape[1] else found @ found.T
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_seeds_decide() -> None:
    first, second, other = (value(init.RandomNormal(seed=s)([5])) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_dtype_of_the_call_wins() -> None:
    assert init.RandomNormal()([2], dtype=dtypes.float64).dtype is dtypes.float64


def test_large_constants_are_not_stored() -> None:
    tensor = init.Constant(0.5)([100, 100])
    assert tensor.op.type == "Fill"
    assert value(tensor).mean() == 0.5


@pytest.mark.parametrize(
    "initializer",
    [
        init.Zeros(dtypes.int32),
        init.Constant([1.0, 2.0]),
        init.RandomUniform(-1, 1, 3),
        init.RandomNormal(1.0, 2.0, 3, dtypes.float64),
        init.TruncatedNormal(),
        init.VarianceScaling(2.0, "fan_out", "uniform", 7),
        init.GlorotUniform(5),
        init.Orthogonal(2.0),
        init.Identity(2.0),
    ],
)
def test_configurations(initializer: Any) -> None:
    config = initializer.get_config()
    again = type(initializer).from_config(config)
    assert again.get_config() == config
    assert isinstance(config["dtype"], str)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: init.VarianceScaling(0.0), ValueError),
        (lambda: init.VarianceScaling(mode="fan"), ValueError),
        (lambda: init.VarianceScaling(distribution="cauchy"), ValueError),
        (lambda: init.RandomNormal(dtype=dtypes.int32), ValueError),
        (lambda: init.Constant(object()), TypeError),
        (lambda: init.Constant([1, 2, 3])([2]), ValueError),
        (lambda: init.Constant([1, 2], verify_shape=True)([2, 1]), TypeError),
        (lambda: init.Orthogonal()([3]), ValueError),
        (lambda: init.Identity()([3]), ValueError),
    ],
)
def test_wrong_arguments(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


# ---------------------------------------------------------------------- regularizers
def test_regularizers() -> None:
    weights = convert_to_tensor([1.0, -2.0])
    losses = [
        regularizers.l1_regularizer(0.5)(weights),
        regularizers.l2_regularizer(0.5)(weights),
        regularizers.l1_l2_regularizer(1.0, 2.0)(weights),
        regularizers.sum_regularizer([regularizers.l1_regularizer(1.0), None])(weights),
    ]
    assert value(losses) == [1.5, 1.25, 8.0, 3.0]
    assert losses[0] is not None
    assert losses[0].name == "l1_regularizer:0"
    assert regularizers.l2_regularizer(0.0)(weights) is None
    assert regularizers.sum_regularizer([])(weights) is None
    total = regularizers.apply_regularization(regularizers.l2_regularizer(2.0), [weights, weights])
    assert value(total) == 10
    assert get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES) == [total]


@pytest.mark.parametrize("scale", [1, -0.5])
def test_wrong_scales(scale: float) -> None:
    for make in (regularizers.l1_regularizer, regularizers.l2_regularizer):
        with pytest.raises(ValueError, match="scale"):
            make(scale)
    with pytest.raises(ValueError, match="no weights"):
        regularizers.apply_regularization(regularizers.l2_regularizer(1.0))
