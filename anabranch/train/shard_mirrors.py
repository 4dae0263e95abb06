"""Mirrors: what parameter servers hold, a second time on the next one, so that to lose one loses nothing  (§4.3).

`mirrored` wraps an optimizer. Behind its update of a variable come, on the variable's task, a count of that task's
updates and a read of the variable; value and count go to the *mirror* on the next task, which keeps the newest
(`ops/resources/mirrors.py`); and only then has the worker's step ended. So whatever order many workers' values arrive
in, a mirror has every update of every step that has ended:

* an update is counted after it is applied, and a value is read after its count: a value with number k has all updates
  that were counted 1 to k;
* a step has ended when its number, or a higher one, is at the mirror.

Rows that a sparse update changed travel alone, and each row has its own number there. What an update changes is found
in the graph: all that its operations write, slots and the global step included.

Who prepares a session gives a lost shard the values of its mirrors, and lost mirrors those of their variables
(`train.model_shards`). Numbers go on from the highest known plus 2^32, so that what a step of before still has under
way is too old wherever it arrives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from anabranch.core.device import DeviceSpec
from anabranch.core.values import PassedOn
from anabranch.distributed.cluster_spec import task_of_device
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.variables.functions import global_variables
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.delegating_optimizer import DelegatingOptimizer
from anabranch.train.optimizer import Optimizer

#: no checkpoint holds them, and no initializer of a program gives them values
_COLLECTION: Final = "shard_mirrors"
#: between the numbers of two incarnations of a shard; more updates than that are not under way
_INCARNATION: Final = 1 << 32


def mirrored(optimizer: Optimizer) -> MirroredOptimizer:
    """Keeps what an optimizer changes on two parameter servers; a step ends when both have it  (§4.3).

    A parameter server that is killed then comes back with every step that had ended, in place of the last checkpoint's
    values. It takes two parameter servers at least, twice the memory, and a further message per step and server. Needed
    besides: `MonitoredTrainingSession(save_checkpoint_secs="auto")`, which gives the values back. For `asynchronous`
    and `downpour`, whose servers learn independently of each other.

    Args:
        optimizer: what changes the variables.

    Example:
        >>> cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
        >>> with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        ...     w, b = tf.get_variable("w", [3]), tf.get_variable("b", [])
        ...     opt = tf.train.replicas.mirrored(tf.train.AdagradOptimizer(0.1))
        ...     train = tf.train.replicas.asynchronous(opt).minimize(tf.reduce_sum(w) + b)
        >>> sorted(v.device for v in tf.get_collection("shard_mirrors") if "w/mirror" in v.name)
        ['/job:ps/task:1', '/job:ps/task:1']
    """
    return MirroredOptimizer(optimizer)


class MirroredOptimizer(DelegatingOptimizer):
    """What `mirrored` returns."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer, False, "mirrored")

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds the update and what brings it to the mirrors. Arguments as of `Optimizer.apply_gradients`.

        Returns:
            The operation that has run when the mirrors have the update.

        Raises:
            ValueError: the variables are not on two tasks at least.
        """
        update = self._opt.apply_gradients(grads_and_vars, global_step)
        mirrors = shard_mirrors.setdefault(get_default_graph(), ShardMirrors())
        return mirrors.mirror(update, name)


# ---------------------------------------------------------------------- what the graph has
@dataclass(frozen=True)
class _Mirror:
    """A variable, its mirror, and the numbers of what the mirror has: one, or one for each row."""

    variable: Variable
    copy: Variable
    numbers: Variable


@dataclass(eq=False)
class MirroredShard:
    """What is mirrored of a task's variables.

    Attributes:
        task: its full name.
        host: the full name of the task of the mirrors.
        number: counts the updates, on the task itself.
        mark: on the host: for which training the mirrors have values (`distributed.shard_recovery`).
        mirrors: by the names of the variables' handles.
    """

    task: str
    host: str
    number: Variable
    mark: Variable
    mirrors: dict[str, _Mirror] = field(default_factory=dict)

    def build(self, mark: int) -> None:
        """Adds the operations that `give_back` and `make` run.

        Args:
            mark: of the training.
        """
        graph = get_default_graph()
        newest = [raw.Max(m.numbers.read_value(), np.arange(m.numbers.shape.ndims or 0)) for m in self.mirrors.values()]
        self._newest = raw.Max(raw.Pack(newest), np.int32(0))
        self._read_number = self.number.read_value()
        self._next = raw.Placeholder(dtype=np.int64, shape=[])
        self._count_on = self.number.assign(self._next).op
        self._take = group(*(m.variable.assign(m.copy.read_value()).op for m in self.mirrors.values()))
        made = []
        with graph.control_dependencies([self._count_on]):
            for mirror in self.mirrors.values():
                made.append(mirror.copy.assign(mirror.variable.read_value()).op)
                with graph.device(mirror.numbers.device):
                    numbers = raw.Fill(np.asarray(mirror.numbers.shape.as_list(), np.int32), self._next)
                made.append(mirror.numbers.assign(numbers).op)
        self._make = group(*made)
        self.is_marked, self.read_mark = self.mark.is_initialized(), self.mark.read_value()
        self._set_mark = self.mark.assign(np.int64(mark)).op

    def give_back(self, session: Session) -> None:
        """Gives the variables the values of their mirrors."""
        session.run(self._take)

    def make(self, session: Session, has_number: bool, has_mirrors: bool) -> None:
        """Gives the mirrors the values of their variables, and marks them; numbers go on beyond all that are known.

        Args:
            has_number: whether the task still has the count of its updates.
            has_mirrors: whether the host has mirrors of this training.
        """
        known = [read for read, is_there in ((self._read_number, has_number), (self._newest, has_mirrors)) if is_there]
        highest = max(map(int, session.run(known)), default=0)
        session.run(self._make, {self._next: highest + _INCARNATION})
        session.run(self._set_mark)


class ShardMirrors:
    """The mirrors of a graph.

    Attributes:
        shards: what is mirrored, by the full names of tasks.
        is_served: whether a session gives values back; else nothing gives the mirrors their first ones either.
    """

    def __init__(self) -> None:
        self.shards: dict[str, MirroredShard] = {}
        self.is_served = False

    def mirror(self, update: Operation, name: str | None = None) -> Operation:
        """Adds what brings to the mirrors what an operation changes, and all that it waits for.

        Raises:
            ValueError: it changes variables of less than two tasks.
        """
        graph = get_default_graph()
        changed = _changed(update)
        tasks = sorted({task_of_device(variable.device) for variable, _ in changed.values()} | set(self.shards))
        if len(tasks) < 2:
            raise ValueError(
                f"mirrors need variables on two parameter servers at least, and {update.name} changes variables of "
                f"{', '.join(tasks) or 'none'}: place them with tf.train.replica_device_setter, or leave mirrored out"
            )
        hosts = dict(itertools.pairwise([*tasks, tasks[0]]))
        done = [update]
        with graph.name_scope(name or "mirrored"):
            for task in tasks:
                mine = {key: it for key, it in changed.items() if task_of_device(it[0].device) == task}
                if mine:
                    done += self._bring(update, self._shard(task, hosts[task], mine), mine)
            return group(*done)

    def _shard(self, task: str, host: str, changed: Mapping[str, tuple[Variable, Tensor | None]]) -> MirroredShard:
        shard = self.shards.get(task)
        if shard is None:
            device = next(iter(changed.values()))[0].device
            with get_default_graph().device(None):
                number = _made(np.int64(0), f"shard_number/{_short(task)}", device)
                mark = _made(np.int64(0), f"mirror_mark/{_short(task)}", _device_of(host))
            shard = self.shards[task] = MirroredShard(task, host, number, mark)
        for key, (variable, indices) in changed.items():
            if key not in shard.mirrors:
                shard.mirrors[key] = _mirror(variable, shard.host, by_rows=indices is not None)
        return shard

    def _bring(
        self, update: Operation, shard: MirroredShard, changed: Mapping[str, tuple[Variable, Tensor | None]]
    ) -> Iterator[Operation]:
        graph = get_default_graph()
        with graph.device(None), graph.device(shard.number.device):
            with graph.control_dependencies([update]):
                counted = shard.number.assign_add(1).op
            with graph.control_dependencies([counted]):
                number = shard.number.read_value()
        for key, (variable, indices) in changed.items():
            mirror = shard.mirrors[key]
            by_rows = indices is not None and mirror.numbers.shape.ndims == 1
            with graph.device(None), graph.device(variable.device), graph.control_dependencies([number.op]):
                if by_rows:
                    sent = raw.ResourceGather(variable.handle, indices, dtype=variable.dtype.base_dtype)
                else:
                    sent = variable.read_value()
            with graph.device(None), graph.device(mirror.copy.device):
                if by_rows:
                    yield raw._ScatterNewer(mirror.copy.handle, mirror.numbers.handle, indices, sent, number)
                else:
                    yield raw._AssignNewer(mirror.copy.handle, mirror.numbers.handle, sent, number)


#: of the graphs that have mirrors
shard_mirrors: WeakKeyDictionary[Graph, ShardMirrors] = WeakKeyDictionary()


def check_mirrors_are_served(graph: Graph) -> None:
    """Raises ValueError where a graph has mirrors, and no session gives them values."""
    mirrors = shard_mirrors.get(graph)
    if mirrors is not None and not mirrors.is_served:
        raise ValueError(
            "tf.train.replicas.mirrored needs a session that gives lost shards their values back: "
            'tf.train.MonitoredTrainingSession(checkpoint_dir=..., save_checkpoint_secs="auto")'
        )


# ---------------------------------------------------------------------- what an update changes
def _changed(update: Operation) -> dict[str, tuple[Variable, Tensor | None]]:
    """What an operation, and all that it waits for, writes of the variables of other tasks.

    Returns:
        By the name of the handle: the variable, and the indices of its rows that are written; None: any of them.
    """
    shared = {v.handle.op.name: v for v in global_variables() if task_of_device(v.device)}
    changed: dict[str, tuple[Variable, Tensor | None]] = {}
    for op in _behind(update):
        for key, indices in _written(op):
            if key in shared:
                # rows of two updates, or rows and the whole, are the whole
                changed[key] = (shared[key], None if key in changed else indices)
    return dict(sorted(changed.items()))


def _behind(last: Operation) -> Iterator[Operation]:
    """An operation, and those that it waits for."""
    seen, waiting = {last}, [last]
    while waiting:
        op = waiting.pop()
        yield op
        for before in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            if before not in seen:
                seen.add(before)
                waiting.append(before)


def _written(op: Operation) -> Iterator[tuple[str, Tensor | None]]:
    """The handles of the variables that an operation writes, with the indices of the rows, where it writes rows."""
    names = [argument.name for argument in op.op_def.inputs]
    for position, tensor in enumerate(op.inputs):
        if tensor.op.type != "VarHandleOp" or op.type in _READS:
            continue
        by_name = dict(zip(names, op.inputs, strict=False)) if len(names) == len(op.inputs) else {}
        if not by_name:
            # a conditional or a loop, whose functions may write all that they are given
            yield tensor.op.name, None
        elif names[position] in op.op_def.writes:
            yield tensor.op.name, by_name.get("indices") if op.type.startswith(_BY_ROWS) else None


#: what takes a variable and leaves it as it is
_READS: Final = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
#: what writes the rows that its input "indices" names
_BY_ROWS: Final = ("ResourceSparseApply", "ResourceScatter")


# ---------------------------------------------------------------------- helpers
def _device_of(task: str) -> str:
    spec = DeviceSpec.from_string(task)
    return f"/job:{spec.job}/task:{spec.task}"


def _short(task: str) -> str:
    spec = DeviceSpec.from_string(task)
    return f"{spec.job}_{spec.task}"


def _mirror(variable: Variable, host: str, by_rows: bool) -> _Mirror:
    shape = variable.shape.as_list()
    device, name = _device_of(host), variable.handle.op.name
    zero = np.zeros((), variable.dtype.base_dtype.as_numpy_dtype)
    copy = _made(lambda: raw.Fill(np.asarray(shape, np.int32), zero), f"{name}/mirror", device)
    numbers = _made(np.zeros(shape[:1] if by_rows else [], np.int64), f"{name}/mirror_numbers", device)
    return _Mirror(variable, copy, numbers)


def _made(value: PassedOn, name: str, device: str) -> Variable:
    graph = get_default_graph()
    with graph.name_scope(""), graph.control_dependencies(None), graph.device(None), graph.device(device):
        return Variable(value, trainable=False, collections=[_COLLECTION], name=name, use_resource=True)
