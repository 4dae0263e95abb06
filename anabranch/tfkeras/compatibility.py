"""Whether a layer's inputs are what it says it takes."""

from __future__ import annotations

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import shapes


def check(specs: PassedOn, inputs: PassedOn, name: str) -> None:
    """Compares inputs with the specifications of a layer of that name.

    Raises:
        ValueError: their number, a rank, a length or a dtype is another.
    """
    if not specs:
        return
    listed = tf.nest.flatten(specs)
    tensors = tf.nest.flatten(inputs)
    if len(tensors) != len(listed):
        raise ValueError(
            f"Layer {name} expects {len(listed)} inputs, but it received {len(tensors)} input tensors. "
            f"Inputs received: {inputs}"
        )
    for index, (tensor, spec) in enumerate(zip(tensors, listed, strict=True)):
        if spec is not None:
            why = _why_not(spec, tensor)
            if why.startswith("expected shape="):
                raise ValueError(f"Input {index} is incompatible with layer {name}: {why}")
            if why:
                raise ValueError(f"Input {index} of layer {name} is incompatible with the layer: {why}")


def _why_not(spec: PassedOn, tensor: PassedOn) -> str:
    shape = shapes.of(tensor)
    if spec.dtype is not None and tf.as_dtype(tensor.dtype).base_dtype != tf.as_dtype(spec.dtype):
        return f"expected dtype={spec.dtype}, found dtype={tensor.dtype}"
    if shape.ndims is None:
        return (
            ""
            if not (spec.ndim or spec.min_ndim or spec.axes)
            else ("its rank is undefined, but the layer requires a defined rank.")
        )
    lengths = shape.as_list()
    received = f"Full shape received: {lengths}"
    rank = len(lengths)
    if spec.ndim is not None and spec.shape is None and rank != spec.ndim:
        return f"expected ndim={spec.ndim}, found ndim={rank}. {received}"
    if spec.max_ndim is not None and rank > spec.max_ndim:
        return f"expected max_ndim={spec.max_ndim}, found ndim={rank}"
    if spec.min_ndim is not None and rank < spec.min_ndim:
        return f": expected min_ndim={spec.min_ndim}, found ndim={rank}. {received}"
    for axis, length in (spec.axes or {}).items():
        length = getattr(length, "value", length)
        if length is not None and lengths[int(axis)] not in (length, None):
            return f"expected axis {axis} of input shape to have value {length} but received input with shape {lengths}"
    if spec.shape is not None and not shape.is_compatible_with(tf.TensorShape(list(spec.shape))):
        return f"expected shape={tuple(spec.shape)}, found shape={lengths}"
    return ""
