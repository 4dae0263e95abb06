"""Kernels of convolutions that keep lengths: `tf.contrib.framework.convolutional_*` (Xiao et al. 2018).

A convolution that goes round the edges keeps the length of every signal if its one matrix is orthogonal, and so do
several after each other. A projection P (symmetric, PP = P) makes the smallest kernel of two places: P and 1 - P beside
each other. A kernel of several dimensions is the product of one for each, and a larger one is made of such kernels,
convolved with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn

#: gives a random orthogonal matrix of a size; each time another one
Draw = Callable[[int], Any]


class ConvolutionDeltaOrthogonal(tf.orthogonal_initializer):
    """An orthogonal matrix in the middle of the kernel, and zeros around it.

    Called with a shape of 3 to 5 dimensions, ``[place, ..., inputs, outputs]``, it gives a tensor of it.

    Args:
        gain: what the length of an input is multiplied by.
        seed: see `tf.set_random_seed`.
        dtype: a floating type, where the call does not say.

    Raises:
        ValueError: (when called) another number of dimensions, or more inputs than outputs.
    """

    def __call__(self, shape: PassedOn, dtype: DTypeLike | None = None, partition_info: PassedOn = None) -> tf.Tensor:
        wanted = tf.as_dtype(self.dtype if dtype is None else dtype)
        sizes, inputs, outputs = _parts(shape, (1, 2, 3))
        matrix = _orthogonal(outputs, wanted, self.seed)[:inputs, :]
        around = [[(size - 1) // 2, size - 1 - (size - 1) // 2] for size in sizes]
        middle = tf.reshape(matrix * self.gain, [*(1 for _ in sizes), inputs, outputs])
        kernel: tf.Tensor = tf.pad(middle, [*around, [0, 0], [0, 0]])
        return kernel


class ConvolutionOrthogonal(tf.orthogonal_initializer):
    """Orthogonal kernels of any number of dimensions, whose sizes are equal; see `ConvolutionDeltaOrthogonal`.

    Raises:
        ValueError: (when called) another number of dimensions, unequal sizes, or more inputs than outputs.
    """

    _dimensions = 0

    def __call__(self, shape: PassedOn, dtype: DTypeLike | None = None, partition_info: PassedOn = None) -> tf.Tensor:
        wanted = tf.as_dtype(self.dtype if dtype is None else dtype)
        sizes, inputs, outputs = _parts(shape, (self._dimensions,))
        if len({*sizes}) > 1:
            raise ValueError(f"Kernel sizes must be equal, got {sizes}.")
        # equal seeds would give equal matrices, of which several are needed
        seeds: Iterator[int | None] = itertools.repeat(None) if self.seed is None else itertools.count(self.seed)
        draw = partial(_drawn, seeds, wanted)
        first = _orthogonal(outputs, wanted, next(seeds))[:inputs, :]
        kernels = [_smallest(draw, outputs, len(sizes)) for _ in range(sizes[0] - 1)]
        whole = reduce(_convolved, kernels) if kernels else tf.eye(outputs, batch_shape=[1] * len(sizes), dtype=wanted)
        kernel: tf.Tensor = _times(first, whole) * self.gain
        return kernel


class ConvolutionOrthogonal1D(ConvolutionOrthogonal):
    """Orthogonal kernels of shape ``[place, inputs, outputs]``; see `ConvolutionOrthogonal`."""

    _dimensions = 1


class ConvolutionOrthogonal2D(ConvolutionOrthogonal):
    """Orthogonal kernels of shape ``[place, place, inputs, outputs]``; see `ConvolutionOrthogonal`."""

    _dimensions = 2


class ConvolutionOrthogonal3D(ConvolutionOrthogonal):
    """Orthogonal kernels of shape ``[place, place, place, inputs, outputs]``; see `ConvolutionOrthogonal`."""

    _dimensions = 3


def _parts(shape: PassedOn, dimensions: tuple[int, ...]) -> tuple[list[int], int, int]:
    """The sizes of a kernel's places, and how many inputs and outputs it has."""
    *sizes, inputs, outputs = [int(size) for size in tf.TensorShape(shape)]
    if len(sizes) not in dimensions:
        ranks = " or ".join(str(n + 2) for n in dimensions)
        raise ValueError(f"The tensor to initialize must have {ranks} dimensions, its shape is {shape}.")
    if inputs > outputs:
        raise ValueError(f"In_filters cannot be greater than out_filters, got {inputs} and {outputs}.")
    return sizes, inputs, outputs


def _orthogonal(size: int, dtype: tf.DType, seed: int | None) -> tf.Tensor:
    matrix: tf.Tensor = tf.orthogonal_initializer(seed=seed, dtype=dtype)([size, size])
    return matrix


def _drawn(seeds: Iterator[int | None], dtype: tf.DType, size: int) -> tf.Tensor:
    """A random projection: of an orthogonal matrix, about half of the columns."""
    matrix = _orthogonal(size, dtype, next(seeds))
    kept = tf.cast(tf.random_normal([size], seed=next(seeds)) > 0, dtype)
    projection: tf.Tensor = tf.matmul(matrix * kept, matrix, transpose_b=True)
    return projection


def _smallest(draw: Draw, size: int, dimensions: int) -> Any:
    """A kernel of two places in each of some dimensions, of shape ``[2, ..., size, size]``."""
    kernel: Any = None
    for axis in range(dimensions):
        projection = draw(size)
        pair = tf.stack([projection, tf.eye(size, dtype=projection.dtype) - projection])
        if kernel is None:
            kernel = pair
            continue
        others = [tf.matmul(tf.reshape(kernel, [-1, size, size]), _every(pair[i], 2**axis)) for i in range(2)]
        kernel = tf.reshape(tf.stack(others, axis=1), [2] * (axis + 1) + [size, size])
    return kernel


def _every(matrix: tf.Tensor, count: int) -> tf.Tensor:
    repeated: tf.Tensor = tf.tile(matrix[None], [count, 1, 1])
    return repeated


def _convolved(kernel: tf.Tensor, smallest: tf.Tensor) -> tf.Tensor:
    """One kernel after another, of two places: the sum of its matrices' products, moved by their places."""
    dimensions = len(kernel.shape.as_list()) - 2
    moved = []
    for place in itertools.product(range(2), repeat=dimensions):
        matrix = smallest
        for index in place:
            matrix = matrix[index]
        product = _times_right(kernel, matrix)
        moved.append(tf.pad(product, [*([index, 1 - index] for index in place), [0, 0], [0, 0]]))
    total: tf.Tensor = tf.add_n(moved)
    return total


def _times_right(kernel: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Each of a kernel's matrices times a matrix."""
    shape = kernel.shape.as_list()
    product: tf.Tensor = tf.reshape(tf.matmul(tf.reshape(kernel, [-1, shape[-1]]), matrix), shape)
    return product


def _times(matrix: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A matrix times each of a kernel's matrices."""
    *sizes, size, _ = kernel.shape.as_list()
    places = tf.reshape(kernel, [-1, size, size])
    products = tf.matmul(_every(matrix, int(places.shape[0])), places)
    product: tf.Tensor = tf.reshape(products, [*sizes, int(matrix.shape[0]), size])
    return product
