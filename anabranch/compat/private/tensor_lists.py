"""`tensorflow.python.ops.list_ops`: lists of tensors, with the element's shape as programs write it."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import TensorLike

raw = tf.raw_ops


def empty_tensor_list(
    element_shape: ShapeLike | tf.Tensor | None,
    element_dtype: DTypeLike,
    max_num_elements: TensorLike | None = None,
    name: str | None = None,
) -> Any:
    """A list without elements; it may have at most `max_num_elements`, where these are given."""
    most = -1 if max_num_elements is None else max_num_elements
    shape = _shape(element_shape)
    return raw.EmptyTensorList(element_shape=shape, max_num_elements=most, element_dtype=element_dtype, name=name)


def tensor_list_reserve(
    element_shape: ShapeLike | tf.Tensor | None,
    num_elements: TensorLike,
    element_dtype: DTypeLike,
    name: str | None = None,
) -> Any:
    """A list of elements that are not there yet."""
    shape = _shape(element_shape)
    return raw.TensorListReserve(element_shape=shape, num_elements=num_elements, element_dtype=element_dtype, name=name)


def tensor_list_from_tensor(
    tensor: TensorLike, element_shape: ShapeLike | tf.Tensor | None, name: str | None = None
) -> Any:
    """The rows of a tensor as a list."""
    return raw.TensorListFromTensor(tensor=tensor, element_shape=_shape(element_shape), name=name)


def tensor_list_get_item(
    input_handle: TensorLike,
    index: TensorLike,
    element_dtype: DTypeLike,
    element_shape: ShapeLike | tf.Tensor | None = None,
    name: str | None = None,
) -> Any:
    """An element."""
    return raw.TensorListGetItem(
        input_handle=input_handle,
        index=index,
        element_shape=_shape(element_shape),
        element_dtype=element_dtype,
        name=name,
    )


def tensor_list_pop_back(input_handle: TensorLike, element_dtype: DTypeLike, name: str | None = None) -> Any:
    """The list without its last element, and that element."""
    return raw.TensorListPopBack(
        input_handle=input_handle, element_shape=_shape(None), element_dtype=element_dtype, name=name
    )


def tensor_list_stack(
    input_handle: TensorLike,
    element_dtype: DTypeLike,
    num_elements: int = -1,
    element_shape: ShapeLike | tf.Tensor | None = None,
    name: str | None = None,
) -> Any:
    """The elements, one on the other."""
    return raw.TensorListStack(
        input_handle=input_handle,
        element_shape=_shape(element_shape),
        element_dtype=element_dtype,
        num_elements=num_elements,
        name=name,
    )


def tensor_list_gather(
    input_handle: TensorLike,
    indices: TensorLike,
    element_dtype: DTypeLike,
    element_shape: ShapeLike | tf.Tensor | None = None,
    name: str | None = None,
) -> Any:
    """The elements at some indices, one on the other."""
    return raw.TensorListGather(
        input_handle=input_handle,
        indices=indices,
        element_shape=_shape(element_shape),
        element_dtype=element_dtype,
        name=name,
    )


def _shape(element_shape: ShapeLike | tf.Tensor | None) -> Any:
    """The shape of elements as operations take it: -1 for what is not known."""
    if isinstance(element_shape, tf.Tensor):
        return element_shape
    shape = tf.TensorShape(element_shape)
    if shape.ndims is None:
        return np.int32(-1)
    return np.array([-1 if size is None else size for size in shape.as_list()], np.int32)
