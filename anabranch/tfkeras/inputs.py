"""Where functional models begin: `Input` and the layer behind it."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, rebasing
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("engine.input_layer")
_base = package.module("engine.base_layer")
_backend = package.module("backend")
_InputLayer: Any = rebasing.rebased(_module.InputLayer)


@rebasing.serves(_module.InputLayer)
class InputLayer(_InputLayer):
    """The layer behind an input: a placeholder, or a tensor that the program has.

    Args:
        input_shape: without the batch.
        batch_size: of every batch, where it is known.
        dtype: default: that of floats, or the tensor's.
        input_tensor: a tensor to use in place of a placeholder.
        sparse: whether the placeholder is a sparse tensor.
        ragged: whether it is a ragged one.
        kwargs: `batch_input_shape`.

    Raises:
        ValueError: both shapes, a dtype other than the tensor's, or an argument that it does not have.
    """

    def __init__(
        self,
        input_shape: PassedOn = None,
        batch_size: int | None = None,
        dtype: DTypeLike | None = None,
        input_tensor: PassedOn = None,
        sparse: bool = False,
        name: str | None = None,
        ragged: bool = False,
        **kwargs: PassedOn,
    ) -> None:
        batch_shape = kwargs.pop("batch_input_shape", None)
        if kwargs:
            raise ValueError(f"Unrecognized keyword arguments: {sorted(kwargs)}")
        if batch_shape is not None and input_shape is not None:
            raise ValueError("Only provide the input_shape OR batch_input_shape argument to InputLayer, not both.")
        if batch_shape is None and (input_shape is not None or input_tensor is None):
            lengths = [] if input_shape is None else tf.TensorShape(input_shape).as_list()
            batch_shape = None if input_shape is None else (batch_size, *lengths)
        elif batch_shape is not None:
            batch_shape = tuple(tf.TensorShape(batch_shape).as_list())
        if dtype is not None and input_tensor is not None and input_tensor.dtype != tf.as_dtype(dtype):
            raise ValueError(f"`input_tensor.dtype` differs from `dtype`: {input_tensor.dtype} vs. {dtype}")
        given = input_tensor.dtype if input_tensor is not None else _backend.floatx()
        kind = tf.as_dtype(dtype if dtype is not None else given)
        KerasLayer.__init__(self, name=name or f"input_{_backend.get_uid('input')}", dtype=kind)
        self.built, self.trainable, self.supports_masking = True, False, True
        self.sparse, self.ragged, self.batch_size = sparse, ragged, batch_size
        self.is_placeholder = input_tensor is None
        if input_tensor is None:
            input_tensor = _placeholder(batch_shape, kind, self.name, sparse, ragged)
        elif batch_shape is None:
            shape = input_tensor.get_shape()
            batch_shape = None if shape.ndims is None else tuple(shape.as_list())
        self.batch_input_shape = batch_shape
        input_tensor._keras_shape = batch_shape
        input_tensor._uses_learning_phase = False
        input_tensor._keras_history = (self, 0, 0)
        input_tensor._keras_mask = None
        _base.Node(
            self,
            inbound_layers=[],
            node_indices=[],
            tensor_indices=[],
            input_tensors=[input_tensor],
            output_tensors=[input_tensor],
            input_masks=[None],
            output_masks=[None],
            input_shapes=[batch_shape],
            output_shapes=[batch_shape],
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_input_shape": self.batch_input_shape,
            "dtype": self.dtype,
            "sparse": self.sparse,
            "ragged": self.ragged,
            "name": self.name,
        }


def _placeholder(shape: PassedOn, dtype: tf.DType, name: str, sparse: bool, ragged: bool) -> Any:
    if ragged:
        lengths = list(shape or (None, None))
        rank = next((i for i, length in enumerate(lengths[1:]) if length is not None), len(lengths) - 1)
        if not rank:
            return tf.placeholder(dtype, lengths, name=name)
        return tf.ragged.placeholder(dtype, ragged_rank=rank, value_shape=lengths[rank + 1 :], name=name)
    if sparse:
        return tf.sparse_placeholder(dtype, shape=shape, name=name)
    return tf.placeholder(dtype, shape=shape, name=name)


def Input(
    shape: PassedOn = None,
    batch_size: int | None = None,
    name: str | None = None,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
    tensor: PassedOn = None,
    ragged: bool = False,
    **kwargs: PassedOn,
) -> Any:
    """A tensor that a functional model begins with.

    Args:
        shape: without the batch.
        batch_size: of every batch, where it is known.
        name: of its layer.
        dtype: default: that of floats, or the tensor's.
        sparse: whether it is a sparse tensor.
        tensor: a tensor to use in place of a placeholder.
        ragged: whether it is a ragged one.
        kwargs: `batch_shape` or `batch_input_shape`.

    Raises:
        ValueError: neither a shape nor a tensor, both shapes, or another argument.
    """
    batch_shape = kwargs.pop("batch_input_shape", kwargs.pop("batch_shape", None))
    if kwargs:
        raise ValueError("Unrecognized keyword arguments:", kwargs.keys())
    if sparse and ragged:
        raise ValueError("Cannot set both sparse and ragged to True in a Keras input.")
    if shape is not None and len(tf.TensorShape(shape)) and batch_shape:
        raise ValueError(
            "Only provide the `shape` OR `batch_input_shape` argument to Input, not both at the same time."
        )
    if batch_shape is None and shape is None and tensor is None:
        raise ValueError(
            "Please provide to Input either a `shape` or a `tensor` argument. Note that `shape` does not include "
            "the batch dimension."
        )
    given = {"batch_input_shape": batch_shape} if batch_shape else {"input_shape": shape, "batch_size": batch_size}
    layer = InputLayer(name=name, dtype=dtype, sparse=sparse, ragged=ragged, input_tensor=tensor, **given)
    return layer._inbound_nodes[0].output_tensors[0]
