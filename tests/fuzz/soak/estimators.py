"""Estimators that are soaked: `tf.estimator.train_and_evaluate` by a chief, workers and an evaluator."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, ClassVar, Final

import anabranch as tf
from tests.fuzz.soak.ways import COLUMNS, PS, WORKERS, Copied, End, Notes, Way

ESTIMATORS: Final = "estimators"
_SAVE_STEPS: Final = 50
#: seconds between two steps as long as tasks are disturbed, so that the last step is not reached meanwhile
_PAUSE: Final = 0.15
#: of all workers, per second that they are disturbed
STEPS_OF_SECOND: Final = 40


class _Paces(tf.train.SessionRunHook):  # type: ignore[misc]
    """Notes each step."""

    def __init__(self, folder: Path, notes: Notes) -> None:
        self._enough, self._notes = folder / "enough", notes

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._notes.note(1)
        if not self._enough.exists():
            time.sleep(_PAUSE)


class Estimators(Way):
    """Asynchronous steps of a program that says nothing of clusters; its chief saves as TensorFlow's does."""

    options = ("--chief", "--workers", str(WORKERS - 1), "--evaluator")
    tasks: ClassVar = [
        *(f"ps/{index}" for index in range(PS)),
        *(f"worker/{index}" for index in range(WORKERS - 1)),
        "chief/0",
        "evaluator/0",
    ]
    lasts = False

    def model(self, features: Any, labels: Any, mode: str) -> Any:
        """The model function."""
        # an evaluator, which is in no cluster, builds it as well
        pairs = Copied(self.index, {"workers": WORKERS, "columns": COLUMNS}).pairs(PS)
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        train = optimizer.apply_gradients(pairs, tf.train.get_global_step())
        loss = tf.reduce_sum(features["x"]) + tf.cast(tf.reduce_sum(pairs[0][1]), tf.float32)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    def run(self, folder: Path, notes: Notes, job: str) -> None:
        """What each task does; the evaluator says what it has seen last."""

        def read() -> Any:
            return tf.data.Dataset.from_tensors(({"x": [0.0]}, [0.0])).repeat(1 if job == "evaluator" else None)

        most = int((folder / "steps").read_text())
        config = tf.estimator.RunConfig(str(folder / "model"), save_checkpoints_steps=_SAVE_STEPS)
        result, _ = tf.estimator.train_and_evaluate(
            tf.estimator.Estimator(self.model, config=config),
            tf.estimator.TrainSpec(read, max_steps=most, hooks=[_Paces(folder, notes)]),
            tf.estimator.EvalSpec(read, start_delay_secs=0, throttle_secs=0),
        )
        if job == "evaluator":
            said = {"evaluated": int(result["global_step"]), "wanted": most}
            (folder / "results.json").write_text(json.dumps(said))

    def check(self, end: End) -> None:
        super().check(end)
        assert end.results["wanted"] <= end.results["evaluated"] <= end.step
        # what workers do while the chief saves may be in a shard and not be counted, and the reverse
        most = (end.shocks + 1) * WORKERS
        for rows in end.rows():
            assert abs(sum(rows) - end.step) <= most, f"{sum(rows)} steps are in the checkpoint of step {end.step}"
