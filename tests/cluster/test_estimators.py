"""Estimators as tasks of a cluster: chief, workers, parameter servers and an evaluator make the same call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests import quick_compilation
from tests.cluster.places import held_addresses

X = np.random.RandomState(3).uniform(-1, 1, (96, 2)).astype(np.float32)
Y = (X @ np.array([[2.0], [-1.0]]) + 0.5).astype(np.float32)
STEPS = 120
DEADLINE = 60.0
ROOT = Path(__file__).resolve().parent.parent.parent


def model_fn(features: Any, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
    output = tf.layers.dense(features["x"], 1, name="line")
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"y": output})
    loss = tf.losses.mean_squared_error(labels, output)
    step = tf.train.get_global_step()
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def arrays(epochs: int | None) -> Callable[[], Any]:
    return tf.estimator.inputs.numpy_input_fn({"x": X}, Y, batch_size=32, num_epochs=epochs, shuffle=False)


def receiver() -> tf.estimator.export.ServingInputReceiver:
    x = tf.placeholder(tf.float32, [None, 2])
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


@pytest.fixture
def cluster() -> Iterator[dict[str, list[str]]]:
    with held_addresses("localhost", chief=1, worker=1, ps=2) as addresses:
        yield addresses


class VariablesOnServers(tf.train.SessionRunHook):  # type: ignore[misc]
    """Notes where the variables of the graph are."""

    def __init__(self, devices: set[str]) -> None:
        self._devices = devices

    def begin(self) -> None:
        self._devices |= {variable.device for variable in tf.global_variables()}


def test_a_cluster_trains_and_an_evaluator_exports(
    cluster: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = set[str]()
    steps_of = dict[str, int]()

    class CountsSteps(tf.train.SessionRunHook):  # type: ignore[misc]
        def __init__(self, task: str) -> None:
            self._task = task

        def after_run(self, run_context: Any, run_values: Any) -> None:
            steps_of[self._task] = steps_of.get(self._task, 0) + 1

    def as_task(job: str) -> tuple[tf.estimator.Estimator, Callable[[], Any]]:
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}))
        config = tf.estimator.RunConfig(str(tmp_path), save_checkpoints_steps=40, tf_random_seed=4)
        estimator = tf.estimator.Estimator(model_fn, config=config)
        hooks = [CountsSteps(job), VariablesOnServers(devices)]
        train = tf.estimator.TrainSpec(arrays(None), max_steps=STEPS, hooks=hooks)
        exporter = tf.estimator.FinalExporter("final", receiver)
        evaluate = tf.estimator.EvalSpec(arrays(1), exporters=exporter, start_delay_secs=0, throttle_secs=0)
        return estimator, lambda: tf.estimator.train_and_evaluate(estimator, train, evaluate)

    roles = {job: as_task(job) for job in ("chief", "worker", "evaluator")}
    monkeypatch.delenv("TF_CONFIG")
    servers = [tf.train.Server(cluster, "ps", index) for index in range(2)]
    results = dict[str, Any]()
    threads = [
        threading.Thread(target=lambda job=job: results.update({job: roles[job][1]()}), name=job, daemon=True)
        for job in roles
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), f"{thread.name} has not ended; ended: {list(results)}"
    finally:
        for server in servers:
            server.stop()

    # the chief and the worker made the steps together, on variables that both parameter servers hold
    assert {"chief", "worker"} == set(steps_of)
    assert STEPS <= sum(steps_of.values()) <= STEPS + 2
    assert devices == {"/job:ps/task:0", "/job:ps/task:1"}
    assert results["chief"] == results["worker"] == (None, [])
    # the evaluator saw the last checkpoint, and exported it
    metrics, exported = results["evaluator"]
    assert metrics["global_step"] >= STEPS
    assert metrics["loss"] < 1e-2
    assert len(exported) == 1
    assert (Path(exported[0].decode()) / "saved_model.pb").exists()
    estimator, _ = roles["evaluator"]
    np.testing.assert_allclose(estimator.get_variable_value("line/kernel"), [[2], [-1]], atol=0.1)


_PROGRAM = """
import json, os, sys
import numpy as np
import tensorflow as tf

def model_fn(features, labels, mode):
    output = tf.layers.dense(features["x"], 1)
    loss = tf.losses.mean_squared_error(labels, output)
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(32, 2)
read = lambda epochs: tf.estimator.inputs.numpy_input_fn({"x": x}, x[:, :1], 8, num_epochs=epochs, shuffle=False)
estimator = tf.estimator.Estimator(model_fn, sys.argv[1])
result, _ = tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(read(None), max_steps=30),
    tf.estimator.EvalSpec(read(1), start_delay_secs=0, throttle_secs=0),
)
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
print(estimator.config.task_type, "of", sorted(cluster), "saw step", result and result["global_step"])
"""


def test_the_command_line_runs_an_evaluator_beside_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = [sys.executable, "-m", "anabranch", "cluster", "run", "--chief", "--ps", "1", "--workers", "0"]
    command += ["--evaluator", str(tmp_path / "program.py"), str(tmp_path / "model")]
    environment = os.environ | quick_compilation.environment()
    environment |= {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evaluator/0 | evaluator of ['chief', 'ps'] saw step 30" in done.stdout
    assert "chief/0     | chief of ['chief', 'ps'] saw step None" in done.stdout


def test_workers_grow_trees_together(
    cluster: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees are on the parameter server; the chief and a worker add statistics, and the chief grows."""
    del cluster["ps"][1]
    columns = [tf.feature_column.numeric_column("x", 2)]
    steps_of = dict[str, int]()

    class CountsSteps(tf.train.SessionRunHook):  # type: ignore[misc]
        def __init__(self, task: str) -> None:
            self._task = task

        def after_run(self, run_context: Any, run_values: Any) -> None:
            steps_of[self._task] = steps_of.get(self._task, 0) + 1

    def as_task(job: str) -> Callable[[], Any]:
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}))
        config = tf.estimator.RunConfig(str(tmp_path), save_checkpoints_steps=40)
        estimator = tf.estimator.BoostedTreesRegressor(
            columns, 6, n_trees=4, max_depth=3, learning_rate=0.5, center_bias=True, config=config,
            quantile_sketch_epsilon=0.1,
        )  # fmt: skip
        train = tf.estimator.TrainSpec(arrays(None), hooks=[CountsSteps(job)])
        return lambda: tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(arrays(1)))

    roles = {job: as_task(job) for job in ("chief", "worker")}
    monkeypatch.delenv("TF_CONFIG")
    server = tf.train.Server(cluster, "ps", 0)
    ended = set[str]()

    def work(job: str) -> None:
        roles[job]()
        ended.add(job)

    threads = [threading.Thread(target=work, args=(job,), name=job, daemon=True) for job in roles]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
            assert thread.name in ended, f"{thread.name} has not ended"
    finally:
        server.stop()
    assert set(steps_of) == {"chief", "worker"}
    alone = tf.estimator.BoostedTreesRegressor(
        columns, 6, tmp_path, n_trees=4, max_depth=3, center_bias=True, quantile_sketch_epsilon=0.1
    )
    result = alone.evaluate(arrays(1))
    assert result["average_loss"] < 0.2 * Y.var()
    assert sum(steps_of.values()) >= result["global_step"] > 0
    assert alone.get_variable_value("boosted_trees:0_stamp") >= 4 * 3
