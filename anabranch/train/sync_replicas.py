"""`tf.train.SyncReplicasOptimizer`: replicas that train in step, with backup workers  (§4.4).

Each replica computes gradients of its own batch and adds them to *accumulators*, one per variable, which stand where
the variables are. When `replicas_to_aggregate` of them have come, the chief takes their mean, lets another optimizer
apply it, and puts as many *tokens* as a step needs into a queue: the number of the step that begins. A replica that has
handed in its gradients waits for a token, notes its number as its *local step*, and goes on.

    replica: read variables → gradients → accumulators (local step) → token → local step := token
    chief:   take the mean of m → update variables, global step + 1 → accumulators' time + 1 → max(m, n) tokens → …

A gradient whose local step is behind the accumulator's time is stale, and dropped. So with n > m replicas the first m
of them count and the rest are backups: a straggler's gradients are dropped when they come, and its token lets it join
the step that runs then. Tokens are not bound to replicas: where n < m, a replica takes several in one step. So
replicas may come and go: those who are there take what others would have taken, and what one of them took with it is
handed out again (`lost_tokens`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.compat import as_str_any
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arrays.constants import fill
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from anabranch.frontend.resources.queues import FIFOQueue
from anabranch.frontend.variables.functions import global_variables, report_uninitialized_variables
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator
from anabranch.train.lost_tokens import LostTokens, ReplicaMembership
from anabranch.train.moving_averages import ExponentialMovingAverage
from anabranch.train.optimizer import GradientsAndVariables, Optimizer
from anabranch.train.queue_runner import QueueRunner
from anabranch.train.replica_rounds import Begun, RoundsRunner, rounds_runners
from anabranch.train.session_manager import model_ready
from anabranch.train.session_run_hook import SessionRunHook

#: of a round, where none was begun since the task came that counts them
_NOT_BEGUN: Final = np.int64(-1)


class SyncReplicasOptimizer(Optimizer):
    """Lets another optimizer apply the mean of several replicas' gradients, once per step  (§4.4).

    Every replica builds the same graph and runs the operation that `minimize` returns; it ends when the replica may
    begin the next step. One replica, the chief, also runs a queue runner that takes the mean, updates the variables,
    and hands out tokens. The hook of `make_session_run_hook` initializes and starts all that.

    Args:
        opt: the optimizer that applies the mean.
        replicas_to_aggregate: how many gradients make up a step, m.
        total_num_replicas: how many replicas there are, n; default m. With n > m, n - m of them are backup workers: the
            first m gradients count, later ones are dropped. With n < m, replicas compute several batches per step.
        variable_averages: an `ExponentialMovingAverage` that follows the variables, or None.
        variables_to_average: the variables that it follows.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: the name is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.get_or_create_global_step()
        >>> opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.25), replicas_to_aggregate=1)
        >>> train = opt.minimize(tf.square(w), global_step=step)
        >>> with tf.train.MonitoredTrainingSession(hooks=[opt.make_session_run_hook(is_chief=True, num_tokens=0)]) as s:
        ...     for _ in range(3):
        ...         s.run(train)
        ...     s.run([w, step])
        [np.float32(0.125), np.int64(3)]
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(use_locking, name)
        if total_num_replicas is None:
            total_num_replicas = replicas_to_aggregate
        logging.info(
            "SyncReplicasV2: replicas_to_aggregate=%s; total_num_replicas=%s", replicas_to_aggregate, total_num_replicas
        )
        self._opt = opt
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total_num_replicas
        self._tokens_per_step = max(total_num_replicas, replicas_to_aggregate)
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._global_step: Variable | None = None
        self._token_queue: FIFOQueue | None = None
        self._chief_queue_runner: RoundsRunner | None = None

    # ------------------------------------------------------------------ of the other optimizer
    def compute_gradients(self, *args: PassedOn, **kwargs: PassedOn) -> GradientsAndVariables:
        """The gradients of this replica's batch, as the other optimizer computes them; its arguments.

        Clip them here, each replica its own: one replica's huge gradient would drown those of the others in the mean.

        Returns:
            Pairs (gradient, variable).

        Raises:
            TypeError, ValueError: as the other optimizer's `compute_gradients`.
        """
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: PassedOn, **kwargs: PassedOn) -> Variable | None:
        """A slot of the other optimizer; its arguments."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: PassedOn, **kwargs: PassedOn) -> list[str]:
        """The names of the other optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """The variables in which the other optimizer keeps its state; the local step is not among them."""
        return self._opt.variables()

    # ------------------------------------------------------------------ graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds what replicas and the chief do in a step.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them. Dense gradients have the shapes of their
                variables; an `IndexedSlices` any number of rows.
            global_step: the variable that counts steps, by which stale gradients are known.
            name: of the returned operation; accepted as TensorFlow does, and not used.

        Returns:
            What a replica runs: it hands in the gradients and waits for a token.

        Raises:
            ValueError: no pairs, no `global_step`, or a gradient is neither a tensor nor an `IndexedSlices` nor None.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._global_step = global_step
        graph = get_default_graph()
        self._local_step = _local_step(global_step)
        #: what replicas run once before their first step
        self.local_step_init_op: Operation = _assign(self._local_step, global_step.read_value())
        #: its value is empty when the variables that the chief initializes have values
        self.ready_for_local_init_op: Tensor = report_uninitialized_variables(global_variables())
        with graph.name_scope(self._name):
            accumulators = [self._accumulate(grad, var) for grad, var in pairs]
            handed_in = [item.handed_in for item in accumulators if item is not None]
            means = [(item and item.mean, var) for item, (_, var) in zip(accumulators, pairs, strict=True)]
            with graph.device(global_step.device), graph.name_scope(""):
                self._token_queue = queue = FIFOQueue(
                    -1, global_step.dtype.base_dtype, shapes=[()], name="sync_token_q", shared_name="sync_token_q"
                )
                update = self._opt.apply_gradients(means, global_step)
                self._chief_queue_runner = RoundsRunner(queue, [self._next_step(update)])
                rounds_runners[get_default_graph()] = self._chief_queue_runner
                with graph.control_dependencies(handed_in):
                    token = queue.dequeue()
                train_op = _assign(self._local_step, token)
            times = [item.set_time(global_step) for item in accumulators if item is not None]
            #: what the chief runs once before the first step
            self.chief_init_op: Operation = group(self.local_step_init_op, *times)
            with graph.device(global_step.device):
                no_tokens = queue.dequeue_many(queue.size()).op
                time = global_step.read_value()
            known = [(item._accumulator, item._device) for item in accumulators if item is not None]
            self._chief_queue_runner.starts_anew(no_tokens, group(*times), time, known)
            self._lost_tokens = LostTokens(queue, global_step)
            self._begun = Begun(global_step.device)
        return train_op

    def _accumulate(self, grad: Tensor | IndexedSlices | None, var: Variable) -> _Accumulated | None:
        """The accumulator of a variable, on its device; None if there is no gradient."""
        if grad is None:
            return None
        shared_name = as_str_any(var.name) + "/grad_accum"
        with get_default_graph().device(var.device):
            if isinstance(grad, Tensor):
                dense = ConditionalAccumulator(grad.dtype, shape=var.shape, shared_name=shared_name)
                handed_in = dense.apply_grad(grad, local_step=self._local_step)
                return _Accumulated(dense, var.device, handed_in, dense.take_grad(self._replicas_to_aggregate))
            if isinstance(grad, IndexedSlices):
                sparse = SparseConditionalAccumulator(grad.dtype, shape=(), shared_name=shared_name)
                handed_in = sparse.apply_indexed_slices_grad(grad, local_step=self._local_step)
                mean = sparse.take_indexed_slices_grad(self._replicas_to_aggregate)
                return _Accumulated(sparse, var.device, handed_in, mean)
        raise ValueError(f"Unknown grad type! Expected a tensor or IndexedSlices for {var.name}, got {grad!r}")

    def _next_step(self, update: Operation) -> Operation:
        """After the update: tokens with the number of the next step, then the moving averages."""
        assert self._token_queue is not None
        assert self._global_step is not None
        graph = get_default_graph()
        with graph.control_dependencies([update]):
            tokens = fill([self._tokens_per_step], self._global_step.read_value())
            handed_out: Operation = self._token_queue.enqueue_many((tokens,))
        if self._variable_averages is None:
            return handed_out
        with graph.control_dependencies([handed_out]):
            averaged: Operation = self._variable_averages.apply(self._variables_to_average)
        return averaged

    # ------------------------------------------------------------------ what the chief runs
    def get_chief_queue_runner(self) -> QueueRunner:
        """The queue runner with which the chief takes the mean, updates the variables and hands out tokens.

        Raises:
            ValueError: before `apply_gradients`.
        """
        if self._chief_queue_runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """An operation that puts the first tokens into the queue, for the chief to run once.

        They let replicas begin with several batches, as they must where there are fewer than gradients in a step.

        Args:
            num_tokens: how many; -1: `replicas_to_aggregate`.

        Raises:
            ValueError: before `apply_gradients`; or too few: replicas would wait for a step that lacks gradients.
        """
        if self._token_queue is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens == -1:
            num_tokens = self._replicas_to_aggregate
        elif num_tokens < needed:
            raise ValueError(f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} (needed)")
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        assert self._global_step is not None
        graph = get_default_graph()
        with graph.device(self._global_step.device), graph.name_scope(""):
            tokens = fill([num_tokens], self._global_step.read_value())
            handed_out: Operation = self._token_queue.enqueue_many((tokens,))
            return handed_out

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """A hook for monitored sessions that initializes a replica, and starts the chief's queue runner.

        Args:
            is_chief: whether this replica is the chief.
            num_tokens: see `get_init_tokens_op`; 0 where all replicas begin together.

        Raises:
            ValueError: when the session is made, before `apply_gradients`.
            RuntimeError: when the session is made, variables are not initialized.
        """
        return _SyncReplicasOptimizerHook(self, is_chief, num_tokens)


class _Accumulated:
    """The accumulator of a variable.

    Attributes:
        handed_in: the operation with which a replica adds its gradient.
        mean: what the chief takes.
    """

    def __init__(
        self,
        accumulator: ConditionalAccumulator | SparseConditionalAccumulator,
        device: str,
        handed_in: Operation,
        mean: Tensor | IndexedSlices,
    ) -> None:
        self._accumulator = accumulator
        self._device = device
        self.handed_in = handed_in
        self.mean = mean

    def set_time(self, global_step: Variable) -> Operation:
        """Tells the accumulator which step it is."""
        with get_default_graph().device(self._device):
            return self._accumulator.set_global_step(global_step, name="SetGlobalStep")


class _SyncReplicasOptimizerHook(SessionRunHook):
    """See `SyncReplicasOptimizer.make_session_run_hook`."""

    def __init__(self, sync_optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._sync_optimizer = sync_optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._had_session = False

    def begin(self) -> None:
        optimizer = self._sync_optimizer
        if optimizer._token_queue is None or optimizer._global_step is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradient should be called before using the hook.")
        self._ready_op = optimizer.ready_for_local_init_op
        self._membership = ReplicaMembership(optimizer._global_step.device)
        self._membership.begin()
        self._queue_runner: RoundsRunner | None = None
        if not self._is_chief:
            self._init_op = optimizer.local_step_init_op
            return
        self._init_op = optimizer.chief_init_op
        self._queue_runner = optimizer._chief_queue_runner
        self._init_tokens_op = optimizer.get_init_tokens_op(self._num_tokens)
        # whoever waits then must get one, whatever was wished for at the beginning
        self._tokens_again_op = optimizer.get_init_tokens_op()
        self._was_begun = optimizer._begun.token(_NOT_BEGUN)
        self._begin_op = optimizer._begun.tell(np.zeros([], np.int64))

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        ready, message = model_ready(
            self._ready_op, session, "Model is not ready for SyncReplicasOptimizer local init."
        )
        if not ready:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init. "
                f"Init op: {self._init_op.name}, error: {message}"
            )
        self._membership.after_create_session(session, coord)
        runner = self._queue_runner
        if runner is None:
            session.run(self._init_op)
            return
        if runner.lease is not None and not runner.lease.is_held:
            # The lease of the chief's last process is not over yet. When it is, the session is made anew.
            session.run(self._sync_optimizer.local_step_init_op)
            return
        begins_anew = self._had_session or int(session.run(self._was_begun)) != _NOT_BEGUN
        if begins_anew:
            # A task was lost, or this chief or one before it: the model may be that of a checkpoint, and tokens and
            # gradients of steps are left that are over, or come twice if the first tokens are handed out again.
            runner.begin_anew(session)
        self._had_session = True
        session.run(self._init_op)
        session.run(self._begin_op)
        session.run(self._tokens_again_op if begins_anew else self._init_tokens_op)
        runner.create_threads(session, coord=coord, daemon=True, start=True)
        self._sync_optimizer._lost_tokens.watch(session, coord, self._membership)

    def end(self, session: Session) -> None:
        self._membership.end(session)

    def abandoned(self) -> None:
        self._membership.abandoned()


def _local_step(global_step: Variable) -> Variable:
    """The variable that holds a replica's step: on the replica's task, also where variables go to others."""
    with get_default_graph().colocate_with(no_op()):
        return Variable(
            initial_value=0,
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
            dtype=global_step.dtype.base_dtype,
            name="sync_rep_local_step",
        )


def _assign(variable: Variable, value: TensorLike) -> Operation:
    graph = get_default_graph()
    with graph.device(None), graph.device(variable.device):
        return variable.assign(value).op
