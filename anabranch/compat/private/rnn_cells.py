"""Private functions of `tensorflow.python.ops.rnn_cell_impl` that libraries call."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorLike


def _zero_state_tensors(state_size: Structure, batch_size: TensorLike, dtype: DTypeLike) -> Any:
    """Zeros in the shapes of a cell's state: (batch, size), or (batch, ...) where a size is a shape or a vector."""

    def zeros(size: TensorLike) -> tf.Tensor:
        made = tf.zeros(_concat(batch_size, size), dtype)
        made.set_shape(_concat(batch_size, size, static=True))
        return made

    if isinstance(state_size, tf.TensorShape) or not tf.nest.is_nested(state_size):
        return zeros(state_size)
    return tf.nest.map_structure(zeros, state_size)


def _concat(prefix: TensorLike, suffix: TensorLike, static: bool = False) -> Any:
    """The shape that begins with one part and goes on with another: a batch's size, say, and that of a state.

    Args:
        prefix, suffix: sizes: numbers, shapes or tensors.
        static: whether the result is a list with None for what is not known, instead of a tensor; None where not even
            the number of dimensions is known.

    Raises:
        ValueError: a tensor is neither a scalar nor a vector; or a size is not known and the result is to be a tensor.
    """
    parts = [_sizes(part, name) for part, name in ((prefix, "prefix"), (suffix, "suffix"))]
    if static:
        shape = parts[0][0].concatenate(parts[1][0])
        return None if shape.ndims is None else shape.as_list()
    if any(tensor is None for _, tensor in parts):
        raise ValueError(f"Provided a prefix or suffix of None: {prefix} and {suffix}")
    return tf.concat([tensor for _, tensor in parts], 0)


def _sizes(part: TensorLike, name: str) -> tuple[tf.TensorShape, tf.Tensor | None]:
    """What is known of some sizes, and a vector of them."""
    if isinstance(part, tf.Tensor):
        known = tf.get_static_value(part)
        if part.shape.ndims not in (0, 1):
            raise ValueError(f"{name} tensor must be either a scalar or vector, but saw tensor: {part}")
        shape = tf.TensorShape(None if known is None else known.reshape(-1).tolist())
        return shape, tf.expand_dims(part, 0) if part.shape.ndims == 0 else part
    shape = tf.TensorShape([part] if part is not None and not isinstance(part, tf.TensorShape | list | tuple) else part)
    return shape, tf.constant(shape.as_list(), tf.int32) if shape.is_fully_defined() else None


def assert_like_rnncell(cell_name: str, cell: object) -> None:
    """Checks that something can be used as a cell of a recurrent network.

    Raises:
        TypeError: it lacks something; the message says what.
    """
    missing = [f"'{name}' property is missing" for name in ("output_size", "state_size") if not hasattr(cell, name)]
    if not (hasattr(cell, "zero_state") or hasattr(cell, "get_initial_state")):
        missing.append("either 'zero_state' or 'get_initial_state' method is required")
    if not callable(cell):
        missing.append("is not callable")
    if missing:
        raise TypeError(f"The argument {cell_name!r} ({cell}) is not an RNNCell: {', '.join(missing)}.")


class _Linear:
    """A linear map of several tensors side by side, with variables `kernel` and `bias` of the variable scope.

    Args:
        args: a tensor [batch, n], or a list of such, of known n; the first gives the dtype.
        output_size: how many numbers come out for each row.
        build_bias: whether a constant is added.
        bias_initializer: of the constant; None: zeros.
        kernel_initializer: of the matrix; None: that of the variable scope.

    Raises:
        ValueError: there are no tensors, or one is no matrix with a known number of columns.
    """

    def __init__(
        self,
        args: Structure,
        output_size: int,
        build_bias: bool,
        bias_initializer: PassedOn = None,
        kernel_initializer: PassedOn = None,
    ) -> None:
        tensors = self._listed(args)
        columns = 0
        for tensor in tensors:
            if tensor.shape.ndims != 2 or tensor.shape[1].value is None:
                raise ValueError(f"linear expects matrices of a known number of columns, got shape {tensor.shape}")
            columns += tensor.shape[1].value
        dtype = tensors[0].dtype
        with tf.variable_scope(tf.get_variable_scope()) as scope:
            self._weights = tf.get_variable("kernel", [columns, output_size], dtype, kernel_initializer)
            self._biases: Any = None
            if build_bias:
                scope.set_partitioner(None)
                zeros = tf.zeros_initializer(dtype=dtype)
                self._biases = tf.get_variable("bias", [output_size], dtype, bias_initializer or zeros)

    def __call__(self, args: Structure) -> tf.Tensor:
        """The map of tensors like those it was made for."""
        tensors = self._listed(args)
        joined = tensors[0] if len(tensors) == 1 else tf.concat(tensors, 1)
        product = tf.matmul(joined, self._weights)
        return product if self._biases is None else tf.nn.bias_add(product, self._biases)

    @staticmethod
    def _listed(args: Structure) -> list[Any]:
        tensors = list(args) if isinstance(args, list | tuple) else [args]
        if not tensors or tensors[0] is None:
            raise ValueError("`args` must be specified: a tensor, or a list of them")
        return tensors


def _linear(
    args: Structure,
    output_size: int,
    bias: bool,
    bias_initializer: PassedOn = None,
    kernel_initializer: PassedOn = None,
) -> tf.Tensor:
    """A linear map of several tensors side by side; see `_Linear`."""
    return _Linear(args, output_size, bias, bias_initializer, kernel_initializer)(args)
