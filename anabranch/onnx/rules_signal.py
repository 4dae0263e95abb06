"""Import rules of signal processing."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.onnx import element_types
from anabranch.onnx.rules import OnnxNode, rule, size_of


@rule("DFT", 17, 20)
def _dft(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    axis = node.integer("axis", 1) if node.since < 20 else int(node.static(2).reshape(())) if node.has(2) else -2
    axis = axis % node.rank()
    length = int(node.static(1).reshape(())) if node.has(1) else size_of(x, axis)
    size = size_of(x, axis)
    inverse, onesided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    real = x[..., 0]
    imaginary = x[..., 1] if size_of(x, -1) == 2 else tf.zeros_like(real)
    # A product with the matrix of the transform serves every axis, length and precision.
    used = min(size, length)
    count = length // 2 + 1 if onesided else length
    angles = (2 if inverse else -2) * np.pi * np.outer(np.arange(used), np.arange(count)) / length
    scale = 1 / length if inverse else 1.0
    cosine, sine = (tf.constant(f(angles) * scale, x.dtype) for f in (np.cos, np.sin))
    cut = tuple(slice(0, used) if i == axis else slice(None) for i in range(node.rank() - 1))
    order = [i for i in range(node.rank() - 1) if i != axis] + [axis]
    back = [int(i) for i in np.argsort(order)]

    def times(part: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.tensordot(tf.transpose(part[cut], order), matrix, 1), back)

    return tf.stack([times(real, cosine) - times(imaginary, sine), times(real, sine) + times(imaginary, cosine)], -1)


@rule("STFT", 17)
def _stft(node: OnnxNode) -> tf.Tensor:
    """The transforms [batch, frames, frequencies, 2] of frames cut out of a signal [batch, length, 1 or 2]."""
    x = node.tensor()
    step = int(node.static(1).reshape(()))
    window = node.optional(2)
    if node.has(3):
        length = int(node.static(3).reshape(()))
    else:
        length = size_of(x, 1) if window is None else size_of(window, 0)
    if step < 1 or not 1 <= length <= size_of(x, 1):
        raise ValueError(
            f"{node.label}: frames of {length} elements, {step} apart, cannot be cut out of {size_of(x, 1)} elements"
        )
    first = np.arange((size_of(x, 1) - length) // step + 1) * step
    frames = tf.gather(x, first[:, None] + np.arange(length), axis=1)
    if window is not None:
        frames = frames * tf.reshape(window, [1, 1, -1, 1])
    count = length // 2 + 1 if node.integer("onesided", 1) else length
    angles = -2 * np.pi * np.outer(np.arange(length), np.arange(count)) / length
    cosine, sine = (tf.constant(f(angles), x.dtype) for f in (np.cos, np.sin))
    real = frames[..., 0]
    parts = [tf.tensordot(real, cosine, 1), tf.tensordot(real, sine, 1)]
    if size_of(x, 2) == 2:
        imaginary = frames[..., 1]
        parts[0] -= tf.tensordot(imaginary, sine, 1)
        parts[1] += tf.tensordot(imaginary, cosine, 1)
    return tf.stack(parts, -1)


@rule("MelWeightMatrix", 17)
def _mel_weight_matrix(node: OnnxNode) -> tf.Tensor:
    bins, length, rate = (int(node.static(i).reshape(())) for i in range(3))
    low, high = (float(node.static(i).reshape(())) for i in (3, 4))
    mel = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mel[0] + np.arange(bins + 2) * (mel[1] - mel[0]) / (bins + 2)
    places = np.floor((length + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(int)
    result = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        lower, center, upper = places[i : i + 3]
        if center == lower:
            result[center, i] = 1
        else:
            result[lower : center + 1, i] = (np.arange(lower, center + 1) - lower) / (center - lower)
        if upper > center:
            result[center:upper, i] = (upper - np.arange(center, upper)) / (upper - center)
    return tf.cast(result, element_types.dtype_of(node.integer("output_datatype", 1), node.label))
