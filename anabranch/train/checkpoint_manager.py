"""tf.train.CheckpointManager: checkpoints of objects in a folder, of which some are kept  (§4.3)."""

from __future__ import annotations

import os
import time
from typing import SupportsIndex

from anabranch.core.values import TensorLike
from anabranch.graph.operation import StepRunner
from anabranch.io.checkpoint_state import write_checkpoint_state
from anabranch.train.checkpoint_management import get_checkpoint_state, remove_checkpoint
from anabranch.train.load_status import session_or_default
from anabranch.train.object_checkpoints import Checkpoint


class CheckpointManager:
    """Saves the objects of a `Checkpoint` in a folder, and removes the oldest.

    Args:
        checkpoint: a `Checkpoint`.
        directory: the folder.
        max_to_keep: how many checkpoints are kept; None: all.
        keep_checkpoint_every_n_hours: not supported.
        checkpoint_name: what their names begin with.

    Raises:
        ValueError: `max_to_keep` is not positive.
        NotImplementedError: `keep_checkpoint_every_n_hours` is given; `tf.train.Saver` knows it.

    Example:
        >>> v = tf.Variable(3.0)
        >>> checkpoint = tf.train.Checkpoint(v=v)
        >>> manager = tf.train.CheckpointManager(checkpoint, "/tmp/managed", max_to_keep=2)
        >>> manager.directory
        '/tmp/managed'
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}.")
        self._checkpoint, self._directory, self._keep = checkpoint, os.fsdecode(directory), max_to_keep
        self._hours = keep_checkpoint_every_n_hours
        self._prefix = os.path.join(self._directory, checkpoint_name)
        now = self._preserved = time.time()
        self._latest: str | None = None
        #: the checkpoints that are kept, the oldest first, with the seconds since 1970 at which each was written
        self._written: dict[str, float] = {}
        state = get_checkpoint_state(self._directory) if os.path.isdir(self._directory) else None
        if state is not None:
            paths, times = list(state.all_model_checkpoint_paths), list(state.all_model_checkpoint_timestamps)
            times += [now] * (len(paths) - len(times))
            # what others wrote here is theirs; and clocks may have been set back
            mine = ((p, min(t, now)) for p, t in zip(paths, times, strict=False) if p.startswith(f"{self._prefix}-"))
            self._written, self._latest = dict(mine), state.model_checkpoint_path
            self._preserved = min(state.last_preserved_timestamp or now, now)

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def checkpoints(self) -> list[str]:
        """The checkpoints that are kept, the oldest first."""
        return list(self._written)

    @property
    def latest_checkpoint(self) -> str | None:
        """The checkpoint that was written last in the directory, by whomever."""
        return self._latest

    def save(self, checkpoint_number: TensorLike | None = None, session: StepRunner | None = None) -> str:
        """Writes a checkpoint, and removes those that are too many.

        Args:
            checkpoint_number: that its name ends with, a number or a tensor; default: one more each time.
            session: default: the default session.

        Returns:
            Its name.
        """
        if checkpoint_number is None:
            path = self._checkpoint.save(self._prefix, session)
        else:
            if not isinstance(checkpoint_number, SupportsIndex):
                checkpoint_number = session_or_default(session).run(checkpoint_number)
            path = self._checkpoint.save_as(f"{self._prefix}-{int(checkpoint_number)}", session)
        self._written.pop(path, None)
        self._written[path], self._latest = time.time(), path
        removed = list(self._written)[: -self._keep] if self._keep is not None else []
        left = {name: written for name, written in self._written.items() if name not in removed}
        deleted = [name for name in removed if not self._is_preserved(self._written[name])]
        self._written = left
        write_checkpoint_state(
            self._directory,
            path,
            list(left),
            all_model_checkpoint_timestamps=list(left.values()),
            last_preserved_timestamp=self._preserved,
            save_relative_paths=True,
        )
        for old in deleted:
            remove_checkpoint(old)
        return path

    def _is_preserved(self, written: float) -> bool:
        """Whether a checkpoint that is one too many stays for ever: the first of every so many hours."""
        if self._hours is None or written - self._hours * 3600 < self._preserved:
            return False
        self._preserved = written
        return True
