"""The positions of iterators in checkpoints (§4.3, WP4.5)."""

from __future__ import annotations

import os
from typing import Any, Protocol

from anabranch.core import dtypes
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.data.positions import position_of, restore_operation
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.session import Session
from anabranch.train.basic_session_run_hooks import SecondOrStepTimer, global_step_for
from anabranch.train.checkpoint_management import latest_checkpoint
from anabranch.train.coordinator import Coordinator
from anabranch.train.saveables import SaveableObject, SaveSpec
from anabranch.train.saver import Saver
from anabranch.train.session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues


class IteratorSaveable(SaveableObject):
    """An iterator, saved as a string scalar.

    Args:
        iterator: it.
        name: default: that of its handle's operation, and "/position".
    """

    def __init__(self, iterator: Iterator, name: str | None = None) -> None:
        self.iterator = iterator
        handle = iterator._iterator_resource
        name = f"{handle.op.name}/position" if name is None else name
        spec = SaveSpec(lambda: position_of(iterator), "", name, dtypes.string, handle.device)
        super().__init__(handle, [spec], name)

    def restore(self, restored_tensors: list[Any], restored_shapes: list[Any] | None) -> Operation:
        return restore_operation(self.iterator, restored_tensors[0])


def make_saveable_from_iterator(iterator: Iterator) -> SaveableObject:
    """What makes a `tf.train.Saver` save and restore an iterator's position.

    Give it to a saver, or add it to the collection `tf.GraphKeys.SAVEABLE_OBJECTS`. Whatever the pipeline has buffered
    is part of the position: after a restore the elements that follow are those that would have followed. The functions
    in the pipeline must be deterministic for that; a Python generator is called again, and what was taken is skipped.
    """
    return IteratorSaveable(iterator)


class EstimatorLike(Protocol):
    """What trains a model, and knows where and how often it is saved."""

    @property
    def model_dir(self) -> str: ...
    @property
    def config(self) -> Any: ...


class CheckpointInputPipelineHook(SessionRunHook):
    """Saves the positions of all iterators of the graph while an estimator trains, and restores them at the beginning.

    Args:
        estimator: anything with a `model_dir` and a `config` (`save_checkpoints_secs`, `save_checkpoints_steps`,
            `num_worker_replicas`, `task_type`, `task_id`).
    """

    def __init__(self, estimator: EstimatorLike) -> None:
        config = estimator.config
        prefix = "input" if config.num_worker_replicas <= 1 else f"input_{config.task_type}_{config.task_id}"
        self._directory: str = estimator.model_dir
        self._path = os.path.join(self._directory, prefix + ".ckpt")
        self._latest = f"checkpoint_{prefix}"
        every = {"every_secs": config.save_checkpoints_secs, "every_steps": config.save_checkpoints_steps}
        self._timer = SecondOrStepTimer(**every)

    def begin(self) -> None:
        handles = get_default_graph().get_collection("iterators")
        unique = {handle.op.name: handle for handle in handles}
        saveables = [IteratorSaveable(_iterator_of(handle)) for handle in unique.values()]
        self._saver = Saver(saveables, allow_empty=True)
        self._step = global_step_for(self)

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        latest = latest_checkpoint(self._directory, self._latest)
        if latest is not None:
            self._saver.restore(session, latest)
        self._timer.update_last_triggered_step(int(session.run(self._step)))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_context.session.run(self._step))
        if self._timer.should_trigger_for_step(step):
            self._save(run_context.session, step)

    def end(self, session: Session) -> None:
        step = int(session.run(self._step))
        if step != self._timer.last_triggered_step():
            self._save(session, step)

    def _save(self, session: Session, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        self._saver.save(session, self._path, global_step=step, latest_filename=self._latest, write_meta_graph=False)


def _iterator_of(handle: Tensor) -> Iterator:
    return Iterator(handle, None, dtypes.float32, None, None)
