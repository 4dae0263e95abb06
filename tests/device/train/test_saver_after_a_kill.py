"""A training that is killed at any moment and started again keeps as many checkpoints as it should, and no litter."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf


class DeadError(BaseException):
    """Stands for the end of the process."""


class Disk:
    """Lets calls that change the disk go through until the deadly one; from then on the process is dead.

    The files are then as `kill -9` leaves them: whatever cleans up on the way out finds its calls refused too.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls, self.deadly = 0, 0
        self._opened: set[int] = set()
        self._open, self._close = os.open, os.close
        patch.setattr(os, "open", self.open)
        patch.setattr(os, "close", self.close)
        for name in ("rename", "replace", "unlink"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _count(self) -> None:
        self.calls += 1
        if self.deadly and self.calls >= self.deadly:
            raise DeadError

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._count()
            return call(*args, **options)

        return counted

    def open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        if not flags & os.O_CREAT:
            return self._open(path, flags, *args, **options)
        self._count()
        descriptor = self._open(path, flags, *args, **options)
        self._opened.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._opened.discard(descriptor)
        self._close(descriptor)

    def bury(self) -> None:
        """What the system does for a dead process: it closes its files, which drops their locks."""
        for descriptor in list(self._opened):
            self.close(descriptor)
        self.calls = self.deadly = 0


class Training:
    """One graph, so that each "process" costs little."""

    def __init__(self, keep: int) -> None:
        self.step = tf.train.get_or_create_global_step()
        self.next_step = tf.assign_add(self.step, 1)
        self.saver_def = tf.train.Saver(max_to_keep=keep).saver_def
        self.session = tf.Session()

    def run(self, directory: Path, steps: int) -> None:
        """What one process does: it goes on from the last checkpoint, and saves after every step."""
        saver = tf.train.Saver(saver_def=self.saver_def)
        latest = tf.train.latest_checkpoint(str(directory))
        if latest is None:
            self.session.run(self.step.initializer)
        else:
            saver.restore(self.session, latest)
        for _ in range(steps):
            self.session.run(self.next_step)
            saver.save(self.session, f"{directory}/model", global_step=self.step, write_meta_graph=False)


def kept_steps(directory: Path) -> list[int]:
    return sorted(
        int(name.split("-")[1].split(".")[0]) for name in os.listdir(directory) if name.endswith(".index.json")
    )


def litter(directory: Path) -> list[str]:
    """What belongs to no checkpoint that is there."""
    kept = tuple(f"model-{step}." for step in kept_steps(directory))
    return [name for name in os.listdir(directory) if name != "checkpoint" and not name.startswith(kept)]


@pytest.mark.parametrize("keep", [1, 3])
def test_checkpoints_after_a_kill(tmp_path: Path, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    with tf.Graph().as_default():
        training = Training(keep)
        training.run(tmp_path / "alive", keep + 1)
        disk.calls = 0
        training.run(tmp_path / "alive", 1)
        points = disk.calls
        assert points > 6
        for deadly in range(1, points + 1):
            directory = tmp_path / str(deadly)
            training.run(directory, keep + 1)
            disk.calls, disk.deadly = 0, deadly
            with pytest.raises(DeadError):
                training.run(directory, 1)
            disk.bury()
            assert tf.train.latest_checkpoint(str(directory)) is not None, "one can be restored at any moment"
            training.run(directory, 2)
            assert len(kept_steps(directory)) == keep, deadly
            assert litter(directory) == [], deadly
            state = tf.train.get_checkpoint_state(str(directory))
            assert [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths] == kept_steps(directory)
        training.session.close()


def test_checkpoints_of_others_stay(tmp_path: Path) -> None:
    """What was restored from elsewhere, or under another name, is not this saver's to remove."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", [])
        session.run(variable.initializer)
        given = tf.train.Saver().save(session, str(tmp_path / "given" / "model"), global_step=1)
        other = tf.train.Saver().save(session, str(tmp_path / "mine" / "pretrained"), global_step=1)
        for restored in (given, other):
            saver = tf.train.Saver(max_to_keep=1)
            saver.restore(session, restored)
            for step in (2, 3):
                saver.save(session, str(tmp_path / "mine" / "model"), global_step=step)
            assert kept_steps(tmp_path / "mine") == [1, 3]
            assert saver.last_checkpoints == [str(tmp_path / "mine" / "model-3")]
