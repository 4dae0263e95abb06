"""Wrappers that change what an optimizer applies, or what becomes of it: old gradients, zeros, long rows."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn, TensorLike
from anabranch.contrib.opt_inner import OptimizerWithInner

#: the methods that apply a gradient, each with a gradient as first argument
_APPLYING = ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse")


class DropStaleGradientOptimizer(OptimizerWithInner):
    """Lets another optimizer apply gradients that are recent, and drops the others.

    The global step is read before the gradients are computed, and compared with what it is when they are to be
    applied. The variable "stale_counter" counts what was dropped, and a scalar summary tells its part of the steps.

    Args:
        opt: the optimizer that computes and applies the gradients.
        staleness: an integer: how many steps others may have made meanwhile.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> count = tf.train.get_or_create_global_step()
        >>> opt = tf.contrib.opt.DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(0.25), staleness=0)
        >>> step = opt.minimize(tf.square(w), global_step=count)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        np.float32(0.0)
        >>> sess.run([w, count])
        [np.float32(0.5), np.int64(1)]
    """

    def __init__(
        self, opt: tf.train.Optimizer, staleness: TensorLike, use_locking: bool = False, name: str = "DropStaleGradient"
    ) -> None:
        super().__init__(opt, use_locking, name)
        self._staleness = staleness
        self._local_step: tf.Tensor | None = None

    def compute_gradients(self, loss: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> list[tuple[Any, Any]]:
        """The gradients that the optimizer inside computes, after the global step was read.

        Args:
            loss: a scalar tensor.
            *args: further arguments of `tf.train.Optimizer.compute_gradients`.
            **kwargs: the same.

        Returns:
            Pairs of gradients and variables.

        Raises:
            ValueError: the graph has no global step.
        """
        global_step = tf.train.get_global_step()
        if global_step is None:
            raise ValueError(
                "DropStaleGradientOptimizer compares global steps, and the graph has none; "
                "make one with tf.train.get_or_create_global_step()"
            )
        now = global_step.read_value()  # where the variable is; the copy stands where the gradients are computed
        with tf.colocate_with(loss):
            self._local_step = tf.identity(now)
        with tf.control_dependencies([self._local_step]):
            return self._opt.compute_gradients(tf.identity(loss), *args, **kwargs)

    def apply_gradients(  # type: ignore[override]
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Tensor:
        """Adds the updates, for gradients that are recent when the step runs.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: the variable that counts the steps; it is incremented if the gradients are applied.
            name: of the operations of the optimizer inside.

        Returns:
            A tensor: how many gradients were dropped so far, float32.

        Raises:
            ValueError: there is no `global_step`, or `compute_gradients` was not called before.
        """
        if global_step is None:
            raise ValueError("DropStaleGradientOptimizer compares global steps: give global_step")
        if self._local_step is None:
            raise ValueError("call compute_gradients first: it notes the step at which the gradients are computed")
        pairs = list(grads_and_vars)
        with tf.colocate_with(global_step):
            dropped = tf.get_variable("stale_counter", [], initializer=tf.zeros_initializer(), trainable=False)
        gradients = [grad if isinstance(grad, tf.Tensor) else grad.values for grad, _ in pairs if grad is not None]
        with tf.control_dependencies(gradients), tf.colocate_with(global_step):
            staleness = tf.reshape(global_step.read_value() - tf.cast(self._local_step, global_step.dtype), [])

        def accept() -> tf.Tensor:
            with tf.control_dependencies([self._opt.apply_gradients(pairs, global_step=global_step, name=name)]):
                return tf.constant(0.0)

        is_recent = staleness <= tf.cast(self._staleness, staleness.dtype)
        count = dropped.assign_add(tf.cond(is_recent, accept, lambda: tf.constant(1.0)))
        tf.summary.scalar("Gradient staleness percentage", dropped / tf.cast(global_step + 1, tf.float32))
        return tf.convert_to_tensor(count)


class MultitaskOptimizerWrapper:
    """Keeps an optimizer from applying gradients that are zero throughout: a loss that is absent leaves no trace.

    Where some losses of several are masked out in a batch, the gradients of their variables are zero. An optimizer
    with memory would take that for knowledge, and move by its momentum. Within this wrapper it does neither. Everything
    else is the optimizer's; the optimizer itself is changed. To clip gradients, use `clip_gradients_by_global_norm`.

    Args:
        opt: a `tf.train.Optimizer`.

    Raises:
        TypeError: `opt` is none.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> opt = tf.contrib.opt.MultitaskOptimizerWrapper(tf.train.MomentumOptimizer(0.25, momentum=0.9))
        >>> grad = tf.placeholder(tf.float32, [])
        >>> step = opt.apply_gradients([(grad, w)])
        >>> sess.run(tf.global_variables_initializer())
        >>> for value in (1.0, 0.0):
        ...     sess.run(step, {grad: value})
        >>> sess.run(w)
        np.float32(0.75)
    """

    def __init__(self, opt: tf.train.Optimizer) -> None:
        if not isinstance(opt, tf.train.Optimizer):
            raise TypeError(f"Supplied optimizer must be an instance of tf.train.Optimizer, got {type(opt).__name__}")
        self._opt = opt
        for name in _APPLYING:
            setattr(opt, name, _unless_zero(getattr(opt, name)))
        # equal rows are summed before it is asked whether they are zero, also by an optimizer that does so elsewhere
        summing = types.MethodType(tf.train.Optimizer._resource_apply_sparse_duplicate_indices, opt)
        setattr(opt, "_resource_apply_sparse_duplicate_indices", summing)  # noqa: B010

    def __getattr__(self, name: str) -> Any:
        if name == "_opt":
            raise AttributeError(name)
        return getattr(self._opt, name)


def clip_gradients_by_global_norm(
    gradients_variables: GradientsAndVariables, clip_norm: TensorLike = 20.0
) -> tuple[list[tuple[Any, Any]], tf.Tensor]:
    """Scales gradients so that the norm of all of them together is at most `clip_norm`.

    Args:
        gradients_variables: pairs as `tf.train.Optimizer.compute_gradients` returns them.
        clip_norm: a scalar.

    Returns:
        (The pairs with the scaled gradients, the norm before).

    Example:
        >>> w = tf.get_variable("w", initializer=[1.0, 1.0])
        >>> pairs, norm = tf.contrib.opt.clip_gradients_by_global_norm([(tf.constant([3.0, 4.0]), w)], 2.5)
        >>> sess.run([pairs[0][0], norm])
        [array([1.5, 2. ], dtype=float32), np.float32(5.0)]
    """
    gradients, variables = zip(*gradients_variables, strict=True)
    clipped, norm = tf.clip_by_global_norm(list(gradients), clip_norm)
    return list(zip(clipped, variables, strict=True)), norm


class VariableClippingOptimizer(OptimizerWithInner):
    """Lets another optimizer apply gradients, and then shortens variables to a largest norm.

    After a sparse gradient only its rows are shortened, unless the norm goes over the rows. Several of these may wrap
    each other, with norms for different variables.

    Args:
        opt: the optimizer that computes and applies the gradients.
        vars_to_clip_dims: variables -> the dimensions over which their norms go, as the `axes` of `tf.clip_by_norm`.
        max_norm: a number: the largest norm.
        use_locking: see `tf.train.Optimizer`.
        colocate_clip_ops_with_vars: whether norms are computed where the variables stand.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[[3.0, 4.0]])
        >>> inner = tf.train.GradientDescentOptimizer(0.0)
        >>> step = tf.contrib.opt.VariableClippingOptimizer(inner, {w: [1]}, max_norm=1.0).minimize(tf.nn.l2_loss(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        array([[0.6, 0.8]], dtype=float32)
    """

    def __init__(
        self,
        opt: tf.train.Optimizer,
        vars_to_clip_dims: Mapping[tf.Variable, Sequence[int]],
        max_norm: TensorLike,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__(opt, use_locking, name)
        self._vars_to_clip_dims = {var: list(dims) for var, dims in vars_to_clip_dims.items()}
        self._max_norm = max_norm
        self._colocate_clip_ops_with_vars = colocate_clip_ops_with_vars

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Adds the updates of the optimizer inside, and then the clipping.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented after the updates.
            name: of the returned operation; default: the optimizer's name.

        Returns:
            The operation that does all that.
        """
        pairs = list(grads_and_vars)
        with tf.name_scope(name, self._name) as scope:
            update = self._opt.apply_gradients(pairs, global_step=global_step)
            clipped = []
            with tf.control_dependencies([update]):
                for grad, var in pairs:
                    if grad is not None and var in self._vars_to_clip_dims:
                        with tf.name_scope("clip_" + var.op.name):
                            clipped.append(self._clip(grad, var))
            return tf.group(update, *clipped, name=scope)

    def _clip(self, grad: tf.Tensor | tf.IndexedSlices, var: tf.Variable) -> Any:
        dims = self._vars_to_clip_dims[var]
        if not isinstance(grad, tf.IndexedSlices):
            return var.assign_sub(self._excess(var, var.read_value), self._use_locking, read_value=False)
        if 0 in dims:
            tf.logging.warning(
                f"Clipping norm across dims {dims} for {var.op.name} is inefficient when including sparse dimension 0."
            )
            return var.assign_sub(self._excess(var, var.read_value), self._use_locking, read_value=False)
        # a row that stands twice is shortened once
        indices = tf.unique(grad.indices).y
        excess = self._excess(var, lambda: var.sparse_read(indices))
        with tf.colocate_with(var):
            return var.scatter_sub(tf.IndexedSlices(excess, indices, grad.dense_shape), self._use_locking)

    def _excess(self, var: tf.Variable, read: Callable[[], tf.Tensor]) -> tf.Tensor:
        """What has to be taken off."""
        with tf.colocate_with(var) if self._colocate_clip_ops_with_vars else contextlib.nullcontext():
            value = read()
            return value - tf.clip_by_norm(value, self._max_norm, self._vars_to_clip_dims[var])


def _unless_zero(apply: Callable[..., Any]) -> Callable[..., Any]:
    """The method that calls `apply`, if not all of a gradient is zero when the step runs."""

    def applied(grad: tf.Tensor | tf.IndexedSlices, *args: PassedOn, **kwargs: PassedOn) -> Any:
        values = grad.values if isinstance(grad, tf.IndexedSlices) else grad

        def update() -> Any:
            with tf.control_dependencies([apply(grad, *args, **kwargs)]):
                return tf.no_op()

        return tf.cond(tf.reduce_any(tf.not_equal(values, 0)), update, tf.no_op)

    return applied
