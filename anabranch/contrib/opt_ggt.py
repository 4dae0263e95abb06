"""GGT: the full-matrix preconditioner of Adagrad, of a window of the latest gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import HyperParameter


class GGTOptimizer(tf.train.Optimizer):
    """Full-matrix Adagrad over a window of gradients (Agarwal et al., 2018, "The Case for Full-Matrix Adaptive
    Regularization").

    All gradients, one behind the other, make a vector g; m is its running mean, and the columns of G the last `window`
    such means, over the square root of their number:

    ``m = beta1 * m + (1 - beta1) * g; U diag(s²) U^T = G^T G + svd_eps * I; w -= learning_rate * (G U (s +
    sigma_eps)^-3 U^T G^T m + (m - G U s^-2 U^T G^T m) / min(s))``, the second term if ``min(s) > eps``.

    It costs about what a singular value decomposition of the window costs. State that belongs to all variables is in
    variables "global_step", "grad_buffer", "moment1" and "flat_grad".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        beta1: the same: the decay rate of the mean.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.
        window: an integer > 0: how many means are kept.
        eps: a number: what lies outside the window's span counts where the smallest s is larger.
        svd_eps: a number that is added to the diagonal before the decomposition.
        sigma_eps: a number that keeps the divisor away from zero.

    Raises:
        ValueError: `window` is not positive, or `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[1.0, 2.0])
        >>> step = tf.contrib.opt.GGTOptimizer(0.1).minimize(tf.nn.l2_loss(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.001,
        beta1: HyperParameter = 0.9,
        use_locking: bool = False,
        name: str = "GGT",
        window: int = 10,
        eps: float = 1e-4,
        svd_eps: float = 1e-6,
        sigma_eps: float = 1e-2,
    ) -> None:
        super().__init__(use_locking, name)
        if window < 1:
            raise ValueError(f"window must be a positive number of gradients, got {window}")
        self._lr = learning_rate
        self._beta1 = beta1
        self._window = window
        self._eps = eps
        self._svd_eps = svd_eps
        self._sigma_eps = sigma_eps
        self._sizes: dict[str, int] = {}
        self._updated: dict[str, tuple[tf.Tensor, tf.Variable]] = {}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        sizes = {var.name: var.shape.num_elements() for var in sorted(var_list, key=lambda var: str(var.name))}
        if None in sizes.values():
            raise ValueError(f"GGTOptimizer needs variables of known shapes, got {[v.shape for v in var_list]}")
        dtypes = {var.dtype.base_dtype for var in var_list}
        if len(dtypes) > 1:
            found = sorted(dtype.name for dtype in dtypes)
            raise ValueError(
                f"GGTOptimizer makes one vector of all gradients: give variables of one dtype, not {found}"
            )
        if self._sizes not in ({}, sizes):
            raise ValueError(
                f"GGTOptimizer {self._name!r} keeps gradients of {list(self._sizes)}, and is given {list(sizes)}; "
                "make another one for other variables"
            )
        self._sizes = sizes
        dtype, count, first = dtypes.pop(), sum(sizes.values()), var_list[0]
        self._create_non_slot_variable(tf.zeros([], dtype), "global_step", first)
        self._create_non_slot_variable(tf.zeros([self._window, count], dtype), "grad_buffer", first)
        self._create_non_slot_variable(tf.zeros([count], dtype), "moment1", first)
        self._create_non_slot_variable(tf.zeros([count], dtype), "flat_grad", first)

    def _prepare(self) -> None:
        self._updated = {}

    def _kept(self, name: str) -> Any:
        return self._get_non_slot_variable(name, tf.get_default_graph())

    def _get_global_step(self) -> Any:
        return self._kept("global_step")

    def _get_moment1(self) -> Any:
        return self._kept("moment1")

    def _get_grad_buffer(self) -> Any:
        return self._kept("grad_buffer")

    def _get_flat_grad(self) -> Any:
        return self._kept("flat_grad")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        # the variables move when all gradients are there
        self._updated[handle.name] = (tf.reshape(grad, [-1]), handle)
        return tf.no_op()

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        raise NotImplementedError(
            f"Sparse gradient updates are not supported by GGTOptimizer, which makes one vector of all gradients; "
            f"that of {handle.name} can be made dense by tf.convert_to_tensor"
        )

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        dtype = next(iter(self._updated.values()))[1].dtype.base_dtype
        settings = (self._lr, self._beta1)
        rate, beta1 = (tf.cast(self._call_if_callable(setting), dtype) for setting in settings)
        with tf.control_dependencies(update_ops):
            count = self._get_global_step().assign_add(tf.ones([], dtype))
        flat = self._get_flat_grad().assign(tf.concat([self._updated[name][0] for name in self._sizes], 0))
        moment1 = self._get_moment1()
        mean = moment1.assign(beta1 * moment1.read_value() + (1 - beta1) * flat)
        place = tf.math.floormod(tf.cast(count, tf.int32) - 1, self._window)
        buffer = self._get_grad_buffer().scatter_update(tf.IndexedSlices(mean[tf.newaxis], place[tf.newaxis]))
        step = rate * self._preconditioned(mean, buffer / tf.sqrt(tf.minimum(count, tf.cast(self._window, dtype))))
        updates = []
        for name, part in zip(self._sizes, tf.split(step, list(self._sizes.values())), strict=True):
            var = self._updated[name][1]
            with tf.colocate_with(var):
                updates.append(var.assign_sub(tf.reshape(part, var.shape), read_value=False))
        return tf.group(*updates, name=name_scope)

    def _preconditioned(self, mean: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
        """The step for a mean of gradients, [n], given the window's rows, [window, n]."""
        gram = tf.matmul(window, window, transpose_b=True)
        variances, vectors, _ = tf.linalg.svd(gram + self._svd_eps * tf.eye(self._window, dtype=gram.dtype))
        deviations = tf.sqrt(variances)
        smallest = tf.reduce_min(deviations)
        seen = tf.linalg.matvec(vectors, tf.linalg.matvec(window, mean), transpose_a=True)

        def within(scales: tf.Tensor) -> tf.Tensor:
            return tf.linalg.matvec(window, tf.linalg.matvec(vectors, scales * seen), transpose_a=True)

        inside = within(1 / tf.pow(deviations + self._sigma_eps, 3))
        outside = (mean - within(1 / variances)) / smallest
        return inside + tf.where(smallest > self._eps, outside, tf.zeros_like(outside))
