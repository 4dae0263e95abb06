"""What libraries ask of `tensorflow.python.ops.resources`: a graph's resources besides variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import anabranch as tf


class _Resource(NamedTuple):
    """A resource: its handle, what creates it, whether that has happened."""

    handle: tf.Tensor
    create: tf.Operation
    is_initialized: tf.Tensor


def register_resource(
    handle: tf.Tensor, create_op: tf.Operation, is_initialized_op: tf.Tensor, is_shared: bool = True
) -> None:
    """Adds a resource to the graph's collection of shared resources, or to that of local ones."""
    key = tf.GraphKeys.RESOURCES if is_shared else tf.GraphKeys.LOCAL_RESOURCES
    tf.add_to_collection(key, _Resource(handle, create_op, is_initialized_op))


def shared_resources() -> list[_Resource]:
    """The resources that all tasks see."""
    return tf.get_collection(tf.GraphKeys.RESOURCES)


def local_resources() -> list[_Resource]:
    """The resources that this session alone sees."""
    return tf.get_collection(tf.GraphKeys.LOCAL_RESOURCES)


def report_uninitialized_resources(
    resource_list: Sequence[_Resource] | None = None, name: str = "report_uninitialized_resources"
) -> tf.Tensor:
    """The names of the resources that are not initialized, of all by default."""
    listed = [*shared_resources(), *local_resources()] if resource_list is None else resource_list
    with tf.name_scope(name):
        if not listed:
            return tf.constant([], tf.string)
        missing = tf.logical_not(tf.stack([one.is_initialized for one in listed]))
        return tf.boolean_mask(tf.constant([one.handle.name for one in listed]), missing)


def initialize_resources(resource_list: Sequence[_Resource], name: str = "init") -> tf.Operation:
    """The operation that creates resources."""
    return tf.group(*[one.create for one in resource_list], name=name) if resource_list else tf.no_op(name=name)
