"""Convolutions with other weights at each place, in the three ways in which TensorFlow 1.15 keeps the weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, rebasing, shapes
from anabranch.tfkeras.layer import KerasLayer

_local = package.module("layers.local")
_backend = package.module("backend")
_conv_utils = package.module("utils.conv_utils")
_LocallyConnected1D: Any = rebasing.rebased(_local.LocallyConnected1D)
_LocallyConnected2D: Any = rebasing.rebased(_local.LocallyConnected2D)


class _LocallyConnected(KerasLayer):
    """What both have in common.

    Attributes:
        implementation: 1: a weight for each place and number under the kernel, without padding; 2: for every pair
            of a number that goes in and one that comes out, of which those far from each other do not count; 3: for
            those of the pairs that count, in the order of what comes out.
    """

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    data_format: str
    padding: str
    filters: int
    activation: Any
    use_bias: bool
    implementation: int
    kernel_shape: tuple[Any, ...]

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Takes `implementation` and `padding` from the arguments, of which the package knows one and half the other.

        Raises:
            ValueError: an implementation that is none of the three, or one that does not know such a padding.
        """
        names = ("filters", "kernel_size", "strides", "padding")
        given = dict(zip((*names, "data_format"), args, strict=False)) | kwargs
        if len(args) > len(names) + 1:
            raise TypeError("of the arguments of locally connected layers the first five may be given by position")
        self.implementation = given.pop("implementation", 1)
        padding = _conv_utils.normalize_padding(given.pop("padding", "valid"))
        if self.implementation not in (1, 2, 3):
            raise ValueError(f"Unrecognized implementation mode: {self.implementation}.")
        if padding != "valid" and self.implementation == 1:
            raise ValueError(
                f'Invalid border mode for {type(self).__name__} (only "valid" is supported if implementation is 1): '
                f"{padding}"
            )
        self.padding = padding
        return given

    @property
    def _is_first(self) -> bool:
        return bool(self.data_format == "channels_first")

    def build(self, input_shape: PassedOn) -> None:
        """Makes the weights; all lengths but that of the batch are known.

        Raises:
            ValueError: one of them is not.
        """
        lengths = shapes.as_tuples(input_shape)[1:]
        if any(length is None for length in lengths):
            raise ValueError(
                f"The lengths of a {type(self).__name__}'s inputs should be fully-defined, but layer.build() received "
                f"the full input shape {input_shape}"
            )
        channels, places = (lengths[0], lengths[1:]) if self._is_first else (lengths[-1], lengths[:-1])
        ends: Any = tuple(self._length(*one) for one in zip(places, self.kernel_size, self.strides, strict=True))
        self._places = ends
        self._connected = [list(_under(where, places, self)) for where in np.ndindex(*ends)]
        if self.implementation == 1:
            self.kernel_shape = (len(self._connected), int(np.prod(self.kernel_size)) * channels, self.filters)
            shape: tuple[Any, ...] = self.kernel_shape
        elif self.implementation == 2:
            into, out = (channels, *places), (self.filters, *ends)
            shape = (*into, *out) if self._is_first else (*places, channels, *ends, self.filters)
            self.kernel_shape = shape
        else:
            self.kernel_shape = (len(self._connected) * self.filters, int(np.prod(places)) * channels)
            self.kernel_idxs = sorted(self._pairs(int(np.prod(places)), channels))
            shape = (len(self.kernel_idxs),)
        self.kernel = self.add_weight("kernel", shape, **self._made_by("kernel"))
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight("bias", (*ends, self.filters), **self._made_by("bias"))
        axis = 1 if self._is_first else -1
        self.input_spec = _local.InputSpec(ndim=len(lengths) + 1, axes={axis: channels})
        self.built = True

    def _made_by(self, weight: str) -> dict[str, Any]:
        return {kind: getattr(self, f"{weight}_{kind}") for kind in ("initializer", "regularizer", "constraint")}

    def _length(self, length: int | None, kernel: int, stride: int) -> int | None:
        found: int | None = _conv_utils.conv_output_length(length, kernel, self.padding, stride)
        return found

    def _pairs(self, size: int, channels: int) -> Iterator[tuple[int, int]]:
        """The pairs of a number that comes out and one that goes in, both counted in the order of the data format."""
        count = len(self._connected)
        for end, places in enumerate(self._connected):
            for f, place, c in itertools.product(range(self.filters), places, range(channels)):
                if self._is_first:
                    yield f * count + end, c * size + place
                else:
                    yield end * self.filters + f, place * channels + c

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        """The shape of the output for an input of this shape."""
        given = shapes.as_tuples(input_shape)
        places = given[2:] if self._is_first else given[1:-1]
        ends = tuple(self._length(*one) for one in zip(places, self.kernel_size, self.strides, strict=True))
        answer = (given[0], self.filters, *ends) if self._is_first else (given[0], *ends, self.filters)
        return tf.TensorShape(answer) if shapes.of_tensorflow(input_shape) else answer

    def call(self, inputs: PassedOn) -> Any:
        """The sums over what is under the kernel at each place, with the weights of that place."""
        if self.implementation == 1:
            outputs = self._by_patches(inputs)
        elif self.implementation == 2:
            outputs = self._by_all_pairs(inputs)
        else:
            outputs = self._by_sparse_pairs(inputs)
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        if self.use_bias:
            outputs = _backend.bias_add(outputs, self.bias, data_format=self.data_format)
        return outputs if self.activation is None else self.activation(outputs)

    def _by_patches(self, inputs: tf.Tensor) -> tf.Tensor:
        batch = tf.shape(inputs)[0]
        lengths: list[Any] = inputs.shape.as_list()[1:]
        places: HostArray = np.array(self._connected)
        if self._is_first:
            flat = tf.reshape(inputs, [batch, lengths[0], int(np.prod(lengths[1:]))])
            patches = tf.transpose(tf.gather(flat, places, axis=2), [0, 2, 1, 3])
        else:
            flat = tf.reshape(inputs, [batch, int(np.prod(lengths[:-1])), lengths[-1]])
            patches = tf.gather(flat, places, axis=1)
        patches = tf.reshape(patches, [batch, *self.kernel_shape[:2]])
        sums = tf.einsum("bpk,pkf->bpf", patches, self.kernel)
        if self._is_first:
            return tf.reshape(tf.transpose(sums, [0, 2, 1]), [batch, self.filters, *self._places])
        return tf.reshape(sums, [batch, *self._places, self.filters])

    def _by_all_pairs(self, inputs: tf.Tensor) -> tf.Tensor:
        rank = inputs.shape.ndims or 0
        lengths: list[Any] = inputs.shape.as_list()[1:]
        kernel = self.kernel * tf.constant(self._mask(lengths), self.kernel.dtype)
        return tf.tensordot(inputs, kernel, [list(range(1, rank)), list(range(rank - 1))])

    def _mask(self, lengths: Sequence[int]) -> HostArray:
        """One for the pairs of places that count and zero for the others, to be multiplied with the kernel."""
        places = lengths[1:] if self._is_first else lengths[:-1]
        mask: HostArray = np.zeros([int(np.prod(places)), len(self._connected)])
        for end, under in enumerate(self._connected):
            mask[under, end] = 1
        if self._is_first:
            return mask.reshape([1, *places, 1, *self._places])
        return mask.reshape([*places, 1, *self._places, 1])

    def _by_sparse_pairs(self, inputs: tf.Tensor) -> tf.Tensor:
        batch = tf.shape(inputs)[0]
        flat = tf.reshape(inputs, [batch, self.kernel_shape[1]])
        kernel = tf.SparseTensor(np.array(self.kernel_idxs, np.int64), self.kernel, self.kernel_shape)
        sums = tf.transpose(tf.sparse_tensor_dense_matmul(kernel, flat, adjoint_b=True))
        order = [self.filters, *self._places] if self._is_first else [*self._places, self.filters]
        return tf.reshape(sums, [batch, *order])

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return {**config, "data_format": self.data_format, "implementation": self.implementation}


def _under(where: tuple[int, ...], places: Sequence[int], layer: _LocallyConnected) -> Iterator[int]:
    """The places of an input, counted from its first one, that the kernel covers at a place of the output."""
    ranges = []
    for end, length, kernel, stride in zip(where, places, layer.kernel_size, layer.strides, strict=True):
        first = end * stride - (0 if layer.padding == "valid" else kernel // 2)
        ranges.append(range(max(0, first), min(length, first + kernel)))
    for place in itertools.product(*ranges):
        yield int(np.ravel_multi_index(place, tuple(places)))


@rebasing.serves(_local.LocallyConnected1D)
class LocallyConnected1D(_LocallyConnected, _LocallyConnected1D):
    """A convolution of series with other weights at each place.

    Args:
        kwargs: those of `Conv1D`, and `implementation`: 1, 2 (for few places and many channels) or 3 (for many places
            and small kernels), which compute the same and keep weights otherwise; "same" padding is of 2 and 3.
    """

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        given = self._read(args, kwargs)
        padding = self.padding
        _local.LocallyConnected1D.__init__(self, **given)
        self.padding = padding


@rebasing.serves(_local.LocallyConnected2D)
class LocallyConnected2D(_LocallyConnected, _LocallyConnected2D):
    """The same over two dimensions."""

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        given = self._read(args, kwargs)
        padding = self.padding
        _local.LocallyConnected2D.__init__(self, **given)
        self.padding = padding
