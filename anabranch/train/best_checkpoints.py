"""Keeping the best checkpoints by a metric, beside the last ones  (§4.3)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping

from anabranch import errors
from anabranch.core.values import TensorLike
from anabranch.graph.operation import StepRunner
from anabranch.io import checkpoint_store, durable, gfile
from anabranch.train import checkpoint_management
from anabranch.train.saver import Saver

_STATE_FILE = "best_checkpoints.json"


class BestCheckpoints:
    """Saves a checkpoint whenever a metric is among the best so far, and removes those that no longer are.

    Lies beside `Saver`'s own retention: the best checkpoints have a directory of their own, with a list of their values
    that outlives the process.

    >>> best = tf.train.BestCheckpoints(saver, "logs/best", metric="accuracy")
    >>> best.save(sess, {"accuracy": 0.97, "loss": 0.1}, global_step=100)
    'logs/best/model-100'
    >>> saver.restore(sess, best.best_checkpoint)

    Args:
        saver: saves and restores the variables; its own list of last checkpoints is left alone.
        directory: where the checkpoints go; made on the first save.
        keep: how many to keep.
        metric: the name of the metric; what `save` looks up when it is given several.
        mode: "max" if larger is better, "min" if smaller is.
        name: the checkpoints' name, before the step.

    Raises:
        ValueError: `keep` or `mode` is not one of the allowed.
        DataLossError: the directory has a list that cannot be read.
    """

    def __init__(
        self, saver: Saver, directory: str, keep: int = 1, metric: str = "loss", mode: str = "min", name: str = "model"
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        if mode not in {"min", "max"}:
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        self._saver = saver
        self._directory = os.fsdecode(directory)
        self._keep = keep
        self._metric = metric
        self._mode = mode
        self._name = name
        self._entries = self._read()

    @property
    def checkpoints(self) -> list[tuple[str, float]]:
        """Prefix and value of the checkpoints that are kept, the best first."""
        return [(os.path.join(self._directory, name), value) for name, value in self._entries]

    @property
    def best_checkpoint(self) -> str | None:
        """The prefix of the best checkpoint, or None."""
        return self.checkpoints[0][0] if self._entries else None

    def save(
        self, sess: StepRunner, value: float | Mapping[str, float], global_step: TensorLike | None = None
    ) -> str | None:
        """Saves a checkpoint if `value` is among the best.

        Args:
            sess: the session.
            value: the metric's value, or several by name. Not a number is never among the best.
            global_step: as in `Saver.save`; gives checkpoints different names.

        Returns:
            The checkpoint's prefix; None if the value is not good enough.

        Raises:
            KeyError: `value` has no metric of that name.
            OpError: the checkpoint cannot be written; those that are kept are as they were.
        """
        number = float(value[self._metric] if isinstance(value, Mapping) else value)
        if math.isnan(number) or not self._qualifies(number):
            return None
        gfile.makedirs(self._directory)
        target = os.path.join(self._directory, self._name)
        prefix = self._saver.save(sess, target, global_step, write_state=False)
        if prefix is None:
            return None
        self._add(os.path.basename(prefix), number)
        return prefix

    def _qualifies(self, number: float) -> bool:
        return len(self._entries) < self._keep or self._rank(number) < self._rank(self._entries[-1][1])

    def _rank(self, number: float) -> float:
        return -number if self._mode == "max" else number

    def _add(self, name: str, number: float) -> None:
        others = [entry for entry in self._entries if entry[0] != name]
        entries = sorted([*others, (name, number)], key=lambda entry: self._rank(entry[1]))
        kept, dropped = entries[: self._keep], entries[self._keep :]
        self._write(kept)
        self._entries = kept
        for old, _ in dropped:
            checkpoint_management.remove_checkpoint(os.path.join(self._directory, old))

    # ------------------------------------------------------------------ the list
    def _write(self, entries: list[tuple[str, float]]) -> None:
        state = {
            "metric": self._metric,
            "mode": self._mode,
            "checkpoints": [{"name": n, "value": v} for n, v in entries],
        }
        durable.replace_file(os.path.join(self._directory, _STATE_FILE), json.dumps(state, indent=1).encode())

    def _read(self) -> list[tuple[str, float]]:
        path = os.path.join(self._directory, _STATE_FILE)
        if not gfile.exists(path):
            return []
        try:
            with gfile.GFile(path) as file:
                state = json.loads(file.read())
            entries = [(os.path.basename(str(item["name"])), float(item["value"])) for item in state["checkpoints"]]
        except (ValueError, KeyError, TypeError) as error:
            raise errors.DataLossError(None, None, f"The list {path!r} cannot be read: {error}; remove it") from error
        present = [e for e in entries if checkpoint_store.checkpoint_exists(os.path.join(self._directory, e[0]))]
        return sorted(present, key=lambda entry: self._rank(entry[1]))[: self._keep]
