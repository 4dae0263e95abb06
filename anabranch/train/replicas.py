"""`tf.train.replicas`: how replicas train together, one line around any optimizer  (§4.4).

`asynchronous` applies each gradient at once (§4.4, Fig. 4a); `synchronous` takes the first m of n (Fig. 4b and c);
`averaging` lets each worker train on a copy of its own and averages the copies (SparkNet, Moritz et al., ICLR 2016);
`downpour` fetches parameters and pushes sums of gradients at intervals (DistBelief, Dean et al., NIPS 2012).

What replicas share stands on the task of the global step and of the variables: accumulators, a queue of tokens for each
worker, and a table of measurements. A worker hands in its gradients and takes *all* tokens of its own queue, at least
one; the chief puts the number of the step that begins into each queue. So no worker counts twice in a step, and a late
one goes on at once. A worker that has ended, or is not heard of, is not waited for (`replica_presence`). Where a step
does not end in time all the same, `reissue_op` gives those who wait the token of that step once more: they compute in
the place of one that hangs, or has just died.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from anabranch.core.device import DeviceSpec
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.scope import variable_scope
from anabranch.frontend.variables.store import regularize
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.delegating_optimizer import DelegatingOptimizer
from anabranch.train.monitored_session import MonitoredSession
from anabranch.train.optimizer import GradientsAndVariables, Optimizer
from anabranch.train.replica_hook import ReplicaHook
from anabranch.train.replica_pieces import (
    added_to,
    after,
    as_double,
    assigned,
    either,
    local_variable,
    made_local,
    partitioned_as,
    values_of,
)
from anabranch.train.replica_presence import Presence
from anabranch.train.replica_rounds import Begun, RoundsRunner, accumulated, hand_out, rounds_runners, token_queue
from anabranch.train.replica_status import TABLE_NAME, WAITS_IN, WorkerStatus, statuses
from anabranch.train.session_run_hook import SessionRunHook
from anabranch.train.training_util import get_or_create_global_step

#: rows of the table of measurements: that of a worker is its task's number
MAX_WORKERS = 64
#: tokens that wait for one worker; a dead one's queue does not grow beyond
_MOST_TOKENS = 1000
#: An epoch ends when the model goes back to a checkpoint. Its number is at most that of the second (until 2038), so
#: that the two make up 62 bits.
_ROUNDS_OF_EPOCH = np.int64(1 << 31)
_ZERO = np.int64(0)
#: the token that says that no round follows
_NO_MORE = np.int64(-1)


def asynchronous(optimizer: Optimizer) -> ReplicaOptimizer:
    """Each worker applies its gradients at once  (§4.4, Fig. 4a).

    Args:
        optimizer: what applies them.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> opt = tf.train.replicas.asynchronous(tf.train.GradientDescentOptimizer(0.25))
        >>> train = opt.minimize(tf.square(w), tf.train.get_or_create_global_step())
        >>> with tf.train.MonitoredTrainingSession(hooks=[opt.make_session_run_hook(is_chief=True)]) as s:
        ...     s.run(train)
        ...     s.run(w), opt.status(s)[0].steps
        (np.float32(0.5), 1)
    """
    return ReplicaOptimizer(optimizer, "asynchronous")


def synchronous(
    optimizer: Optimizer, aggregate: int, backups: int = 0, reissue_after: float = 30.0
) -> SynchronousReplicas:
    """The mean of the first `aggregate` of `aggregate + backups` workers' gradients makes a step  (§4.4, Fig. 4b, c).

    Later gradients are dropped and counted (Chen et al., Revisiting Distributed Synchronous SGD, 2016). Where so many
    workers have ended that fewer than `aggregate` are left, it is the mean of theirs.

    Args:
        optimizer: what applies the mean.
        aggregate: how many gradients make up a step, m.
        backups: how many workers there are beyond, b.
        reissue_after: seconds of waiting in one step after which those who wait get another token; a worker that is not
            heard of for so long (10 s at least) is not waited for until it is.

    Raises:
        ValueError: `aggregate` is less than 1, `backups` less than 0, or there are more than `MAX_WORKERS`.
    """
    return SynchronousReplicas(optimizer, "synchronous", aggregate, backups, reissue_after)


def averaging(optimizer: Optimizer, every: int, workers: int, reissue_after: float = 30.0) -> AveragedReplicas:
    """Each worker trains on its own copy; the copies are averaged every so many steps (SparkNet; local SGD).

    The model is built within `local_copies()`.

    Args:
        optimizer: what changes the worker's copy; its slots stay with the copy.
        every: steps between two averages, the paper's τ.
        workers: how many copies make up a mean.
        reissue_after: seconds of waiting for one mean after which those who wait train on, and hand in once more; a
            worker that is not heard of for so long (10 s at least) is not waited for until it is.

    Raises:
        ValueError: a number is less than 1, or there are more than `MAX_WORKERS` workers.
    """
    return AveragedReplicas(optimizer, every, workers, reissue_after)


def downpour(optimizer: Optimizer, fetch: int, push: int, local: Optimizer | None = None) -> DownpourReplicas:
    """DistBelief's Downpour SGD: parameters are fetched, and sums of gradients pushed, each so many steps.

    The model is built within `local_copies()`.

    Args:
        optimizer: what applies the sums to the shared parameters.
        fetch: steps between two fetches, the paper's n_fetch.
        push: steps between two pushes, n_push.
        local: what changes the copy between fetches, plain gradient descent in the paper; default: nothing does.

    Raises:
        ValueError: a number is less than 1.
    """
    return DownpourReplicas(optimizer, fetch, push, local)


# ---------------------------------------------------------------------- asynchronous, and what all have
class ReplicaOptimizer(DelegatingOptimizer):
    """What `asynchronous` returns; the others derive from it."""

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        super().__init__(optimizer, False, name)
        self._built = False

    def compute_gradients(self, *args: PassedOn, **kwargs: PassedOn) -> GradientsAndVariables:
        """The gradients of this worker's batch; the other optimizer's arguments."""
        return self._after_start(self._opt.compute_gradients(*args, **kwargs))

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds what a worker does in a step. Arguments as of `Optimizer.apply_gradients`."""
        pairs = self._prepared(grads_and_vars, global_step)
        read = raw.Identity(self._started) if self._started is not None else self._global_step.read_value()
        pairs = [(after([read], grad), var) for grad, var in pairs]
        # the step before this update, and after the gradients are there: what came in between is the staleness
        with get_default_graph().control_dependencies([values_of(g) for g, _ in pairs if g is not None]):
            now = self._global_step.read_value()
            seconds = self._elapsed()
        measured = self._measure(steps=1, staleness=now - read, seconds=seconds)
        with get_default_graph().control_dependencies([now.op]):
            pairs = [(after([now], grad), var) for grad, var in pairs]
            update = self._opt.apply_gradients(pairs, global_step=self._global_step)
        with get_default_graph().control_dependencies([update, measured]):
            return group(self._begin_anew(), name=name)

    def make_session_run_hook(self, is_chief: bool) -> SessionRunHook:
        """A hook for monitored sessions, which every worker needs.

        Args:
            is_chief: whether this worker is the chief.
        """
        return ReplicaHook(self, is_chief)

    def status(self, session: Session | MonitoredSession) -> list[WorkerStatus]:
        """What has been measured of each worker that has handed in anything, the slowest first.

        Args:
            session: one in which to read it.

        Raises:
            ValueError: before `apply_gradients`.
        """
        if not self._built:
            raise ValueError("status() should be called after apply_gradients()")
        return statuses(session.run(self.status_tensor))

    # ------------------------------------------------------------------ measurements
    _started: Tensor | None = None

    def _after_start(self, pairs: GradientsAndVariables) -> GradientsAndVariables:
        """The gradients, after the number of the step in which the variables are read has been read."""
        step = get_or_create_global_step()
        self._started = step.read_value()
        return [(after([self._started], grad), var) for grad, var in pairs]

    def _prepared(self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None) -> list[Any]:
        pairs = list(grads_and_vars)
        if all(grad is None for grad, _ in pairs):
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        self._global_step = global_step if global_step is not None else get_or_create_global_step()
        anchor = no_op()
        #: the number of this worker's task
        self.worker = DeviceSpec.from_string(anchor.device).task or 0
        graph = get_default_graph()
        with graph.device(self._global_step.device):
            rows = np.tile([0.0] * WAITS_IN + [-1.0], (MAX_WORKERS, 1))
            table = Variable(rows, trainable=False, name=TABLE_NAME, use_resource=True)
            self._table, self.status_tensor = table, table.read_value()
        self._clock = local_variable(0.0, np.float64, "replica_clock", anchor)
        self._local_step = local_variable(0, np.int64, "replica_local_step", anchor)
        self._worker_init = [self._begin_anew(), assigned(self._local_step, self._global_step.read_value())]
        self._built = True
        return pairs

    def _begin_anew(self) -> Operation:
        return assigned(self._clock, raw._MonotonicSeconds())

    def _elapsed(self) -> Any:
        return raw._MonotonicSeconds() - self._clock.read_value()

    def _measure(self, steps: int, staleness: TensorLike, seconds: TensorLike, waits: TensorLike = -1) -> Operation:
        """Adds a step to this worker's row."""
        stale, took, waiting = (as_double(value) for value in (staleness, seconds, waits))
        # counted as dropped where late gradients are: the synchronous rules wait, and know by `waits`
        dropped = raw.Minimum(stale, as_double(1)) if self._drops else as_double(0)
        graph = get_default_graph()
        with graph.device(self._table.device):
            row = self._table.read_value()[self.worker]
            added = raw.Pack([as_double(steps), dropped, stale - row[2], stale, took - row[4], took, waiting - row[6]])
            done = self._table.scatter_nd_add([[self.worker]], raw.ExpandDims(added, 0))
        return done if isinstance(done, Operation) else done.op

    _drops = False
    _chief_runner: RoundsRunner | None = None
    _chief_init: Operation | None = None
    _presence: Presence | None = None
    _is_awaited: Tensor | None = None
    reissue_op: Operation | None = None
    finish_op: Operation | None = None
    _reissue_after = 0.0

    #: counts this worker's steps, where there is something to run after some of them
    _count: Variable | None = None

    def _after_steps(self, count: int) -> list[Operation]:
        """What a worker runs, in this order, after that many steps."""
        return []

    def _at_end(self, count: int) -> list[Operation]:
        """What a worker runs that ends after that many steps."""
        return []


# ---------------------------------------------------------------------- rounds
class _Rounds(ReplicaOptimizer):
    """Rounds of which each takes the mean of the first m values handed in; see the module."""

    _drops = True

    def __init__(self, optimizer: Optimizer, name: str, aggregate: int, backups: int, reissue_after: float) -> None:
        super().__init__(optimizer, name)
        if aggregate < 1 or backups < 0 or aggregate + backups > MAX_WORKERS:
            raise ValueError(f"aggregate must be 1 or more, backups 0 or more, both at most {MAX_WORKERS} together")
        self._aggregate, self._workers, self._reissue_after = aggregate, aggregate + backups, reissue_after

    def _round(
        self,
        pairs: list[Any],
        number: Variable,
        apply: Callable[[list[Any]], Operation],
        elapsed: Callable[[], TensorLike],
    ) -> Operation:
        """What a worker does in a round: it hands in, waits for a token, and knows the round's number after that.

        Args:
            pairs: what it hands in, with the variables where accumulators stand.
            number: the variable that counts rounds.
            apply: adds what the chief does with the means, the counting included.
            elapsed: makes the seconds that this worker took.
        """
        graph = get_default_graph()
        with graph.device(number.device):
            self._epoch = Variable(np.int64(0), trainable=False, name="replica_epoch", use_resource=True)
        self._begun = Begun(number.device)
        local = self._local_step.read_value()
        self._queues = [token_queue(number, worker) for worker in range(self._workers)]
        parts = [(accumulated(self._name, value, var, local, self._aggregate), var) for value, var in pairs]
        kept = [part for part, _ in parts if part is not None]
        self._presence = Presence(self.worker, self._workers, self._aggregate, number.device, kept, self._reissue_after)
        with graph.control_dependencies([values_of(value) for value, _ in pairs if value is not None]):
            took = elapsed()
        # as the accumulators say: the round's number, read beside that, may be the next one already, which this
        # worker's values have made possible
        times = [part.handed_in for part in kept]
        with graph.device(number.device):
            now = raw.Max(raw.Pack(times), np.int32(0))
        of_round = local % _ROUNDS_OF_EPOCH
        behind = raw.Maximum(now % _ROUNDS_OF_EPOCH - of_round, _ZERO)
        measured = self._measure(1, behind, took, waits=of_round)
        with graph.device(number.device):
            update = apply([(part and part.mean, var) for part, var in parts])
            with graph.control_dependencies([update]):
                begun = self._stamp(number)
                tokens = [hand_out(queue, begun, queue.size() < _MOST_TOKENS) for queue in self._queues]
            with graph.control_dependencies(tokens):
                told = self._begun.tell(begun)
            self._chief_runner = RoundsRunner(self._queues[0], [told])
            self._chief_runner.leaves_queue_open = True
            rounds_runners[graph] = self._chief_runner
            current = self._told(number)
            waits_in = self._table.read_value()[: self._workers, WAITS_IN]
            # those who wait for the end of this step, or for a token that a chief who died has not handed out
            # one that has died has tokens as soon as it was given them once
            wait = [
                raw.LogicalAnd(queue.size() < 1, waits_in[worker] >= as_double(0))
                for worker, queue in enumerate(self._queues)
            ]
            self._is_awaited = raw.Any(raw.Pack(wait), np.int32(0))
            again = [hand_out(queue, current, waits) for queue, waits in zip(self._queues, wait, strict=True)]
        with graph.device(number.device):
            time = self._stamp(number)
        # tokens that a chief before this one has not handed out are handed out once more
        self._chief_init = group(*(part.set_time(time) for part in kept), self._begun.tell(time))
        self._chief_runner.starts_anew(
            self._next_epoch(), self._chief_init, time, [(part.accumulator, part.device) for part in kept]
        )
        #: gives those who wait the current token once more; the chief's hook runs it where a step does not end
        self.reissue_op = group(*again)
        own = self._queues[self.worker]
        with graph.device(number.device):
            #: tells the other workers that no round follows; the chief's hook runs it at the end
            self.finish_op = group(*(queue.enqueue(_NO_MORE) for queue in self._queues if queue is not own))
            # in this order: no token that comes after these is of the round that is told of, or of an earlier one
            last = self._told(number)
            with graph.control_dependencies([last]):
                drained = own.dequeue_many(own.size())
            current = raw.Max(raw.ConcatV2([raw.ExpandDims(last, 0), drained], 0), np.int32(0))
        self._worker_init = [self._begin_anew(), assigned(self._local_step, current), self._waits_no_more()]
        with graph.device(number.device), graph.control_dependencies([measured]):
            token, is_last = raw._LatestToken(own.dequeue_many(raw.Maximum(own.size(), 1)))
            # a round that this worker may have had a part in; the next step finds that none follows
            kept_for_next = hand_out(own, _NO_MORE, is_last)
        with graph.control_dependencies([kept_for_next]):
            token = raw.Identity(token)
        return self._token_taken(token, local)

    def _stamp(self, number: Variable) -> Any:
        """The number of a round with that of its epoch before it: what was computed before a rollback is too late."""
        return raw.Cast(number.read_value(), DstT=np.int64) + self._epoch.read_value() * _ROUNDS_OF_EPOCH

    def _told(self, number: Variable) -> Tensor:
        """The stamp of the round of which everybody was told, or would be if a chief were there."""
        graph = get_default_graph()
        with graph.device(number.device):
            told = self._begun.token(np.int64(-1))
            with graph.control_dependencies([told]):
                counted = self._stamp(number)
            # not of an epoch that is over, or of a training before this one
            epochs = raw.FloorDiv(raw.Pack([told, counted]), _ROUNDS_OF_EPOCH)
            is_of_now = raw.LogicalAnd(raw.Equal(epochs[0], epochs[1]), raw.LessEqual(told, counted))
            stamp: Tensor = either(is_of_now, told, counted)
            return stamp

    def _next_epoch(self) -> Operation:
        """Begins an epoch, and drops the tokens of the last."""
        with get_default_graph().device(self._epoch.device):
            # by the clock as well: after two rollbacks to one checkpoint, the second must not repeat the first one's
            seconds = raw.Cast(raw.Timestamp(), DstT=np.int64)
            begun = assigned(self._epoch, raw.Maximum(self._epoch.read_value() + 1, seconds))
            # the table says who waited when the checkpoint was saved; whoever waits now must get a token if no round
            # ends, and each worker may
            columns = [[worker, WAITS_IN] for worker in range(self._workers)]
            may_wait = self._table.scatter_nd_update(columns, np.zeros(self._workers))
            return group(begun, may_wait, *(queue.dequeue_many(queue.size()) for queue in self._queues))

    def _token_taken(self, token: Tensor, before: Tensor) -> Operation:
        with get_default_graph().control_dependencies([token]):
            return group(assigned(self._local_step, token), self._begin_anew(), self._waits_no_more())

    def _waits_no_more(self) -> Operation:
        with get_default_graph().device(self._table.device):
            done: Any = self._table.scatter_nd_update([[self.worker, WAITS_IN]], np.array([-1.0]))
        return done if isinstance(done, Operation) else done.op


class SynchronousReplicas(_Rounds):
    """What `synchronous` returns."""

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds what a worker and the chief do in a step. Arguments as of `Optimizer.apply_gradients`."""
        pairs = self._prepared(grads_and_vars, global_step)
        step = self._global_step
        return self._round(pairs, step, lambda means: self._opt.apply_gradients(means, step), self._elapsed)


# ---------------------------------------------------------------------- copies
class _Copies(ReplicaOptimizer):
    """Workers that compute with copies of the variables."""

    @contextlib.contextmanager
    def local_copies(self) -> Iterator[None]:
        """Variables that are got within are copies of this worker's own of shared ones of the same names.

        Example:
            >>> opt = tf.train.replicas.downpour(tf.train.GradientDescentOptimizer(0.5), fetch=1, push=1)
            >>> with opt.local_copies():
            ...     w = tf.get_variable("w", initializer=1.0)
            >>> [v.name for v in tf.global_variables()], [v.name for v in tf.local_variables()]
            (['w:0'], ['w/copy:0'])
        """
        self._shared: list[tuple[Variable, Variable]] = []
        known: dict[str, Variable | PartitionedVariable] = {}

        def get(getter: Callable[..., Any], name: str, *args: PassedOn, **kwargs: PassedOn) -> Any:
            if kwargs.get("trainable") is False:
                return getter(name, *args, **kwargs)
            if name in known:
                return known[name]
            # what is trained is the copy: it is regularized, and the shared one is not
            regularizer, constraint = kwargs.get("regularizer"), kwargs.get("constraint")
            shared = getter(name, *args, **{**kwargs, "trainable": False, "regularizer": None})
            parts = list(shared) if isinstance(shared, PartitionedVariable) else [shared]
            copies = [self._copied(part, constraint) for part in parts]
            if regularizer:
                for copy, part in zip(copies, parts, strict=True):
                    regularize(copy, part.op.name, regularizer)
            known[name] = copies[0] if parts[0] is shared else partitioned_as(shared, copies)
            return known[name]

        with variable_scope("", custom_getter=get):
            yield

    def _copied(self, shared: Variable, constraint: Callable[..., Any] | None) -> Variable:
        anchor = no_op()
        collections = [GraphKeys.LOCAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES]
        with get_default_graph().colocate_with(anchor), get_default_graph().name_scope(""):
            initial = np.zeros(shared.shape.sizes(), shared.dtype.base_dtype.as_numpy_dtype)
            name = f"{shared.op.name}/copy"
            copy = Variable(initial, collections=collections, name=name, constraint=constraint, use_resource=True)
        self._shared.append((copy, shared))
        return copy

    def _shared_of(self, var: Variable) -> Variable:
        for copy, shared in self._shared:
            if copy is var:
                return shared
        raise ValueError(f"{var.name} is no copy: build the model within local_copies() of this optimizer")

    def _counted(self, step: list[Operation], name: str | None) -> Operation:
        """A step on the copy, which counts: runs of something else between two steps do not."""
        count = self._count = local_variable(0, np.int64, "replica_steps", step[0])
        with get_default_graph().control_dependencies(step):
            return group(assigned(count, count.read_value() + 1), name=name)

    def _fetched(self) -> list[Operation]:
        return [assigned(copy, shared.read_value()) for copy, shared in self._shared]


class AveragedReplicas(_Rounds, _Copies):
    """What `averaging` returns."""

    def __init__(self, optimizer: Optimizer, every: int, workers: int, reissue_after: float) -> None:
        super().__init__(optimizer, "averaging", workers, 0, reissue_after)
        if every < 1:
            raise ValueError(f"every must be 1 or more, got {every}")
        self._every = every

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds a step on the copy, and `average_op`. The global step counts means."""
        pairs = self._prepared(grads_and_vars, global_step)
        step = self._global_step
        copies = [self._shared_of(var) and var for grad, var in pairs if grad is not None]
        handed = [(copy.read_value(), self._shared_of(copy)) for copy in copies]

        def assign(means: list[Any]) -> Operation:
            with get_default_graph().control_dependencies([assigned(var, mean) for mean, var in means]):
                return assigned(step, step.read_value() + 1)

        #: hands in the copy, waits for the mean and takes it; the hook runs it every so many steps
        self.average_op: Operation = self._round(handed, step, assign, self._elapsed)
        self._worker_init += self._fetched()
        with made_local():
            update = self._opt.apply_gradients(pairs)
        return self._counted([update], name)

    def _token_taken(self, token: Tensor, before: Tensor) -> Operation:
        graph = get_default_graph()
        taken = super()._token_taken(token, before)
        with graph.control_dependencies([token]):
            # without a new mean the copy stays: a worker that goes on in a dead one's place loses nothing
            ended = token > before
            fetched = [assigned(c, either(ended, s.read_value(), c.read_value())) for c, s in self._shared]
        return group(taken, *fetched)

    def _after_steps(self, count: int) -> list[Operation]:
        return [self.average_op] if count % self._every == 0 else []


class DownpourReplicas(_Copies):
    """What `downpour` returns."""

    def __init__(self, optimizer: Optimizer, fetch: int, push: int, local: Optimizer | None) -> None:
        super().__init__(optimizer, "downpour")
        if fetch < 1 or push < 1:
            raise ValueError(f"fetch and push must be 1 or more, got {fetch} and {push}")
        self._fetch, self._push, self._inner = fetch, push, local

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds a step, which adds up gradients, and `push_op` and `fetch_op`. The global step counts pushes.

        The sum of sparse gradients is dense.
        """
        pairs = [(g, v) for g, v in self._prepared(grads_and_vars, global_step) if g is not None]
        sums = [local_variable(np.zeros(v.shape.as_list()), v.dtype.base_dtype, "replica_sum", v.op) for _, v in pairs]
        added = [added_to(total, grad) for total, (grad, _) in zip(sums, pairs, strict=True)]
        # the sums are cleared before they arrive: what is added meanwhile belongs to the next push
        graph = get_default_graph()
        values = [total.read_value() for total in sums]
        with graph.control_dependencies([*values]):
            now, took = self._global_step.read_value(), self._elapsed()
            cleared = [assigned(t, raw.ZerosLike(v)) for t, v in zip(sums, values, strict=True)]
        read = self._local_step.read_value()
        measured = self._measure(1, raw.Cast(now, DstT=read.dtype) - read, took)
        with graph.control_dependencies([measured, *cleared]):
            pushed = [(raw.Identity(v), self._shared_of(var)) for v, (_, var) in zip(values, pairs, strict=True)]
            #: applies the sum of the gradients to the shared parameters; the hook runs it each `push` steps
            self.push_op: Operation = group(self._opt.apply_gradients(pushed, global_step=self._global_step))
        self._worker_init += self._fetched()
        with graph.control_dependencies([assigned(self._local_step, self._global_step.read_value())]):
            #: copies the shared parameters; the hook runs it each `fetch` steps
            self.fetch_op: Operation = group(*self._fetched(), self._begin_anew())
        with made_local():
            steps = [self._inner.apply_gradients(pairs)] if self._inner is not None else []
        return self._counted([*added, *steps], name)

    def _after_steps(self, count: int) -> list[Operation]:
        push, fetch = count % self._push == 0, count % self._fetch == 0
        return [self.push_op] * push + [self.fetch_op] * fetch

    def _at_end(self, count: int) -> list[Operation]:
        # what it has added up since its last push is nobody else's
        return [self.push_op] if count % self._push else []
