"""Weight decay apart from the gradient: an extension of any optimizer, and the two of its paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, HyperParameter, PassedOn, TensorLike
from anabranch.contrib.opt_rows import add_to_rows, like


class DecoupledWeightDecayExtension(tf.train.Optimizer):
    """Gives an optimizer weight decay that does not go through its gradients (Loshchilov and Hutter, 2019).

    "Decoupled Weight Decay Regularization": before each update ``w -= weight_decay * w``, of a sparse gradient's rows
    only. So the rate of the decay and the learning rate are apart, and adaptive optimizers do not divide it away. A
    learning rate that changes does not change the decay: give `weight_decay` as a function, or a tensor, that does. The
    update must not itself depend on the variable's value.

    Use it as the first base of a class, before the optimizer's; `extend_with_decoupled_weight_decay` makes one.

    Args:
        weight_decay: a number, a scalar tensor or variable, or a function that returns one.
        **kwargs: the arguments of the optimizer.

    Example:
        >>> class Descent(tf.contrib.opt.DecoupledWeightDecayExtension, tf.train.GradientDescentOptimizer):
        ...     pass
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = Descent(0.5, learning_rate=0.25).minimize(w)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.25)
    """

    def __init__(self, weight_decay: HyperParameter, *args: PassedOn, **kwargs: PassedOn) -> None:
        self._weight_decay = weight_decay
        #: the variables that decay; None: all of them
        self._decay_var_list: frozenset[Any] | None = None
        super().__init__(*args, **kwargs)

    def minimize(
        self,
        loss: TensorLike,
        global_step: tf.Variable | None = None,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = tf.train.Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: TensorLike | None = None,
        decay_var_list: Iterable[tf.Variable] | None = None,
    ) -> tf.Operation:
        """Adds the operations that make `loss` smaller, and the decay.

        Args:
            loss: see `tf.train.Optimizer.minimize`.
            global_step: see `tf.train.Optimizer.minimize`.
            var_list: see `tf.train.Optimizer.minimize`.
            gate_gradients: see `tf.train.Optimizer.minimize`.
            aggregation_method: see `tf.train.Optimizer.minimize`.
            colocate_gradients_with_ops: see `tf.train.Optimizer.minimize`.
            name: see `tf.train.Optimizer.minimize`.
            grad_loss: see `tf.train.Optimizer.minimize`.
            decay_var_list: the variables that decay; None, or none of them: all that are updated.

        Returns:
            The operation that updates the variables and increments `global_step`.
        """
        self._decay_var_list = _chosen(decay_var_list)
        try:
            return super().minimize(
                loss,
                global_step=global_step,
                var_list=var_list,
                gate_gradients=gate_gradients,
                aggregation_method=aggregation_method,
                colocate_gradients_with_ops=colocate_gradients_with_ops,
                name=name,
                grad_loss=grad_loss,
            )
        finally:
            self._decay_var_list = None

    def apply_gradients(
        self,
        grads_and_vars: GradientsAndVariables,
        global_step: tf.Variable | None = None,
        name: str | None = None,
        decay_var_list: Iterable[tf.Variable] | None = None,
    ) -> tf.Operation:
        """Adds the updates, and the decay.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented after the updates.
            name: of the returned operation; default: the optimizer's name.
            decay_var_list: the variables that decay; None, or none of them: all that are updated.

        Returns:
            The operation that updates the variables and increments `global_step`.
        """
        before = self._decay_var_list
        self._decay_var_list = before if decay_var_list is None else _chosen(decay_var_list)
        try:
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)
        finally:
            self._decay_var_list = before

    def _prepare(self) -> None:
        self._weight_decay_tensor = self._hyperparameter(self._weight_decay, "weight_decay")
        super()._prepare()

    def _decays(self, var: tf.Variable) -> bool:
        return self._decay_var_list is None or var in self._decay_var_list

    def _decay_weights_op(self, var: tf.Variable) -> Any:
        if not self._decays(var):
            return tf.no_op()
        lost = like(self._weight_decay_tensor, var) * var.read_value()
        return var.assign_sub(lost, self._use_locking, read_value=False)

    def _decay_rows_op(self, var: tf.Variable, indices: tf.Tensor) -> Any:
        if not self._decays(var):
            return tf.no_op()
        return add_to_rows(var, indices, -like(self._weight_decay_tensor, var) * var.sparse_read(indices))

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        with tf.control_dependencies([self._decay_weights_op(var)]):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        with tf.control_dependencies([self._decay_weights_op(handle)]):
            return super()._resource_apply_dense(grad, handle)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        with tf.control_dependencies([self._decay_rows_op(var, grad.indices)]):
            return super()._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        with tf.control_dependencies([self._decay_rows_op(handle, indices)]):
            return super()._resource_apply_sparse(grad, handle, indices)


def extend_with_decoupled_weight_decay(base_optimizer: type[tf.train.Optimizer]) -> type[DecoupledWeightDecayExtension]:
    """A class of optimizers that do what those of another class do, with weight decay apart from the gradient.

    Its first argument is `weight_decay`; the others are those of `base_optimizer`. See
    `DecoupledWeightDecayExtension`, also for the argument `decay_var_list` of `minimize` and `apply_gradients`.

    Args:
        base_optimizer: a subclass of `tf.train.Optimizer`.

    Returns:
        A subclass of it.

    Example:
        >>> Descent = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = Descent(weight_decay=0.5, learning_rate=0.25).minimize(w)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.25)
    """

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc, valid-type]
        """The optimizer with weight decay."""

    return OptimizerWithDecoupledWeightDecay


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.train.MomentumOptimizer):
    """Momentum with weight decay apart from the gradient: SGDW of Loshchilov and Hutter (2019).

    Args:
        weight_decay: see `DecoupledWeightDecayExtension`.
        learning_rate: see `tf.train.MomentumOptimizer`.
        momentum: see `tf.train.MomentumOptimizer`.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.
        use_nesterov: see `tf.train.MomentumOptimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.contrib.opt.MomentumWOptimizer(0.5, 0.25, momentum=0.9).minimize(w)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.25)
    """

    def __init__(
        self,
        weight_decay: HyperParameter,
        learning_rate: HyperParameter,
        momentum: HyperParameter,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
    """Adam with weight decay apart from the gradient: AdamW of Loshchilov and Hutter (2019).

    A sparse gradient lets only its own rows decay, while Adam moves all of them.

    Args:
        weight_decay: see `DecoupledWeightDecayExtension`.
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
        >>> step = tf.contrib.opt.AdamWOptimizer(0.5, 0.25).minimize(w)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.25)
    """

    def __init__(
        self,
        weight_decay: HyperParameter,
        learning_rate: HyperParameter = 0.001,
        beta1: HyperParameter = 0.9,
        beta2: HyperParameter = 0.999,
        epsilon: HyperParameter = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


def _chosen(variables: Iterable[tf.Variable] | None) -> frozenset[Any] | None:
    return frozenset(variables or ()) or None
