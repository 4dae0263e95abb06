"""Sums over rows whose operand others read too: on GPUs they are programs of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax import lax

import anabranch as tf
from anabranch.xla import executable
from anabranch.xla.kernel_choice import KernelTarget

ROWS, COLUMNS = 1024, 512


@pytest.fixture
def barriers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what XLA was told to compute first."""
    shapes: list[tuple[int, ...]] = []

    inner: Any = lax.optimization_barrier

    def noted(value: Any) -> Any:
        shapes.append(value.shape)
        return inner(value)

    monkeypatch.setattr(lax, "optimization_barrier", noted)
    return shapes


def _step(batch: int | None) -> tuple[list[tf.Tensor], dict[tf.Tensor, Any]]:
    x = tf.placeholder(tf.float32, [batch, COLUMNS])
    y = tf.sin(x)
    rows, both = tf.reduce_sum(y, 0), tf.reduce_sum(y)
    alone, columns = tf.reduce_sum(tf.cos(x), 0), tf.reduce_sum(y, 1)
    fed = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return [rows, both, alone, columns], {x: fed}


@pytest.mark.parametrize("batch", [ROWS, None, 2])
def test_on_a_gpu_the_operand_is_computed_before_it_is_summed(
    batch: int | None, barriers: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "target_of", lambda device, device_type: KernelTarget(("GPU",), None))
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    fetches, feeds = _step(batch)
    ((x, fed),) = feeds.items()
    with tf.Session() as session:
        rows, both, alone, columns = session.run(fetches, {x: fed[:batch]})
    # the sum over rows alone, and not where the tensor is small
    assert barriers == ([] if batch == 2 else [(ROWS, COLUMNS)])
    y = np.sin(fed[:batch])
    np.testing.assert_allclose(rows, y.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(columns, y.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(alone, np.cos(fed[:batch]).sum(0), rtol=1e-4, atol=1e-4)
    assert both == pytest.approx(y.sum(), rel=1e-3)


def test_on_a_processor_sums_stay_with_what_they_sum(barriers: list[tuple[int, ...]]) -> None:
    fetches, feeds = _step(ROWS)
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        session.run(fetches, feeds)
    assert barriers == []
