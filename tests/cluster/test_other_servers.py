"""A model that is restored on another number of parameter servers: whole and partitioned variables, and their slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster

DEADLINE = 30.0
ROWS = 13
Values = dict[str, npt.NDArray[Any]]


class Model:
    """Momentum on a table in as many parts as there are servers, on one in three, and on two whole variables."""

    def __init__(self, servers: int) -> None:
        with tf.device(tf.train.replica_device_setter(servers, worker_device="/job:worker/task:0")):
            self.step = tf.train.get_or_create_global_step()
            self.table = self._variable("table", [ROWS, 2], tf.fixed_size_partitioner(servers))
            self.fixed = self._variable("fixed", [5, 3], tf.fixed_size_partitioner(3))
            self.whole, self.bias = self._variable("whole", [4]), self._variable("bias", [])
            self.variables = {"table": self.table, "fixed": self.fixed, "whole": self.whole, "bias": self.bias}
            rows = tf.nn.embedding_lookup(self.table, [0, 6, 12, 12], "div")
            squares = [tf.reduce_sum(tf.square(tf.convert_to_tensor(v) - 1.0)) for v in self.variables.values()]
            self.optimizer = tf.train.MomentumOptimizer(0.05, 0.5)
            self.train = self.optimizer.minimize(tf.add_n([*squares, tf.reduce_sum(rows)]), self.step)

    def _variable(self, name: str, shape: list[int], partitioner: Any = None) -> Any:
        start = tf.random_uniform_initializer(seed=len(name))
        return tf.get_variable(name, shape, initializer=start, partitioner=partitioner, use_resource=True)

    def fetches(self) -> dict[str, Any]:
        """All that the model has learned, by names that do not depend on the servers."""
        made: dict[str, Any] = {"step": self.step}
        for name, variable in self.variables.items():
            parts = list(variable) if variable in (self.table, self.fixed) else [variable]
            made[name] = parts
            made[f"{name}/Momentum"] = [self.optimizer.get_slot(part, "momentum") for part in parts]
        return made

    def devices(self) -> set[str]:
        return {variable.device for variable in tf.global_variables()}


def whole(fetched: dict[str, Any]) -> Values:
    values = {name: parts if len(parts) > 1 else parts[0] for name, parts in fetched.items() if name != "step"}
    joined = {name: np.concatenate(of) if isinstance(of, list) else of for name, of in values.items()}
    return {"step": fetched["step"], **joined}


def same(one: Values, other: Values) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], name)


def config() -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))


def trained(cluster: LocalCluster, servers: int, directory: Path, steps: int) -> tuple[Values, Values]:
    """What a model had before and after some steps, with automatic checkpoints."""
    with tf.Graph().as_default():
        model = Model(servers)
        fetches = model.fetches()
        assert len(model.devices()) == servers
        with tf.train.MonitoredTrainingSession(
            cluster.target(),
            True,
            str(directory),
            save_checkpoint_secs="auto",
            save_summaries_steps=None,
            log_step_count_steps=None,
            config=config(),
        ) as session:
            before = whole(session.run(fetches))
            for _ in range(steps):
                session.run(model.train)
            return before, whole(session.run(fetches))


def test_a_training_goes_on_with_other_numbers_of_parameter_servers(tmp_path: Path) -> None:
    last: Values | None = None
    for servers in (4, 2, 6):
        with local_cluster(ps=servers, worker=1) as cluster:
            before, after = trained(cluster, servers, tmp_path, 3)
        if last is not None:
            same(before, last)
        assert all((value != before[name]).any() for name, value in after.items())
        last = after
    assert last is not None
    assert last["step"] == 9


@pytest.mark.parametrize("sharded", [False, True])
def test_a_saver_restores_on_other_numbers_of_parameter_servers(tmp_path: Path, sharded: bool) -> None:
    last: Values | None = None
    path: str | None = None
    for servers in (4, 2, 6):
        with local_cluster(ps=servers, worker=1) as cluster, tf.Graph().as_default():
            model = Model(servers)
            fetches, saver = model.fetches(), tf.train.Saver(sharded=sharded)
            assert len(model.devices()) == servers
            with tf.Session(cluster.target(), config=config()) as session:
                if path is None:
                    session.run(tf.global_variables_initializer())
                else:
                    saver.restore(session, path)
                    assert last is not None
                    same(whole(session.run(fetches)), last)
                for _ in range(2):
                    session.run(model.train)
                last = whole(session.run(fetches))
                path = saver.save(session, str(tmp_path / "model"), model.step)
    assert last is not None
    assert last["step"] == 6
