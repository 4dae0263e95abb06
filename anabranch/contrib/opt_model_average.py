"""Model averaging: workers train copies of the variables and replace them by their mean, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn
from anabranch.contrib.opt_centers import (
    GLOBAL_VARIABLE_NAME,
    CentersHook,
    centers_of,
    is_every,
    local_counter,
    parts_of,
)


class ModelAverageCustomGetter:
    """Makes, for each trainable variable, a worker's copy and the common center, which begins with the copy's value.

    Give it as `custom_getter` to the `tf.variable_scope` in which `tf.get_variable` makes a model, within the
    `tf.device` of a `tf.train.replica_device_setter`, which places the centers and the global step.

    Args:
        worker_device: the worker's device, such as "/job:worker/task:0".

    Example:
        >>> getter = tf.contrib.opt.ModelAverageCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> [v.op.name for v in tf.global_variables()], [v.op.name for v in tf.local_variables()]
        (['global_center_variable/w'], ['w'])
    """

    def __init__(self, worker_device: str) -> None:
        self._worker_device = worker_device
        self._local_2_global: dict[Any, Any] = {}

    def __call__(
        self,
        getter: Callable[..., tf.Variable | Iterable[tf.Variable]],
        name: str,
        trainable: bool | None,
        collections: Sequence[str] | None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> tf.Variable | Iterable[tf.Variable]:
        """The worker's own copy of a trainable variable; other variables as they are."""
        local = [tf.GraphKeys.LOCAL_VARIABLES]
        if not trainable and tf.GraphKeys.LOCAL_VARIABLES not in (collections or ()):
            return getter(name, *args, trainable=trainable, collections=collections, **kwargs)
        with tf.device(self._worker_device):
            if not trainable:
                return getter(name, *args, trainable=trainable, collections=collections, **kwargs)
            copy = getter(name, *args, trainable=True, collections=local, **kwargs)
        for index, part in enumerate(parts_of(copy)):
            if part not in self._local_2_global:
                own_name = name if part is copy else f"{name}/part_{index}"
                self._local_2_global[part] = tf.Variable(
                    part.initialized_value(),
                    trainable=False,
                    collections=[tf.GraphKeys.GLOBAL_VARIABLES],
                    name=f"{GLOBAL_VARIABLE_NAME}/{own_name}",
                )
        return copy


class ModelAverageOptimizer(tf.train.Optimizer):
    """Lets workers train copies of the variables, which their mean replaces after every so many steps.

    After `interval_steps` steps of its own each worker hands in its copies, and waits; the chief takes their mean for
    the centers when all workers' are there, counts the global step, and lets the others go on with the mean.

    Args:
        opt: the optimizer of the copies.
        num_worker: how many workers there are.
        is_chief: whether this worker is the chief; exactly one must be.
        ma_custom_getter: the getter that made the variables.
        interval_steps: after how many steps the mean is taken.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> getter = tf.contrib.opt.ModelAverageCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> count = tf.train.get_or_create_global_step()
        >>> inner = tf.train.GradientDescentOptimizer(0.5)
        >>> opt = tf.contrib.opt.ModelAverageOptimizer(inner, 1, True, getter, interval_steps=2)
        >>> step = opt.apply_gradients([(tf.constant(1.0), w)], global_step=count)
        >>> sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        [None, None]
        >>> for _ in range(2):
        ...     sess.run(step.op)
        >>> sess.run([w, count])
        [np.float32(0.0), np.int64(1)]
    """

    def __init__(
        self,
        opt: tf.train.Optimizer,
        num_worker: int,
        is_chief: bool,
        ma_custom_getter: ModelAverageCustomGetter,
        interval_steps: int = 100,
        use_locking: bool = True,
        name: str = "ModelAverageOptimizer",
    ) -> None:
        super().__init__(use_locking, name)
        self._opt = opt
        self._num_worker = num_worker
        self._is_chief = is_chief
        self._local_2_global = ma_custom_getter._local_2_global
        self._interval_steps = interval_steps
        self._chief_init_op: tf.Operation | None = None
        self._local_step = local_counter()

    def compute_gradients(self, *args: PassedOn, **kwargs: PassedOn) -> list[tuple[Any, Any]]:
        """The gradients that the optimizer inside computes; arguments as of `tf.train.Optimizer.compute_gradients`."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(  # type: ignore[override]
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Tensor:
        """Adds the updates of the copies and, when it is time, the taking of the mean.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: the variable that counts how often the mean was taken.
            name: of the operations of the optimizer inside.

        Returns:
            What to run for a step; its value is whether the mean was taken.

        Raises:
            ValueError: no pairs, no `global_step`, or a variable without a center.
        """
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required")
        variables = [var for _, var in pairs]
        centers = self._centers(variables)
        with tf.control_dependencies([self._opt.apply_gradients(pairs, name=name)]):
            count = self._local_step.assign_add(1, name="local_step_update")
        with tf.colocate_with(global_step):
            ready = tf.FIFOQueue(-1, [tf.bool], shapes=[[]], shared_name="sync_queue")
        collected = []
        for var, center in zip(variables, centers, strict=True):
            with tf.name_scope(None), tf.name_scope(f"{self._name}/global"), tf.device(center.device):
                dtype, place = var.dtype.base_dtype, f"{center.name}/var_accum"
                collected.append(tf.ConditionalAccumulator(dtype, shape=var.shape, shared_name=place))

        def average() -> tf.Operation:
            now = tf.cast(global_step.read_value(), tf.int64)
            given = []
            for accumulator, var, center in zip(collected, variables, centers, strict=True):
                value = var.read_value()
                with tf.device(center.device):
                    given.append(accumulator.apply_grad(value, local_step=now))
            with tf.control_dependencies(given), tf.colocate_with(global_step):
                agreed = self._take_mean(collected, centers, global_step, ready) if self._is_chief else ready.dequeue()
            with tf.control_dependencies([agreed]):
                return self._take_centers(variables)

        step: tf.Tensor = tf.cond(is_every(self._interval_steps, count), average, tf.no_op)
        began, timed = tf.cast(global_step.read_value(), tf.int64), []
        for accumulator, center in zip(collected, centers, strict=True):
            with tf.device(center.device):
                timed.append(accumulator.set_global_step(began, name="SetGlobalStep"))
        self._chief_init_op = tf.group(*timed)
        return step

    def _take_mean(
        self,
        collected: list[tf.ConditionalAccumulator],
        centers: list[Any],
        global_step: tf.Variable,
        ready: tf.FIFOQueue,
    ) -> tf.Operation:
        """The chief's part: the centers, the global step, and a token for each other worker."""
        updates = []
        for accumulator, center in zip(collected, centers, strict=True):
            with tf.device(center.device):
                updates.append(center.assign(accumulator.take_grad(self._num_worker), read_value=False))
        with tf.control_dependencies(updates):
            counted = global_step.assign_add(1, read_value=False)
        with tf.control_dependencies([counted]):
            operation: tf.Operation = ready.enqueue_many([tf.fill([self._num_worker - 1], False)])
            return operation

    def _centers(self, variables: list[Any]) -> list[Any]:
        return centers_of(variables, self._local_2_global, "ModelAverageCustomGetter")

    def _take_centers(self, variables: list[Any]) -> tf.Operation:
        assigned = []
        for var, center in zip(variables, self._centers(variables), strict=True):
            with tf.device(var.device):
                assigned.append(var.assign(center.read_value(), read_value=False))
        return tf.group(*assigned)

    def get_init_op(self) -> tf.Operation:
        """The operation that gives a worker's copies the values of the centers, before it trains.

        Raises:
            ValueError: there are no trainable variables, or one has no center.
        """
        return self._take_centers(tf.trainable_variables())

    def make_session_run_hook(self) -> tf.train.SessionRunHook:
        """A hook that runs `get_init_op` when a session begins; the chief's also sets the time of what is collected."""
        return CentersHook(self._all_init_op)

    def _all_init_op(self) -> tf.Operation:
        chief = [self._chief_init_op] if self._is_chief and self._chief_init_op is not None else []
        return tf.group(self.get_init_op(), *chief)
