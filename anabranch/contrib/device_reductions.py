"""`tf.contrib.nccl`: what NVIDIA's library does between GPUs, as ordinary operations on the devices that are there.

The tensors meet on the device of the first, and the result goes to each of their devices. Gradients follow from the
operations: that of a sum to every tensor is the sum of those that arrive.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import anabranch as tf

_Reduction = Callable[[Sequence[tf.Tensor]], tf.Tensor]


def all_sum(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The sum of tensors, on the device of each.

    Raises:
        ValueError: there are none, or their shapes differ.

    Example:
        >>> sess.run(tf.contrib.nccl.all_sum([tf.constant(1.0), tf.constant(2.0)]))
        [np.float32(3.0), np.float32(3.0)]
    """
    return _everywhere(tf.add_n, tensors)


def all_prod(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The product of tensors, on the device of each; raises as `all_sum`."""
    return _everywhere(_pairwise(tf.multiply), tensors)


def all_min(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The least elements of tensors, on the device of each; raises as `all_sum`."""
    return _everywhere(_pairwise(tf.minimum), tensors)


def all_max(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The greatest elements of tensors, on the device of each; raises as `all_sum`."""
    return _everywhere(_pairwise(tf.maximum), tensors)


def reduce_sum(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum of tensors, on the device that `tf.device` says.

    Raises:
        ValueError: there are none, or their shapes differ.
    """
    return tf.add_n(_checked(tensors, "reduce"))


def broadcast(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, which goes to every device that takes it."""
    with tf.device(tensor.device or None):
        return tf.identity(tensor)


def _pairwise(function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> _Reduction:
    return functools.partial(functools.reduce, function)


def _everywhere(reduction: _Reduction, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    checked = _checked(tensors, "all reduce")
    with tf.device(checked[0].device or None):
        result = reduction(checked)
    made = []
    for tensor in checked:
        with tf.device(tensor.device or None):
            made.append(tf.identity(result))
    return made


def _checked(tensors: Sequence[tf.Tensor], kind: str) -> list[tf.Tensor]:
    made = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not made:
        raise ValueError(f"Must pass >0 tensors to {kind} operations")
    for tensor in made[1:]:
        if tensor.dtype != made[0].dtype or not tensor.shape.is_compatible_with(made[0].shape):
            raise ValueError(
                f"the tensors must be of one type and shape: {made[0].name} is {made[0].dtype.name} {made[0].shape}, "
                f"{tensor.name} is {tensor.dtype.name} {tensor.shape}"
            )
    return made
