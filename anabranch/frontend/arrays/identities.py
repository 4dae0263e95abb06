"""The value of a tensor under another name: copies, barriers of gradients, promises, checks of shapes."""

from __future__ import annotations

from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.graph.composite import SparseTensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


@dispatched
def identity(input: TensorLike, name: str | None = None) -> Tensor:
    """A new tensor (or `IndexedSlices`, sparse or ragged tensor) with the value of `input`.

    Args:
        input: a tensor or variable of any dtype and shape, an `IndexedSlices`, a sparse or a ragged tensor.
        name: of the operation.

    Returns:
        A tensor of the same dtype and shape.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> v = tf.get_variable("v", initializer=2.0)
        >>> with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        ...     after = tf.identity(v)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(after)
        np.float32(3.0)
    """
    if isinstance(input, SparseTensor):
        parts = (input.indices, input.values, input.dense_shape)
        return SparseTensor(*(identity(part, name) for part in parts))  # type: ignore[return-value]
    if hasattr(input, "with_flat_values"):  # ragged tensors are made of operations of this module
        splits = [identity(each, name) for each in input.nested_row_splits]
        return type(input).from_nested_row_splits(identity(input.flat_values, name), splits, validate=False)  # type: ignore[no-any-return]
    result: Tensor = raw.Identity(input, name=name)
    return result


def identity_n(input: TensorLike, name: str | None = None) -> list[Tensor]:
    """New tensors with the values of the tensors of a list."""
    result: list[Tensor] = raw.IdentityN(input, name=name)
    return result


def stop_gradient(input: TensorLike, name: str | None = None) -> Tensor:
    """The value of `input`, through which no gradient flows.

    Args:
        input: a tensor of any dtype and shape.
        name: of the operation.

    Returns:
        A tensor of the same dtype, shape and value.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> x = tf.constant(3.0)
        >>> sess.run(tf.gradients(x * tf.stop_gradient(x), x))
        [np.float32(3.0)]
    """
    result: Tensor = raw.StopGradient(input, name=name)
    return result


def guarantee_const(input: TensorLike, name: str | None = None) -> Tensor:
    """The value of `input`, with the caller's promise that it never changes."""
    result: Tensor = raw.GuaranteeConst(input, name=name)
    return result


def ensure_shape(x: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """The value of `x`; the step fails if its shape is not compatible with `shape`."""
    result: Tensor = raw.EnsureShape(x, shape=TensorShape(shape), name=name)
    return result
