"""`tf.distribute` without a strategy: a program is one replica."""

from __future__ import annotations

import pytest

import anabranch as tf
from anabranch.session import Session


def test_a_program_is_one_replica() -> None:
    strategy, context = tf.distribute.get_strategy(), tf.distribute.get_replica_context()
    assert context is not None
    assert context.strategy is strategy
    assert (strategy.num_replicas_in_sync, context.replica_id_in_sync_group) == (1, 0)
    assert not tf.distribute.has_strategy()
    with strategy.scope() as same:
        assert same is strategy
        assert not tf.distribute.in_cross_replica_context()
    assert strategy.experimental_local_results(strategy.experimental_run_v2(lambda a, b: a - b, (3,), {"b": 1})) == (2,)
    assert context.all_reduce(tf.distribute.ReduceOp.SUM, 4) == 4
    with Session() as session:
        assert session.run(strategy.reduce("MEAN", [1.0, 3.0], axis=0)) == 2.0
        assert session.run(strategy.reduce(tf.distribute.ReduceOp.SUM, [1.0, 3.0], axis=None)).tolist() == [1.0, 3.0]
    with pytest.raises(ValueError, match="MAX"):
        strategy.reduce("MAX", 1.0, None)


def test_calls_for_all_replicas() -> None:
    told = []

    def merged(strategy: object, value: int, *, more: int) -> int:
        told.append((tf.distribute.in_cross_replica_context(), tf.distribute.get_replica_context()))
        assert strategy is tf.distribute.get_strategy()
        return value + more

    context = tf.distribute.get_replica_context()
    assert context is not None
    assert context.merge_call(merged, args=(1,), kwargs={"more": 2}) == 3
    assert told == [(True, None)]
    with pytest.raises(ZeroDivisionError):
        context.merge_call(lambda _: 1 // 0)
    assert tf.distribute.get_replica_context() is context
