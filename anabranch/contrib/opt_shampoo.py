"""Shampoo: a preconditioner for each dimension of a variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.contrib.opt_matrix_roots import matrix_inverse_pth_root, matrix_square_root
from anabranch.contrib.opt_rows import add_to_rows, as_whole, like

#: a number, a scalar tensor, or a function of the number of the step (float32, from 1) that gives one
Changing: TypeAlias = "TensorLike | Callable[[tf.Tensor], TensorLike]"


class ShampooOptimizer(tf.train.Optimizer):
    """Adagrad with one matrix for each dimension of a variable (Gupta, Koren and Singer, 2018).

    "Shampoo: Preconditioned Stochastic Tensor Optimization". For a variable of n dimensions,

    ``gbar = gbar_decay * gbar + gbar_weight * g; G_j = mat_gbar_decay * G_j + mat_gbar_weight * g_j g_j^T``, where
    ``g_j`` is the gradient as a matrix with a row for each place of dimension j, and ``w -= learning_rate * gbar``
    contracted along each dimension j, of size d_j, with ``(G_j / d_j + epsilon I)^(-alpha / n)``.

    Of a dimension larger than `max_matrix_size` the diagonal alone is kept. The slots are "gbar" and, for each
    dimension, "Gbar_0" and so on and, where powers are not computed in each step, "H_0" and so on. A sparse gradient of
    a variable with a larger first dimension costs what its rows cost if `gbar_decay` is 0; others are made dense.

    `gbar_decay` and all that follow up to `svd_interval`, and `precond_update_interval` and `alpha`, may be functions
    of the step's number, such as ``lambda t: t / (t + 1.0)``.

    Args:
        global_step: the variable that counts the steps.
        max_matrix_size: an integer: the largest dimension with a full matrix.
        gbar_decay: how much of the mean gradient is kept.
        gbar_weight: how much of a gradient is added to it.
        mat_gbar_decay: how much of a preconditioner is kept.
        mat_gbar_weight: how much of a gradient's square is added to it.
        learning_rate: a number or a function.
        svd_interval: after how many steps the powers are computed anew.
        precond_update_interval: after how many steps the matrices are.
        epsilon: a number that is added to the diagonals of matrices.
        alpha: the power of all preconditioners together.
        use_iterative_root: whether roots are found by products of matrices, not by singular values. `alpha / n` must
            then be the half of 1, 1/2, 1/3 and so on.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[4.0])
        >>> step = tf.contrib.opt.ShampooOptimizer(learning_rate=0.5, epsilon=0.0).minimize(tf.nn.l2_loss(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        array([3.5], dtype=float32)
    """

    def __init__(
        self,
        global_step: TensorLike = 0,
        max_matrix_size: int = 768,
        gbar_decay: Changing = 0.0,
        gbar_weight: Changing = 1.0,
        mat_gbar_decay: Changing = 1.0,
        mat_gbar_weight: Changing = 1.0,
        learning_rate: Changing = 1.0,
        svd_interval: Changing = 1,
        precond_update_interval: Changing = 1,
        epsilon: float = 1e-4,
        alpha: Changing = 0.5,
        use_iterative_root: bool = False,
        use_locking: bool = False,
        name: str = "Shampoo",
    ) -> None:
        super().__init__(use_locking, name)
        self._global_step = global_step
        self._max_matrix_size = max_matrix_size
        self._gbar_decay = gbar_decay
        self._gbar_weight = gbar_weight
        self._mat_gbar_decay = mat_gbar_decay
        self._mat_gbar_weight = mat_gbar_weight
        self._learning_rate = learning_rate
        self._svd_interval = svd_interval
        self._precond_update_interval = precond_update_interval
        self._epsilon = epsilon
        self._alpha = alpha
        self._use_iterative_root = use_iterative_root

    # ------------------------------------------------------------------ slots
    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            with tf.colocate_with(var):
                self._zeros_slot(var, "gbar", self._name)
                for axis, size in enumerate(_sizes(var)):
                    is_full = self._is_full(size)
                    if is_full and not self._is_one(self._svd_interval):
                        self._get_or_make_slot(var, tf.eye(size, dtype=dtype), f"H_{axis}", self._name)
                    zeros = tf.zeros([size, size] if is_full else [size], dtype)
                    self._get_or_make_slot(var, zeros, f"Gbar_{axis}", self._name)

    def _is_full(self, size: int) -> bool:
        return size <= self._max_matrix_size

    def _is_one(self, interval: Changing) -> bool:
        return isinstance(interval, int | float) and interval == 1

    def _prepare(self) -> None:
        self._step = tf.cast(self._global_step, tf.float32) + 1

    def _now(self, setting: Changing) -> Any:
        """The value of a setting in this step."""
        return setting(self._step) if callable(setting) else setting

    def _is_time(self, interval: Changing) -> tf.Tensor:
        return tf.math.floormod(self._step, tf.cast(self._now(interval), tf.float32)) < 1

    # ------------------------------------------------------------------ one variable
    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return self._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        gbar = self._averaged(self._kept_slot(handle, "gbar"), self._gbar_decay, self._gbar_weight, grad)
        for axis in range(len(_sizes(handle))):
            gbar = self._along(axis, gbar, grad, handle)
        return handle.assign_sub(self._rate(handle) * gbar, read_value=False)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        sizes = _sizes(handle)
        if self._is_full(sizes[0]) or not self._is_number(self._gbar_decay, 0.0):
            return self._resource_apply_dense(as_whole(grad, indices, handle), handle)
        if not self._is_number(self._mat_gbar_decay, 1.0):
            raise ValueError(
                f"ShampooOptimizer keeps the rows of {handle.name} apart, for there are more than "
                f"max_matrix_size={self._max_matrix_size}, so mat_gbar_decay must be 1 for its sparse gradient, "
                f"not {self._mat_gbar_decay}: other rows would have to decay, too"
            )
        squares = self._kept_slot(handle, "Gbar_0")
        added = self._weight(self._mat_gbar_weight, handle) * tf.reduce_sum(grad * grad, list(range(1, len(sizes))))
        kept = squares.sparse_read(indices) + added
        step = _last_first(grad) * self._power_of_diagonal(kept, len(sizes))
        for axis in range(1, len(sizes)):
            step = self._along(axis, step, grad, handle, rows=True)
        return tf.group(add_to_rows(squares, indices, added), add_to_rows(handle, indices, -self._rate(handle) * step))

    def _along(self, axis: int, step: tf.Tensor, grad: tf.Tensor, var: tf.Variable, rows: bool = False) -> tf.Tensor:
        """What precedes, preconditioned along one dimension, which stands first and then last.

        So after all dimensions they stand in their order again.
        """
        sizes = _sizes(var)
        others = [other for other in range(len(sizes)) if other != axis]
        slot = self._kept_slot(var, f"Gbar_{axis}")
        if self._is_full(sizes[axis]):
            return tf.tensordot(
                step, self._matrix_power(axis, slot, grad, var), axes=[[0], [0]], name=f"precond_{axis}"
            )
        squares = tf.reduce_sum(grad * grad, others)
        if others and not rows:
            squares = squares / sizes[axis]
        kept = self._averaged(slot, self._mat_gbar_decay, self._mat_gbar_weight, squares)
        return _last_first(step) * self._power_of_diagonal(kept, len(sizes))

    def _matrix_power(self, axis: int, slot: tf.Variable, grad: tf.Tensor, var: tf.Variable) -> tf.Tensor:
        """The preconditioner of a dimension with a full matrix."""
        size, others = _sizes(var)[axis], [other for other in range(len(_sizes(var))) if other != axis]

        def updated() -> tf.Tensor:
            outer = tf.tensordot(grad, grad, axes=[others, others], name=f"grad_outer_{axis}")
            # one gradient stands for those of the steps between
            outer = outer * self._weight(self._precond_update_interval, var)
            return self._averaged(slot, self._mat_gbar_decay, self._mat_gbar_weight, outer)

        if self._is_one(self._precond_update_interval):
            matrix = updated()
        else:
            matrix = tf.cond(self._is_time(self._precond_update_interval), updated, slot.read_value)
        matrix = matrix / size
        alpha = -self._now(self._alpha) / len(_sizes(var))
        if self._is_one(self._svd_interval):
            return self._power(matrix, size, alpha)
        kept = self._kept_slot(var, f"H_{axis}")
        result: tf.Tensor = tf.cond(
            self._is_time(self._svd_interval), lambda: kept.assign(self._power(matrix, size, alpha)), kept.read_value
        )
        return result

    def _power(self, matrix: tf.Tensor, size: int, alpha: TensorLike) -> tf.Tensor:
        with tf.name_scope("matrix_iterative_power"):
            if self._use_iterative_root:
                root = matrix_square_root(matrix, size, ridge_epsilon=self._epsilon)
                return matrix_inverse_pth_root(root, size, 2 * alpha, ridge_epsilon=0.0)
            if size == 1:
                return tf.pow(matrix + self._epsilon, alpha)
            values, left, right = tf.linalg.svd(matrix + self._epsilon * tf.eye(size, dtype=matrix.dtype))
            scales = tf.pow(tf.maximum(values, self._epsilon), alpha)
            return tf.matmul(right * scales, left, transpose_b=True)

    def _power_of_diagonal(self, squares: tf.Tensor, dimensions: int) -> tf.Tensor:
        is_seen = squares > 0
        safe = tf.where(is_seen, squares, tf.ones_like(squares))
        power = tf.pow(safe, -self._now(self._alpha) / dimensions)
        return tf.where(is_seen, power, tf.zeros_like(squares))

    # ------------------------------------------------------------------ settings
    def _averaged(self, kept: tf.Variable, decay: Changing, weight: Changing, value: tf.Tensor) -> tf.Tensor:
        """``decay * kept + weight * value``, which is kept, unless nothing of it would be asked for again."""
        added = self._weight(weight, kept) * value
        if self._is_number(decay, 0.0):
            return added
        if self._is_number(decay, 1.0):
            return tf.convert_to_tensor(kept.assign_add(added))
        return tf.convert_to_tensor(kept.assign_add((self._weight(decay, kept) - 1) * kept.read_value() + added))

    def _is_number(self, setting: Changing, number: float) -> bool:
        return isinstance(setting, int | float) and setting == number

    def _weight(self, setting: Changing, var: tf.Variable) -> tf.Tensor:
        return like(self._now(setting), var)

    def _rate(self, var: tf.Variable) -> tf.Tensor:
        return self._weight(self._learning_rate, var)


def _sizes(var: tf.Variable) -> list[int]:
    sizes = [size for size in var.shape.as_list() if size is not None]
    if len(sizes) != var.shape.ndims:
        raise ValueError(f"ShampooOptimizer needs variables of known shapes, got {var.name} of shape {var.shape}")
    return sizes


def _last_first(tensor: tf.Tensor) -> tf.Tensor:
    """The first dimension becomes the last."""
    return tf.transpose(tensor, [*range(1, len(tensor.shape)), 0])
