"""tf.train.Checkpoint: checkpoints whose names follow from the attributes that hold the variables."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final, SupportsIndex

from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.resources.mutable_tables import MutableLookupInterface
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import StepRunner
from anabranch.session import get_default_session
from anabranch.train.checkpoint_management import get_checkpoint_state, remove_checkpoint, update_checkpoint_state
from anabranch.train.checkpoint_utils import list_variables
from anabranch.train.optimizer import Optimizer
from anabranch.train.saver import Saver

_ENDING: Final = ".ATTRIBUTES/VARIABLE_VALUE"
#: of tables, which are two tensors each
_TABLE: Final = ".ATTRIBUTES/table"
_PARTS: Final = ("-keys", "-values")
_COUNTER: Final = "save_counter"


class Checkpoint:
    """Saves and restores the variables that objects hold.

    A variable is named after the attributes on the way to it: ``model/layers/0/w``. Objects are variables, mutable
    lookup tables that savers save, anything with attributes that hold these (such as `tf.Module`), optimizers, and
    lists, tuples and dicts of these.

    Args:
        kwargs: the objects, by name. They can be read as attributes, and more can be set.

    Example:
        >>> v = tf.Variable(3.0)
        >>> checkpoint = tf.train.Checkpoint(v=v)
        >>> sess.run(v.initializer)
        >>> path = checkpoint.save("/tmp/objects/ckpt", session=sess)
        >>> path
        '/tmp/objects/ckpt-1'
    """

    save_counter: Any

    def __init__(self, **kwargs: PassedOn) -> None:
        for name, value in sorted(kwargs.items()):
            setattr(self, name, value)
        if not hasattr(self, _COUNTER):
            self.save_counter = Variable(0, trainable=False, name=_COUNTER, dtype="int64")
        self._savers: dict[tuple[str, ...], Saver] = {}

    def write(self, file_prefix: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint under exactly this name.

        Args:
            session: default: the default session.

        Returns:
            `file_prefix`.

        Raises:
            ValueError: there is no session, or no variable.
        """
        saver = self._saver(self._variables())
        saver.save(_session(session), os.fsdecode(file_prefix), write_meta_graph=False, write_state=False)
        return os.fsdecode(file_prefix)

    def save(self, file_prefix: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint whose name ends with a number, one more each time, and that `latest_checkpoint` finds.

        Args:
            session: default: the default session. `save_counter`, the number, begins in it at 0 unless it has a value.

        Returns:
            The name: the prefix, "-", and the number.

        Raises:
            ValueError: there is no session, or no variable.
        """
        session = _session(session)
        number = self._count(session)
        path = self.write(f"{file_prefix}-{number}", session)
        update_checkpoint_state(os.path.dirname(path) or ".", path)
        return path

    def save_as(self, path: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint of exactly this name, and counts it as `save` does."""
        self._count(_session(session))
        return self.write(path, session)

    def _count(self, session: StepRunner) -> int:
        """The number of the next checkpoint, which the session then holds."""
        if not hasattr(self, "_increment"):
            self._is_counting = self.save_counter.is_initialized()
            self._increment = self.save_counter.assign_add(1).op
        if not session.run(self._is_counting):
            session.run(self.save_counter.initializer)
        session.run(self._increment)
        return int(session.run(self.save_counter))

    def restore(self, save_path: str | None) -> CheckpointLoadStatus:
        """Finds what a checkpoint has of the variables; `run_restore_ops` of the result gives them their values.

        Variables that are made afterwards are not restored.

        Args:
            save_path: None: nothing.

        Raises:
            NotFoundError: there is no such checkpoint.
        """
        mine = self._variables()
        theirs = {name for name, _ in list_variables(save_path)} if save_path is not None else set()
        common = {name: held for name, held in mine.items() if theirs.issuperset(_stored_as(name))}
        saver = self._saver(common) if common else None
        rest = [held for name, held in mine.items() if name not in common and name.endswith(_ENDING)]
        known = {stored for name in mine for stored in _stored_as(name)}
        endings = (_ENDING, *(_TABLE + part for part in _PARTS))
        left = sorted(name for name in theirs - known if name.endswith(endings))
        return CheckpointLoadStatus(saver, save_path, rest, left, sorted(set(mine) - set(common)))

    def _variables(self) -> dict[str, Any]:
        held = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return dict(_variables_below(held, "", set()))

    def _saver(self, variables: dict[str, Any]) -> Saver:
        names = tuple(sorted(variables))
        if names not in self._savers:
            self._savers[names] = Saver(variables, max_to_keep=0)
        return self._savers[names]


class CheckpointLoadStatus:
    """What a checkpoint has for the objects of a `Checkpoint`.

    Example:
        >>> v = tf.Variable(3.0)
        >>> status = tf.train.Checkpoint(v=v).restore(None)
        >>> status.initialize_or_restore(session=sess)
        >>> sess.run(v)
        np.float32(3.0)
    """

    def __init__(
        self, saver: Saver | None, path: str | None, rest: list[Any], unused: list[str], missing: list[str]
    ) -> None:
        self._saver, self._path, self._rest = saver, path, rest
        self._unused, self._missing = unused, missing

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Raises AssertionError unless the checkpoint and the objects have the same variables."""
        self.assert_existing_objects_matched()
        if self._unused:
            raise AssertionError(f"{self._path} has {self._unused[0]}, which no object holds")
        return self

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Raises AssertionError unless the checkpoint has all variables of the objects."""
        if self._missing:
            raise AssertionError(f"{self._path} has no {self._missing[0]}")
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Raises AssertionError unless the checkpoint has some variable of the objects."""
        if self._saver is None:
            raise AssertionError(f"{self._path} has no variable of the objects")
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Itself: nothing is said of what does not match."""
        return self

    def run_restore_ops(self, session: StepRunner | None = None) -> None:
        """Gives the variables the values of the checkpoint; `session`: default: the default session."""
        if self._saver is not None:
            self._saver.restore(_session(session), self._path)

    def initialize_or_restore(self, session: StepRunner | None = None) -> None:
        """As `run_restore_ops`; variables that the checkpoint does not have get their initial values."""
        session = _session(session)
        for variable in self._rest:
            session.run(variable.initializer)
        self.run_restore_ops(session)


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
                checkpoint_number = _session(session).run(checkpoint_number)
            path = self._checkpoint.save_as(f"{self._prefix}-{int(checkpoint_number)}", session)
        self._written.pop(path, None)
        self._written[path], self._latest = time.time(), path
        removed = list(self._written)[: -self._keep] if self._keep is not None else []
        left = {name: written for name, written in self._written.items() if name not in removed}
        deleted = [name for name in removed if not self._is_preserved(self._written[name])]
        self._written = left
        update_checkpoint_state(
            self._directory,
            path,
            list(left),
            all_model_checkpoint_timestamps=list(left.values()),
            last_preserved_timestamp=self._preserved,
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


def _session(session: StepRunner | None) -> StepRunner:
    session = session or get_default_session()
    if session is None:
        raise ValueError("a checkpoint is written and read in a session: pass one, or use `with tf.Session():`")
    return session


def _stored_as(name: str) -> list[str]:
    """The names of the tensors of a variable or a table in a checkpoint."""
    return [name + part for part in _PARTS] if name.endswith(_TABLE) else [name]


def _variables_below(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The variables and tables that an object holds, by their names in a checkpoint; each once."""
    if id(value) in seen or isinstance(value, str | bytes | type):
        return
    seen.add(id(value))
    if isinstance(value, Variable | PartitionedVariable):
        yield f"{path}/{_ENDING}", value
    elif isinstance(value, MutableLookupInterface):
        if value.is_saved:
            yield f"{path}/{_TABLE}", value
    elif isinstance(value, Optimizer):
        for variable in value.variables():
            yield from _variables_below(variable, f"{path}/{variable.op.name.replace('/', '.S')}", seen)
    else:
        for name, inner in _items(value):
            yield from _variables_below(inner, f"{path}/{name}" if path else name, seen)


def _items(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return sorted((str(key), inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [(str(i), inner) for i, inner in enumerate(value)]
    held = getattr(value, "__dict__", {})
    return sorted((name, inner) for name, inner in held.items() if not callable(inner) or hasattr(inner, "__dict__"))
