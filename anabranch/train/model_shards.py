"""The shards of a model in a graph: their marks, their recovery, and the instant at which a save has read them (§4.3).

What happens to shards that are lost is decided by `distributed.shard_recovery`; here are the operations that ask and do
what it says. All is added to the graph before it is finalized, on the chief and on the other workers alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch import errors
from anabranch.core.compat import as_text
from anabranch.core.nest import Structure
from anabranch.distributed.cluster_spec import task_of_device
from anabranch.distributed.shard_loading import write_shard_map
from anabranch.distributed.shard_recovery import (
    Initialize,
    RecoveryAction,
    Restore,
    SavedVariable,
    ShardMap,
    ShardState,
    TaskShard,
    mirrors_to_make,
    next_action,
    shards_given_back,
)
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.queues import FIFOQueue
from anabranch.frontend.variables.functions import (
    global_variables,
    local_variables,
    report_uninitialized_variables,
    variables_initializer,
)
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.constants import constant_value
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import FeedDict, Operation, StepRunner, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.checkpoint_management import latest_checkpoint
from anabranch.train.chief_lease import ChiefLease
from anabranch.train.replica_rounds import RoundsRunner, WhileARoundWaits, rounds_runners
from anabranch.train.saver import Saver
from anabranch.train.scaffold import Scaffold
from anabranch.train.shard_mirrors import MirroredShard, ShardMirrors, shard_mirrors
from anabranch.train.training_util import get_global_step

#: marks are below this, so that they are fit for a variable of int64
_MARKS: Final = 1 << 62
#: no checkpoint holds them, and no initializer of a program gives them values
_MARK_COLLECTION: Final = "shard_marks"
#: of operations that begin anew what is no variable, with a model that is initialized
INITIALIZERS: Final = "shard_initializers"


class _Shard(NamedTuple):
    """What the graph has of a shard.

    Attributes:
        task: the full name of its task; "" where its variables ask for none.
        devices: as its variables ask for it.
        mark: see `distributed.shard_recovery`.
        is_marked, read_mark, set_mark: whether it has a value, which, and what gives it that of this training.
        missing: the names of the variables without a value.
        initialize: gives all of them initial values.
        mirrored: what another task has of it.
    """

    task: str
    devices: frozenset[str]
    mark: Variable
    is_marked: Tensor
    read_mark: Tensor
    set_mark: Operation
    missing: Tensor
    initialize: Operation
    mirrored: MirroredShard | None


class ModelShards:
    """The shards of the default graph's variables.

    Args:
        directory: where the training's checkpoints are; it names the training.

    Attributes:
        directory: see there.
        saver: what saves and restores; after `build`.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        digest = hashlib.blake2b(os.path.realpath(directory).encode(), digest_size=8).digest()
        self._mark = int.from_bytes(digest, "big") % _MARKS
        self._shards: list[_Shard] = []
        self._map: ShardMap | None = None
        self._saves = itertools.count(1)

    saver: Saver
    #: what applies rounds, on each worker's graph, where the replicas train in rounds
    rounds: RoundsRunner | None

    # ------------------------------------------------------------------ building
    def build(self, scaffold: Scaffold, lease: ChiefLease | None = None) -> None:
        """Adds what is needed to the default graph.

        Args:
            lease: says who is chief.
            scaffold: whose saver saves the model. Where it has no operation that says whether the model is ready, that
                of the graph becomes one that looks at the marks as well.
        """
        graph = get_default_graph()
        self.rounds = rounds_runners.get(graph)
        self._initializers: list[Operation] = graph.get_collection(INITIALIZERS)
        self._closes_queue = self.rounds is not None and not self.rounds.leaves_queue_open
        if self.rounds is not None:
            self.rounds.leaves_queue_open = True
        with graph.name_scope(""), graph.control_dependencies(None), graph.device(None):
            self._mirrors = shard_mirrors.get(graph, ShardMirrors())
            self._mirrors.is_served = True
            if self._mirrors.shards and self.rounds is not None:
                raise ValueError(
                    "replicas that train in rounds go back to a checkpoint together, so that mirrors are of no use to "
                    "them: leave tf.train.replicas.mirrored out"
                )
            for mirrored in self._mirrors.shards.values():
                mirrored.build(self._mark)
            self._shards = [self._shard(task, variables) for task, variables in _by_task(global_variables()).items()]
            if scaffold.given_ready_op is None and not graph.get_collection(GraphKeys.READY_OP):
                everything = [*global_variables(), *local_variables(), *(shard.mark for shard in self._shards)]
                everything += [mirrored.mark for mirrored in self._mirrors.shards.values()]
                graph.add_to_collection(GraphKeys.READY_OP, report_uninitialized_variables(everything))
        if lease is not None:
            step = get_global_step()
            lease.build("" if step is None else step.device)
            if self.rounds is not None:
                self.rounds.lease = lease
                # an optimizer that closes its queue has what a chief needs in the graph of the first chief only
                lease.interrupts = True
                lease.passes = not self._closes_queue
        saver = scaffold.given_saver
        if saver is None:
            saver = Scaffold.get_or_default("saver", GraphKeys.SAVERS, lambda: Saver(sharded=True, allow_empty=True))
        saver.build()
        self.saver = saver
        self._map = self._shard_map(graph)
        with graph.name_scope("save_began"), graph.control_dependencies(None), graph.device(None):
            self._add_instant(graph)

    def _shard(self, task: str, variables: list[Variable]) -> _Shard:
        device = variables[0].device
        with get_default_graph().device(device or None):
            name = f"shard_mark/{task.strip('/').replace(':', '_').replace('/', '_') or 'model'}"
            mark = Variable(
                np.int64(self._mark), trainable=False, collections=[_MARK_COLLECTION], name=name, use_resource=True
            )
        return _Shard(
            task,
            frozenset(v.device for v in variables),
            mark,
            mark.is_initialized(),
            mark.read_value(),
            mark.initializer,
            report_uninitialized_variables(variables),
            variables_initializer(variables),
            self._mirrors.shards.get(task),
        )

    def _shard_map(self, graph: Graph) -> ShardMap:
        definition = self.saver.saver_def
        saved, others = dict[str, SavedVariable](), set[str]()
        if definition is not None:
            saved, others = _saved_variables(graph.get_operation_by_name(definition.restore_op_name))
        shards = {}
        for task, variables in _by_task(global_variables()).items():
            handles = [variable.handle.op.name for variable in variables]
            # a task that has more than a checkpoint's variables gets its values from the chief
            if task and task not in others and all(handle in saved for handle in handles):
                mark = next(shard.mark for shard in self._shards if shard.task == task)
                shards[task] = TaskShard(mark.handle.op.name, tuple(saved[handle] for handle in handles))
        return ShardMap(self._mark, self.rounds is not None, shards, bool(self._mirrors.shards))

    def _add_instant(self, graph: Graph) -> None:
        """Adds what tells that a save has read all that it saves, and only has to write it."""
        queue = FIFOQueue(-1, np.int64, shapes=[()])
        self._number = raw.Placeholder(dtype=np.int64, shape=[])
        definition = self.saver.saver_def
        reads: list[Operation] = []
        if definition is not None:
            saved = graph.get_tensor_by_name(definition.save_tensor_name).op
            reads = [tensor.op for save in _saving(saved) for tensor in save.inputs[3:]]
        with graph.control_dependencies(reads):
            self._tell_read = queue.enqueue(self._number)
        self._tell_over = queue.enqueue(self._number)
        self._told = queue.dequeue()

    # ------------------------------------------------------------------ recovery
    def recover(
        self,
        session: Session,
        scaffold: Scaffold,
        on_action: Callable[[RecoveryAction], None] | None = None,
        in_doubt: bool = False,
    ) -> RecoveryAction:
        """Gives shards that have lost their values those of the latest checkpoint, or initial ones.

        Args:
            session: runs the operations.
            scaffold: says how the model is initialized.
            on_action: is told what is done, before it is done.
            in_doubt: whether a chief is dead that may have died while it ended a round. If it did, what it did of
                that cannot be known, so that all shards go back to a commit.

        Returns:
            What was done.
        """
        states = self._states(session)
        # what was lost has no round that could be asked for; in rounds all go back then anyway
        is_whole = not any(state.is_lost(self._mark) for state in states)
        if in_doubt and is_whole and self.rounds is not None and self.rounds.may_be_cut_off(session):
            states = [dataclasses.replace(state, mark=None) for state in states]
        commit = latest_checkpoint(self.directory)
        action = next_action(states, self._mark, commit, self.rounds is not None)
        if on_action is not None:
            on_action(action)
        self._do(session, scaffold, action)
        given_back = shards_given_back(states, self._mark, action)
        remade = mirrors_to_make(states, self._mark, action)
        for shard, state in zip(self._shards, states, strict=True):
            if shard.mirrored is not None and shard.task in given_back:
                shard.mirrored.give_back(session)
            if shard.mirrored is not None and shard.task in remade:
                shard.mirrored.make(session, not state.is_lost(self._mark), state.mirror_mark == self._mark)
        if isinstance(action, Restore | Initialize):
            if self.rounds is not None:
                self.rounds.begin_anew(session)
            session.run([shard.set_mark for shard in self._shards if shard.task in action.tasks])
            logging.info("%s", _described(action, self.directory))
        if given_back:
            logging.info("%s given what their mirrors have: nothing is lost", _listed(given_back))
        self._write_map()
        return action

    def _states(self, session: Session) -> list[ShardState]:
        missing = session.run([shard.missing for shard in self._shards])
        marks = _values_of(session, [(shard.is_marked, shard.read_mark) for shard in self._shards])
        mirrored = [shard.mirrored for shard in self._shards if shard.mirrored is not None]
        mirror_marks = dict(
            zip(
                (shard.task for shard in mirrored),
                _values_of(session, [(shard.is_marked, shard.read_mark) for shard in mirrored]),
                strict=True,
            )
        )
        return [
            ShardState(
                shard.task,
                mark,
                tuple(name.decode() for name in names),
                mirror_marks.get(shard.task),
                shard.mirrored is not None,
            )
            for shard, mark, names in zip(self._shards, marks, missing, strict=True)
        ]

    def _do(self, session: Session, scaffold: Scaffold, action: RecoveryAction) -> None:
        if isinstance(action, Initialize):
            session.run([op for op in self._initializers if task_of_device(op.device) in action.tasks])
        if isinstance(action, Initialize) and action.everything:
            session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
            if scaffold.init_fn is not None:
                scaffold.init_fn(session)
            return
        if not isinstance(action, Restore | Initialize):
            return
        chosen = [shard for shard in self._shards if shard.task in action.tasks]
        if isinstance(action, Initialize):
            session.run([shard.initialize for shard in chosen])
        elif len(chosen) == len(self._shards):
            self.saver.restore(session, action.commit)
        else:
            self.saver.restore_devices(session, action.commit, frozenset().union(*(s.devices for s in chosen)))

    def _write_map(self) -> None:
        """Writes down which variables are whose, for tasks that come back."""
        assert self._map is not None
        os.makedirs(self.directory, exist_ok=True)
        write_shard_map(self.directory, self._map)

    def finish(self, session: Session) -> None:
        """Tells workers that wait for tokens that none come any more, where the optimizer does that."""
        if self._closes_queue and self.rounds is not None:
            session.run(self.rounds.cancel_op)

    # ------------------------------------------------------------------ saving
    def save(
        self,
        session: Session,
        path: str,
        step: int,
        on_read: Callable[[], None],
        waits: WhileARoundWaits | None = None,
    ) -> str | None:
        """Saves the model, while other steps go on.

        Args:
            session: runs the operations.
            path: the prefix of the checkpoint, without the step.
            step: the global step.
            on_read: called once, on another thread, when all values have been read, or the save is over: what changes
                the model from then on is not part of the checkpoint.
            waits: runs the save, where there is to be none if a round begins meanwhile.

        Returns:
            The prefix of the checkpoint.

        Raises:
            RoundWentOn: a round has begun meanwhile.
            OpError: as `Saver.save`; checkpoints that were there before are as they were.
        """
        number = next(self._saves)
        listening = threading.Thread(target=self._listen, args=(session, number, on_read), daemon=True)
        listening.start()
        try:
            saves_in = _Also(waits or session, self._tell_read, {self._number: number})
            return self.saver.save(saves_in, path, global_step=step)
        finally:
            # also where it failed before it had read anything
            with contextlib.suppress(errors.OpError, RuntimeError):
                session.run(self._tell_over, {self._number: number})

    def _listen(self, session: Session, number: int, on_read: Callable[[], None]) -> None:
        with contextlib.suppress(errors.OpError, RuntimeError):  # the session has ended, and so has the save
            while int(np.asarray(session.run(self._told))) < number:
                pass
        on_read()


class _Also:
    """A session that runs one more operation in each step. See `StepRunner`."""

    def __init__(self, session: StepRunner, also: Operation, feeds: Mapping[Any, Any]) -> None:
        self._session, self._also, self._feeds = session, also, dict(feeds)

    @property
    def graph(self) -> Graph:
        """The graph of the session."""
        return self._session.graph

    def run(self, fetches: Structure, feed_dict: FeedDict | None = None) -> Structure:
        """What the session's `run` gives."""
        return self._session.run([fetches, self._also], {**(feed_dict or {}), **self._feeds})[0]


# ---------------------------------------------------------------------- what the graph says
def _by_task(variables: Iterable[Variable]) -> dict[str, list[Variable]]:
    """The variables of each task; under "" those that ask for none."""
    tasks: dict[str, list[Variable]] = {}
    for variable in variables:
        tasks.setdefault(task_of_device(variable.device), []).append(variable)
    return dict(sorted(tasks.items()))


def _saving(last: Operation) -> list[Operation]:
    """The operations that write, of those that the last one of a save waits for."""
    operations, seen, waiting = list[Operation](), {last}, [last]
    while waiting:
        op = waiting.pop()
        if op.type == "SaveV2":
            operations.append(op)
            continue
        before = [op for op in (*op.control_inputs, *(tensor.op for tensor in op.inputs)) if op not in seen]
        seen.update(before)
        waiting += before
    return operations


def _saved_variables(restore: Operation) -> tuple[dict[str, SavedVariable], set[str]]:
    """What the operations that `restore` waits for restore.

    Returns:
        Where a checkpoint has each variable, by the names of their handles' operations; and the tasks that have
        something else to restore, a table for instance, or a value that has to be changed first.
    """
    saved: dict[str, SavedVariable] = {}
    others: set[str] = set()
    groups = [op for op in restore.control_inputs if not op.inputs]
    for op in [*restore.control_inputs, *(one for each in groups for one in each.control_inputs)]:
        if not op.inputs:
            continue
        handle, value = op.inputs[0], op.inputs[-1]
        names = constant_value(value.op.inputs[1]) if value.op.type == "RestoreV2" else None
        specs = constant_value(value.op.inputs[2]) if value.op.type == "RestoreV2" else None
        if op.type != "AssignVariableOp" or handle.op.type != "VarHandleOp" or names is None or specs is None:
            others.add(task_of_device(handle.device))
            continue
        attrs, at = handle.op.attrs, value.value_index
        resource = attrs["shared_name"].decode() or handle.op.name
        saved[handle.op.name] = SavedVariable(
            as_text(names[at]), as_text(specs[at]), attrs["container"].decode(), resource
        )
    return saved, others


def _values_of(session: Session, marks: Sequence[tuple[Tensor, Tensor]]) -> list[int | None]:
    """The values of some variables, of which there is also the tensor that says whether they have one."""
    are_there = session.run([is_there for is_there, _ in marks])
    values = iter(session.run([read for (_, read), is_there in zip(marks, are_there, strict=True) if is_there]))
    return [int(next(values)) if is_there else None for is_there in are_there]


def _described(action: RecoveryAction, directory: str) -> str:
    match action:
        case Restore(commit, tasks):
            return f"{_listed(tasks)} restored from {commit}"
        case Initialize(tasks):
            return f"{_listed(tasks)} initialized: there is no checkpoint in {directory}"
    return "all shards have their values"


def _listed(tasks: Sequence[str]) -> str:
    return f"The shards of {', '.join(tasks)} were" if any(tasks) else "The model was"
