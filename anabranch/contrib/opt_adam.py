"""Adam's relatives: by the largest gradient, with a step that others count, for the rows that occur, looking ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import anabranch as tf
from anabranch.contrib.arguments import HyperParameter, TensorLike
from anabranch.contrib.opt_rows import add_to_rows, as_whole, like, set_rows


class AdaMaxOptimizer(tf.train.AdamOptimizer):
    """Adam with the largest of the recent gradients in place of their mean square (Kingma and Ba, 2015, section 7.1).

    ``m = beta1 * m + (1 - beta1) * g; v = max(beta2 * v, |g|); w -= learning_rate / (1 - beta1^t) * m / (v +
    epsilon)``. A sparse gradient concerns its own rows only: means and largest gradients of the others stay as they
    are. The slots are called "m" and "v".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for the others.
        beta1: the decay rate of the mean.
        beta2: the decay rate of the largest gradient.
        epsilon: keeps the divisor away from zero.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.contrib.opt.AdaMaxOptimizer(0.25).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.75)
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.001,
        beta1: HyperParameter = 0.9,
        beta2: HyperParameter = 0.999,
        epsilon: HyperParameter = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self) -> Any:
        return self._get_non_slot_variable("beta1_power", tf.get_default_graph())

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        # one place for the power, whatever the order of the variables: several tasks must agree on it
        first = min(var_list, key=lambda var: str(var.name))
        self._create_non_slot_variable(self._call_if_callable(self._beta1), "beta1_power", first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _settings(self, var: tf.Variable) -> list[tf.Tensor]:
        given = (self._get_beta_accumulators(), self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        return [like(value, var) for value in given]

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        power, rate, beta1, beta2, epsilon = self._settings(handle)
        return tf.raw_ops.ResourceApplyAdaMax(
            var=handle.handle,
            m=self._kept_slot(handle, "m").handle,
            v=self._kept_slot(handle, "v").handle,
            beta1_power=power,
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            grad=grad,
            use_locking=self._use_locking,
        )

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        power, rate, beta1, beta2, epsilon = self._settings(handle)
        m, v = (self._kept_slot(handle, name) for name in ("m", "v"))
        mean = beta1 * m.sparse_read(indices) + (1 - beta1) * grad
        largest = tf.maximum(beta2 * v.sparse_read(indices), tf.abs(grad))
        step = rate / (1 - power) * (mean / (largest + epsilon))
        return tf.group(add_to_rows(handle, indices, -step), set_rows(m, indices, mean), set_rows(v, indices, largest))

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        power = self._get_beta_accumulators()
        with tf.control_dependencies(update_ops), tf.colocate_with(power):
            grown = power.assign(power * like(self._beta1_t, power), use_locking=self._use_locking, read_value=False)
        return tf.group(*update_ops, grown, name=name_scope)


class _AdamLike(Protocol):
    """An optimizer that keeps Adam's means."""

    _lr_t: Any
    _beta1_t: Any
    _beta2_t: Any
    _epsilon_t: Any
    _use_locking: bool

    def _get_beta_accumulators(self) -> tuple[Any, Any]: ...

    def _kept_slot(self, var: tf.Variable, name: str) -> Any: ...


def _settings(opt: _AdamLike, var: tf.Variable) -> list[tf.Tensor]:
    """The powers of the two decay rates, the learning rate, the decay rates and epsilon, in the variable's dtype."""
    powers = opt._get_beta_accumulators()
    return [like(value, var) for value in (*powers, opt._lr_t, opt._beta1_t, opt._beta2_t, opt._epsilon_t)]


def _update_whole(opt: _AdamLike, grad: tf.Tensor, var: tf.Variable, use_nesterov: bool = False) -> Any:
    """Adam's update of a whole variable."""
    power1, power2, rate, beta1, beta2, epsilon = _settings(opt, var)
    return tf.raw_ops.ResourceApplyAdam(
        var=var.handle,
        m=opt._kept_slot(var, "m").handle,
        v=opt._kept_slot(var, "v").handle,
        beta1_power=power1,
        beta2_power=power2,
        lr=rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        grad=grad,
        use_locking=opt._use_locking,
        use_nesterov=use_nesterov,
    )


def _update_rows(opt: _AdamLike, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> Any:
    """Adam's update of some rows; nothing else of the variable and of its means is read or written."""
    power1, power2, rate, beta1, beta2, epsilon = _settings(opt, var)
    m, v = (opt._kept_slot(var, name) for name in ("m", "v"))
    mean = beta1 * m.sparse_read(indices) + (1 - beta1) * grad
    square = beta2 * v.sparse_read(indices) + (1 - beta2) * tf.square(grad)
    step = rate * tf.sqrt(1 - power2) / (1 - power1) * mean / (tf.sqrt(square) + epsilon)
    return tf.group(add_to_rows(var, indices, -step), set_rows(m, indices, mean), set_rows(v, indices, square))


class LazyAdamOptimizer(tf.train.AdamOptimizer):
    """Adam, whose means of the rows without a gradient stay as they are, as do these rows themselves.

    With a sparse gradient, a step costs what its rows cost, while `tf.train.AdamOptimizer` lets all means decay and
    moves all rows. For a dense gradient it is the same algorithm.

    Args:
        learning_rate: see `tf.train.AdamOptimizer`.
        beta1: see `tf.train.AdamOptimizer`.
        beta2: see `tf.train.AdamOptimizer`.
        epsilon: see `tf.train.AdamOptimizer`.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[1.0, 1.0])
        >>> step = tf.contrib.opt.LazyAdamOptimizer(0.25).minimize(tf.gather(w, [1]))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        array([1.  , 0.75], dtype=float32)
    """

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return _update_rows(self, grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        return _update_rows(self, grad, handle, indices)


class NadamOptimizer(tf.train.AdamOptimizer):
    """Adam with Nesterov's look ahead (Dozat, 2015, "Incorporating Nesterov Momentum into Adam").

    ``m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g²; w -= rate_t * (beta1 * m + (1 - beta1) * g) /
    (sqrt(v) + epsilon)``, with `rate_t` as in `tf.train.AdamOptimizer`. With a sparse gradient all means decay, and
    its own rows move.

    Args:
        learning_rate: see `tf.train.AdamOptimizer`.
        beta1: see `tf.train.AdamOptimizer`.
        beta2: see `tf.train.AdamOptimizer`.
        epsilon: see `tf.train.AdamOptimizer`.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.contrib.opt.NadamOptimizer(0.25).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.525)
    """

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return _update_whole(self, grad, var, use_nesterov=True)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        return _update_whole(self, grad, handle, use_nesterov=True)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        power1, power2, rate, beta1, beta2, epsilon = _settings(self, handle)
        m, v = (self._kept_slot(handle, name) for name in ("m", "v"))
        added = (1 - beta1) * grad
        mean = beta1 * m.sparse_read(indices) + added
        square = beta2 * v.sparse_read(indices) + (1 - beta2) * tf.square(grad)
        step = rate * tf.sqrt(1 - power2) / (1 - power1) * (beta1 * mean + added) / (tf.sqrt(square) + epsilon)
        with tf.control_dependencies([mean, square]):
            decayed = [slot.assign(slot * beta, read_value=False) for slot, beta in ((m, beta1), (v, beta2))]
        with tf.control_dependencies(decayed):
            kept = [set_rows(m, indices, mean), set_rows(v, indices, square)]
        return tf.group(add_to_rows(handle, indices, -step), *kept)


class AdamGSOptimizer(tf.train.Optimizer):
    """Adam that takes the number of the step from a variable, and keeps no powers of beta of its own.

    The formula, with ``t = global_step + 1``, is that of `tf.train.AdamOptimizer` (Kingma and Ba, 2015), for sparse
    gradients as well: the means of all rows decay. Several optimizers that count one step agree on its corrections.
    The slots are called "m" and "v".

    Args:
        global_step: the variable that counts the steps, as it is given to `minimize`, too.
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for the others.
        beta1: the decay rate of the mean.
        beta2: the decay rate of the mean square.
        epsilon: keeps the divisor away from zero.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> count = tf.train.get_or_create_global_step()
        >>> step = tf.contrib.opt.AdamGSOptimizer(count, 0.25).minimize(tf.square(w), global_step=count)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run([w, count])
        [np.float32(0.75), np.int64(1)]
    """

    def __init__(
        self,
        global_step: TensorLike = 0,
        learning_rate: HyperParameter = 0.001,
        beta1: HyperParameter = 0.9,
        beta2: HyperParameter = 0.999,
        epsilon: HyperParameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._global_step = global_step
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        self._lr_t = self._hyperparameter(self._lr, "learning_rate")
        self._beta1_t = self._hyperparameter(self._beta1, "beta1")
        self._beta2_t = self._hyperparameter(self._beta2, "beta2")
        self._epsilon_t = self._hyperparameter(self._epsilon, "epsilon")
        # read once, where the step is computed: the variable may stand in another task
        self._global_step_on_worker = tf.cast(tf.identity(self._global_step) + 1, tf.float32)

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        count = self._global_step_on_worker
        beta1, beta2 = self._beta1_t, self._beta2_t
        return tf.pow(beta1, tf.cast(count, beta1.dtype)), tf.pow(beta2, tf.cast(count, beta2.dtype))

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return _update_whole(self, grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        return _update_whole(self, grad, handle)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        return _update_whole(self, as_whole(grad, indices, handle), handle)


class LazyAdamGSOptimizer(AdamGSOptimizer):
    """`AdamGSOptimizer`, whose means of the rows without a gradient stay as they are, as in `LazyAdamOptimizer`.

    Args:
        global_step: see `AdamGSOptimizer`.
        learning_rate: see `AdamGSOptimizer`.
        beta1: see `AdamGSOptimizer`.
        beta2: see `AdamGSOptimizer`.
        epsilon: see `AdamGSOptimizer`.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[1.0, 1.0])
        >>> step = tf.contrib.opt.LazyAdamGSOptimizer(0, 0.25).minimize(tf.gather(w, [1]))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        array([1.  , 0.75], dtype=float32)
    """

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        return _update_rows(self, grad, handle, indices)
