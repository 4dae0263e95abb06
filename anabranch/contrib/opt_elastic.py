"""Elastic averaging: workers explore around common centers, and pull them along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn, TensorLike
from anabranch.contrib.opt_centers import (
    CenterGetter,
    CentersHook,
    centers_of,
    is_every,
    kept_local,
    local_counter,
    named_variables,
)

#: the name scope of what a worker remembers of the centers
LOCAL_VARIABLE_NAME: Final = "local_center_variable"


class ElasticAverageCustomGetter(CenterGetter):
    """Makes, for each trainable variable, a worker's copy, the common center, and what the worker remembers of it.

    Give it as `custom_getter` to the `tf.variable_scope` in which `tf.get_variable` makes a model, within the
    `tf.device` of a `tf.train.replica_device_setter`, which places the centers and the global step.

    Args:
        worker_device: the worker's device, such as "/job:worker/task:0".

    Example:
        >>> getter = tf.contrib.opt.ElasticAverageCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> [v.op.name for v in tf.global_variables()], [v.op.name for v in tf.local_variables()]
        (['global_center_variable/w'], ['w', 'local_center_variable/w'])
    """

    def __init__(self, worker_device: str) -> None:
        super().__init__(worker_device, LOCAL_VARIABLE_NAME, places_locals=True)
        self._local_map = self._third_map


class ElasticAverageOptimizer(tf.train.Optimizer):
    """Lets workers train copies of the variables that are tied to common centers (Zhang, Choromanska, LeCun, 2015).

    "Deep learning with Elastic Averaging SGD". Each worker lets another optimizer update its copies. After every
    `communication_period` steps of its own it reads the centers, and copies and centers come nearer to each other:
    ``pull = moving_rate * (copy - center); copy -= pull; center += pull``. Workers do not wait for each other. The
    state of the optimizer inside is each worker's own.

    Args:
        opt: the optimizer of the copies.
        num_worker: how many workers there are.
        ea_custom_getter: the getter that made the variables.
        communication_period: after how many steps a worker looks at the centers.
        moving_rate: a number: how strongly they pull; None: ``0.9 / communication_period / num_worker``.
        rho: a number: what the distance from the centers adds to the loss in `compute_gradients`; None: `moving_rate`
            over the learning rate of `opt`. 0 is recommended for workers that do not wait for each other.
        use_locking: see `tf.train.Optimizer`.
        synchronous: whether workers wait at the start until all of them are there.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty, or `rho` is None and `opt` has no learning rate.

    Example:
        >>> getter = tf.contrib.opt.ElasticAverageCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> inner = tf.train.GradientDescentOptimizer(1.0)
        >>> opt = tf.contrib.opt.ElasticAverageOptimizer(inner, 1, getter, communication_period=1, moving_rate=0.25)
        >>> step = opt.apply_gradients([(tf.constant(4.0), w)])
        >>> sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        [None, None]
        >>> sess.run(step.op)
        >>> sess.run([w] + tf.global_variables())
        [np.float32(-2.0), np.float32(0.0)]
    """

    BETA = 0.9

    def __init__(
        self,
        opt: tf.train.Optimizer,
        num_worker: int,
        ea_custom_getter: ElasticAverageCustomGetter,
        communication_period: int = 10,
        moving_rate: float | None = None,
        rho: TensorLike | None = None,
        use_locking: bool = True,
        synchronous: bool = False,
        name: str = "ElasticAverageOptimizer",
    ) -> None:
        super().__init__(use_locking, name)
        self._opt = opt
        self._num_worker = num_worker
        self._period = communication_period
        self._global_map = ea_custom_getter._global_map
        self._local_map = ea_custom_getter._local_map
        self._synchronous = synchronous
        self._moving_rate = self.BETA / communication_period / num_worker if moving_rate is None else moving_rate
        self._rho = self._moving_rate / _learning_rate(opt) if rho is None else rho
        self._local_step = local_counter()

    def compute_gradients(
        self,
        loss: TensorLike,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = tf.train.Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | None = None,
    ) -> list[tuple[Any, Any]]:
        """The gradients of the loss and of `rho` times half the squares of the distances from the centers.

        Args:
            loss: a scalar tensor.
            var_list: the variables; None: the trainable ones.
            gate_gradients: see `tf.train.Optimizer.compute_gradients`.
            aggregation_method: see `tf.train.Optimizer.compute_gradients`.
            colocate_gradients_with_ops: see `tf.train.Optimizer.compute_gradients`.
            grad_loss: see `tf.train.Optimizer.compute_gradients`.

        Returns:
            Pairs of gradients and variables.

        Raises:
            ValueError: a variable has no center.
        """
        variables = list(var_list or tf.trainable_variables())
        remembered = centers_of(variables, self._local_map, "ElasticAverageCustomGetter")
        distances = [tf.nn.l2_loss(var - center) for var, center in zip(variables, remembered, strict=True)]
        return self._opt.compute_gradients(
            loss + self._rho * tf.add_n(distances),
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )

    def apply_gradients(  # type: ignore[override]
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Tensor:
        """Adds the updates of the copies and, when it is time, of the centers.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented whenever the centers are updated.
            name: of the operations of the optimizer inside.

        Returns:
            What to run for a step; its value is whether the centers were updated.

        Raises:
            ValueError: a variable has no center.
        """
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        variables = [var for _, var in pairs]
        centers = centers_of(variables, self._global_map, "ElasticAverageCustomGetter")
        remembered = centers_of(variables, self._local_map, "ElasticAverageCustomGetter")
        with kept_local():
            updates = self._opt.apply_gradients(pairs, name=name)
        with tf.control_dependencies([updates]):
            count = self._local_step.assign_add(1, name="local_step_update")

        def pull() -> tf.Operation:
            noted = [seen.assign(center.read_value()) for seen, center in zip(remembered, centers, strict=True)]
            pulls, changes = [], []
            for var, value in zip(variables, noted, strict=True):
                with tf.device(var.device):
                    pulls.append(self._moving_rate * (var.read_value() - value))
            for var, center, change in zip(variables, centers, pulls, strict=True):
                changes += [var.assign_sub(change, read_value=False), center.assign_add(change, read_value=False)]
            if global_step is not None:
                with tf.colocate_with(global_step):
                    changes.append(global_step.assign_add(1, read_value=False))
            return tf.group(*changes)

        step: tf.Tensor = tf.cond(is_every(self._period, count), pull, tf.no_op)
        return step

    def get_init_op(self, task_index: int) -> tf.Operation:
        """The operation that gives a worker's variables the values of the centers, before it trains.

        Args:
            task_index: which worker this is; with `synchronous`, it waits for the others.

        Raises:
            ValueError: there are no trainable variables, or one has no center.
        """
        variables = tf.trainable_variables()
        centers = centers_of(variables, self._global_map, "ElasticAverageCustomGetter")
        remembered = centers_of(variables, self._local_map, "ElasticAverageCustomGetter")
        assigned = []
        for var, center, seen in zip(variables, centers, remembered, strict=True):
            value = center.read_value()
            assigned += [var.assign(value, read_value=False), seen.assign(value, read_value=False)]
        if not self._synchronous:
            return tf.group(*assigned)
        with tf.device(centers[0].device):  # where all workers look
            return self._together(assigned, task_index)

    def _together(self, before: list[Any], task_index: int) -> tf.Operation:
        """Ends when all workers have done what is to be done before: each tells each other, by queues."""
        queues = [
            tf.FIFOQueue(self._num_worker, [tf.bool], shapes=[[]], shared_name=f"variable_init_sync_queue{worker}")
            for worker in range(self._num_worker)
        ]
        with tf.control_dependencies(before):
            told = [queue.enqueue(False) for worker, queue in enumerate(queues) if worker != task_index]
        return tf.group(*before, *told, queues[task_index].dequeue_many(self._num_worker - 1))

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> tf.train.SessionRunHook:
        """A hook that runs `get_init_op` when a session begins.

        Args:
            is_chief: whether this worker initializes the centers; that is its session's business.
            task_index: which worker this is.
        """
        del is_chief
        return CentersHook(lambda: self.get_init_op(task_index))

    def swapping_saver(
        self,
        var_list: Iterable[Any] | Mapping[str, Any] | None = None,
        name: str = "swapping_saver",
        **kwargs: PassedOn,
    ) -> tf.train.Saver:
        """A saver that saves the centers under the names of the variables, for models that do without centers.

        Args:
            var_list: what to save, as of `tf.train.Saver`; None: the trainable variables.
            name: of the saver.
            **kwargs: further arguments of `tf.train.Saver`.

        Raises:
            RuntimeError: the getter has made no variable yet.
        """
        if not self._global_map:
            raise RuntimeError(
                "there are no centers yet: call swapping_saver after the model is made, with an "
                "ElasticAverageCustomGetter as custom_getter"
            )
        named = named_variables(tf.trainable_variables() if var_list is None else var_list)
        swapped = {
            key: [self._global_map.get(part, part) for part in var]
            if isinstance(var, list)
            else self._global_map.get(var, var)
            for key, var in named.items()
        }
        return tf.train.Saver(swapped, name=name, **kwargs)


def _learning_rate(opt: tf.train.Optimizer) -> Any:
    for attribute in ("_learning_rate", "_lr"):
        if hasattr(opt, attribute):
            rate = getattr(opt, attribute)
            return rate() if callable(rate) else rate
    raise ValueError(f"{type(opt).__name__} says no learning rate, from which rho would follow: give rho")
