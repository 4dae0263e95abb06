"""Accumulated gradient normalization: workers send the mean of the gradients of several steps."""

from __future__ import annotations

from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables
from anabranch.contrib.opt_centers import CenterGetter, CentersHook, centers_of, is_every, kept_local, local_counter

#: the name scope of the sums of gradients
GRAD_VARIABLE_NAME: Final = "grad_variable"


class AGNCustomGetter(CenterGetter):
    """Makes, for each trainable variable, a worker's copy, the common center, and the sum of the copy's gradients.

    Give it as `custom_getter` to the `tf.variable_scope` in which `tf.get_variable` makes a model, within the
    `tf.device` of a `tf.train.replica_device_setter`, which places the centers and the global step.

    Args:
        worker_device: the worker's device, such as "/job:worker/task:0".

    Example:
        >>> getter = tf.contrib.opt.AGNCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> [v.op.name for v in tf.global_variables()], [v.op.name for v in tf.local_variables()]
        (['global_center_variable/w'], ['w', 'grad_variable/w'])
    """

    def __init__(self, worker_device: str) -> None:
        super().__init__(worker_device, GRAD_VARIABLE_NAME, places_locals=False)
        self._grad_map = self._third_map


class AGNOptimizer(tf.train.Optimizer):
    """Lets workers apply the mean gradient of several steps to common centers (Hermans, Spanakis, Möckel, 2017).

    "Accumulated Gradient Normalization". Each worker lets another optimizer update its copies and sums the gradients.
    After every `communication_period` steps the optimizer inside applies their mean to the centers, whose values the
    copies then take. Workers do not wait for each other.

    Args:
        optimizer: the optimizer of the copies and of the centers.
        num_worker: how many workers there are.
        custom_getter: the `AGNCustomGetter` that made the variables.
        communication_period: after how many steps a worker updates the centers.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> getter = tf.contrib.opt.AGNCustomGetter("")
        >>> with tf.variable_scope("", custom_getter=getter):
        ...     w = tf.get_variable("w", initializer=1.0)
        >>> inner = tf.train.GradientDescentOptimizer(0.5)
        >>> opt = tf.contrib.opt.AGNOptimizer(inner, 1, getter, communication_period=2)
        >>> step = opt.apply_gradients([(tf.constant(1.0), w)])
        >>> sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        [None, None]
        >>> sess.run(opt.get_init_op(0))
        >>> for _ in range(2):
        ...     sess.run(step.op)
        >>> sess.run([w] + tf.global_variables())
        [np.float32(0.5), np.float32(0.5)]
    """

    def __init__(
        self,
        optimizer: tf.train.Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None:
        super().__init__(use_locking, name)
        self._opt = optimizer
        self._num_worker = num_worker
        self._period = communication_period
        self._global_map = custom_getter._global_map
        self._grad_map = custom_getter._grad_map
        self._local_step = local_counter()

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
        centers = centers_of(variables, self._global_map, "AGNCustomGetter")
        sums = centers_of(variables, self._grad_map, "AGNCustomGetter")
        with kept_local():
            updates: list[Any] = [self._opt.apply_gradients(pairs, name=name)]
        for (grad, _), total in zip(pairs, sums, strict=True):
            is_sparse = isinstance(grad, tf.IndexedSlices)
            updates.append(total.scatter_add(grad) if is_sparse else total.assign_add(grad, read_value=False))
        with tf.control_dependencies(updates):
            count = self._local_step.assign_add(1, name="local_step_update")

        def update_centers() -> tf.Operation:
            means = [total.read_value() / tf.cast(self._period, total.dtype.base_dtype) for total in sums]
            applied = self._opt.apply_gradients(zip(means, centers, strict=True))
            with tf.control_dependencies([applied]):
                taken = [
                    var.assign(center.read_value(), read_value=False)
                    for var, center in zip(variables, centers, strict=True)
                ]
                taken += [total.assign(tf.zeros_like(total), read_value=False) for total in sums]
                if global_step is not None:
                    with tf.colocate_with(global_step):
                        taken.append(global_step.assign_add(1, read_value=False))
            return tf.group(*taken)

        step: tf.Tensor = tf.cond(is_every(self._period, count), update_centers, tf.no_op)
        return step

    def get_init_op(self, task_index: int) -> tf.Operation:
        """The operation that gives a worker's copies the values of the centers, before it trains.

        Args:
            task_index: which worker this is.

        Raises:
            ValueError: there are no trainable variables, or one has no center.
        """
        del task_index
        variables = tf.trainable_variables()
        centers = centers_of(variables, self._global_map, "AGNCustomGetter")
        sums = centers_of(variables, self._grad_map, "AGNCustomGetter")
        assigned = [
            var.assign(center.read_value(), read_value=False) for var, center in zip(variables, centers, strict=True)
        ]
        return tf.group(*assigned, *(total.assign(tf.zeros_like(total), read_value=False) for total in sums))

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> tf.train.SessionRunHook:
        """A hook that runs `get_init_op` when a session begins.

        Args:
            is_chief: whether this worker initializes the centers; that is its session's business.
            task_index: which worker this is.
        """
        del is_chief
        return CentersHook(lambda: self.get_init_op(task_index))
