"""`tf.contrib.all_reduce`: each device gets what all have together.

TensorFlow's functions differ in the way that tensors take between devices (a ring, halves, gathering devices, NVIDIA's
library). Here each reduces on the device of the first tensor and hands the result to the others: tensors of one process
go from device to device once anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: of two tensors
BinaryOp: TypeAlias = "Callable[[tf.Tensor, tf.Tensor], tf.Tensor]"
#: of a list of tensors
ListOp: TypeAlias = "Callable[[list[tf.Tensor]], tf.Tensor]"
UnaryOp: TypeAlias = "Callable[[tf.Tensor], tf.Tensor] | None"


def _of_each(tensors: Sequence[tf.Tensor], reduce: ListOp, un_op: UnaryOp) -> list[tf.Tensor]:
    if not tensors:
        raise ValueError("input_tensors is empty: there is nothing to reduce")
    with tf.device(tensors[0].device or None):
        whole = reduce(list(tensors))
        whole = whole if un_op is None else un_op(whole)
    results = []
    for tensor in tensors:
        with tf.device(tensor.device or None):
            results.append(tf.identity(whole))
    return results


def _by_pairs(red_op: BinaryOp) -> ListOp:
    return lambda tensors: functools.reduce(red_op, tensors)


def build_recursive_hd_all_reduce(
    input_tensors: Sequence[tf.Tensor], red_op: BinaryOp, un_op: UnaryOp = None
) -> list[tf.Tensor]:
    """What all tensors are together, for the device of each.

    Args:
        input_tensors: of one shape and dtype, one for each device.
        red_op: of two tensors, such as `tf.add`.
        un_op: is applied to the result; None: nothing.

    Returns:
        A tensor for each.

    Raises:
        ValueError: there are no tensors.
    """
    return _of_each(input_tensors, _by_pairs(red_op), un_op)


build_nccl_all_reduce = build_recursive_hd_all_reduce
build_nccl_then_recursive_hd = build_recursive_hd_all_reduce


def build_ring_all_reduce(
    input_tensors: Sequence[tf.Tensor],
    num_workers: int,
    num_subchunks: int,
    gpu_perm: PassedOn,
    red_op: BinaryOp,
    un_op: UnaryOp = None,
) -> list[tf.Tensor]:
    """As `build_recursive_hd_all_reduce`; what describes the ring is accepted."""
    return _of_each(input_tensors, _by_pairs(red_op), un_op)


def build_nccl_then_ring(
    input_tensors: Sequence[tf.Tensor], subdiv: int, red_op: BinaryOp, un_op: UnaryOp = None
) -> list[tf.Tensor]:
    """As `build_recursive_hd_all_reduce`; what describes the ring is accepted."""
    return _of_each(input_tensors, _by_pairs(red_op), un_op)


def build_shuffle_all_reduce(
    input_tensors: Sequence[tf.Tensor], gather_devices: PassedOn, red_op: ListOp, un_op: UnaryOp = None
) -> list[tf.Tensor]:
    """As `build_recursive_hd_all_reduce`, with a function of a list, such as `tf.add_n`; devices are accepted."""
    return _of_each(input_tensors, red_op, un_op)


def build_nccl_then_shuffle(
    input_tensors: Sequence[tf.Tensor],
    gather_devices: PassedOn,
    nccl_red_op: BinaryOp,
    shuffle_red_op: ListOp,
    un_op: UnaryOp = None,
) -> list[tf.Tensor]:
    """As `build_shuffle_all_reduce`, by the second function."""
    return _of_each(input_tensors, shuffle_red_op, un_op)


def build_shuffle_then_shuffle(
    input_tensors: Sequence[tf.Tensor],
    first_gather_devices: PassedOn,
    second_gather_devices: PassedOn,
    red_op: ListOp,
    un_op: UnaryOp = None,
) -> list[tf.Tensor]:
    """As `build_shuffle_all_reduce`."""
    return _of_each(input_tensors, red_op, un_op)


def build_shuffle_then_ring(
    input_tensors: Sequence[tf.Tensor],
    gather_devices: PassedOn,
    subdiv: int,
    red_n_op: ListOp,
    red_op: BinaryOp,
    un_op: UnaryOp = None,
) -> list[tf.Tensor]:
    """As `build_shuffle_all_reduce`, by the first function."""
    return _of_each(input_tensors, red_n_op, un_op)
