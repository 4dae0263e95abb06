"""Initializers: functions from a shape to the first value of a variable."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic import random
from anabranch.frontend.arrays.constants import constant, fill, ones, zeros
from anabranch.frontend.variables.partitioned import PartitionInfo
from anabranch.graph.conversion import constant_of, convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: A constant with more elements than this is made when it is needed, not stored in the graph.
_STORED_ELEMENTS = 1000

#: standard deviation of a standard normal variable that is cut off at two
_TRUNCATED_STDDEV = 0.87962566103423978


class Initializer:
    """Base of initializers: called with a shape, gives a tensor.

    ``initializer(shape, dtype=None, partition_info=None)``: `dtype` defaults to the one given at construction;
    `partition_info` tells where a part of a partitioned variable lies, so that the scale follows from the whole.
    """

    #: the arguments of the constructor, in order, for `get_config`
    _config: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(shape, dtype, partition_info)")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values."""
        config = {key: getattr(self, key) for key in self._config}
        return {key: value.name if isinstance(value, DType) else value for key, value in config.items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The initializer that `get_config` described."""
        return cls(**config)


def _dims(shape: ShapeLike) -> list[int]:
    return [int(n) for n in TensorShape(shape).as_list() if n is not None]


class Zeros(Initializer):
    """All zeros (False, empty strings).

    Args:
        dtype: of the variable, where it does not say.

    Raises:
        TypeError: `dtype` names no dtype.

    Example:
        >>> sess.run(tf.zeros_initializer()([2]))
        array([0., 0.], dtype=float32)
    """

    _config: ClassVar[tuple[str, ...]] = ("dtype",)

    def __init__(self, dtype: DTypeLike = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        tensor: Tensor = zeros(shape, self.dtype if dtype is None else dtype)
        return tensor


class Ones(Initializer):
    """All ones.

    Args:
        dtype: of the variable, where it does not say.

    Raises:
        TypeError: `dtype` names no dtype.

    Example:
        >>> sess.run(tf.ones_initializer()([2]))
        array([1., 1.], dtype=float32)
    """

    _config: ClassVar[tuple[str, ...]] = ("dtype",)

    def __init__(self, dtype: DTypeLike = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        tensor: Tensor = ones(shape, self.dtype if dtype is None else dtype)
        return tensor


class Constant(Initializer):
    """A given value.

    Args:
        value: a number, or nested lists or an array with at most as many elements as the variable; the last one is
            repeated where there are fewer.
        dtype: default dtype.
        verify_shape: whether the value must have the variable's shape exactly.

    Raises:
        TypeError: `value` is none of these. Calling raises it for a wrong shape with `verify_shape`.
        ValueError: (when called) `value` has too many elements.

    Example:
        >>> v = tf.get_variable("v", [3], initializer=tf.constant_initializer(0.1))
        >>> sess.run(v.initializer)
        >>> sess.run(v)
        array([0.1, 0.1, 0.1], dtype=float32)
    """

    _config: ClassVar[tuple[str, ...]] = ("value", "dtype")

    def __init__(self, value: TensorLike = 0, dtype: DTypeLike = float32, verify_shape: bool = False) -> None:
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise TypeError(f"Invalid type for initial value: {type(value)} (expected a number, a list or an array).")
        self.value = value
        self.dtype = as_dtype(dtype)
        self._verify_shape = verify_shape

    def __call__(
        self,
        shape: ShapeLike,
        dtype: DTypeLike | None = None,
        partition_info: PartitionInfo | None = None,
        verify_shape: bool | None = None,
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        tensor: Tensor
        if isinstance(shape, Tensor) and np.ndim(self.value) == 0:
            tensor = fill(shape, constant(self.value, wanted, name="value"))
            return tensor
        dims = _dims(shape)
        if np.ndim(self.value) == 0 and math.prod(dims) > _STORED_ELEMENTS:
            tensor = fill(dims, constant(self.value, wanted, name="value"), name="Const")
            return tensor
        verify = self._verify_shape if verify_shape is None else verify_shape
        return constant(self.value, wanted, dims, verify_shape=verify)


class RandomUniform(Initializer):
    """Uniform in [minval, maxval); `maxval` defaults to 1 for floating dtypes and must be given for integers.

    Args:
        minval, maxval: scalars.
        seed: of the random numbers.
        dtype: of the variable, where it does not say; float or integer.

    Raises:
        ValueError: (when called) `maxval` is missing for integers.

    Example:
        >>> values = sess.run(tf.random_uniform_initializer(-0.1, 0.1)([100]))
        >>> bool((abs(values) <= 0.1).all())
        True
    """

    _config: ClassVar[tuple[str, ...]] = ("minval", "maxval", "seed", "dtype")

    def __init__(
        self,
        minval: TensorLike = 0,
        maxval: TensorLike | None = None,
        seed: int | None = None,
        dtype: DTypeLike = float32,
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        self.seed = seed
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        tensor: Tensor = random.random_uniform(shape, self.minval, self.maxval, wanted, seed=self.seed)
        return tensor


class RandomNormal(Initializer):
    """Normal with the given mean and standard deviation.

    Args:
        mean, stddev: scalars: the mean and the standard deviation.
        seed: of the random numbers.
        dtype: of the variable, where it does not say; floating.

    Raises:
        ValueError: `dtype` is not floating.

    Example:
        >>> initializer = tf.random_normal_initializer(stddev=0.01)
        >>> bool((abs(sess.run(initializer([100]))) < 0.1).all())
        True
    """

    _config: ClassVar[tuple[str, ...]] = ("mean", "stddev", "seed", "dtype")

    def __init__(
        self, mean: TensorLike = 0.0, stddev: TensorLike = 1.0, seed: int | None = None, dtype: DTypeLike = float32
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        tensor: Tensor = random.random_normal(shape, self.mean, self.stddev, wanted, seed=self.seed)
        return tensor


class TruncatedNormal(RandomNormal):
    """Normal, with values more than two standard deviations from the mean drawn again.

    Args:
        mean, stddev: scalars: of the normal distribution before it is cut off.
        seed: of the random numbers.
        dtype: of the variable, where it does not say; floating.

    Raises:
        ValueError: `dtype` is not floating.

    Example:
        >>> initializer = tf.truncated_normal_initializer(stddev=0.1)
        >>> bool((abs(sess.run(initializer([100]))) <= 0.2).all())
        True
    """

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        tensor: Tensor = random.truncated_normal(shape, self.mean, self.stddev, wanted, seed=self.seed)
        return tensor


class UniformUnitScaling(Initializer):
    """Uniform so that a linear layer keeps the variance of its input: within ``factor * sqrt(3 / inputs)``."""

    _config: ClassVar[tuple[str, ...]] = ("factor", "seed", "dtype")

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: DTypeLike = float32) -> None:
        self.factor = factor
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        inputs = math.prod(float(n) for n in _dims(whole)[:-1])
        limit = math.sqrt(3 / max(inputs, 1.0)) * self.factor
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        tensor: Tensor = random.random_uniform(shape, -limit, limit, wanted, seed=self.seed)
        return tensor


class VarianceScaling(Initializer):
    """Random with variance ``scale / n``, where n follows from the shape of the weights.

    Args:
        scale: positive.
        mode: "fan_in" (n = inputs of a unit), "fan_out" (its outputs) or "fan_avg" (their mean).
        distribution: "truncated_normal" (or "normal"), "untruncated_normal" or "uniform".
        seed: of the random numbers.
        dtype: of the variable, where it does not say; floating.

    Raises:
        ValueError: an argument is none of these.

    Example:
        >>> initializer = tf.variance_scaling_initializer(scale=2.0, distribution="uniform")
        >>> bool((abs(sess.run(initializer([50, 10]))) <= np.sqrt(6.0 / 50)).all())
        True
    """

    _config: ClassVar[tuple[str, ...]] = ("scale", "mode", "distribution", "seed", "dtype")

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: DTypeLike = float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError(f"`scale` must be positive float, got {scale}")
        if mode not in {"fan_in", "fan_out", "fan_avg"}:
            raise ValueError(f"Invalid `mode` argument: {mode}; use 'fan_in', 'fan_out' or 'fan_avg'")
        distribution = distribution.lower()
        if distribution not in {"normal", "uniform", "truncated_normal", "untruncated_normal"}:
            raise ValueError(
                f"Invalid `distribution` argument: {distribution}; "
                "use 'truncated_normal', 'untruncated_normal' or 'uniform'"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        whole = shape if partition_info is None else partition_info.full_shape
        fan_in, fan_out = _fans(_dims(whole))
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        tensor: Tensor
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            tensor = random.random_uniform(shape, -limit, limit, wanted, seed=self.seed)
        elif self.distribution == "untruncated_normal":
            tensor = random.random_normal(shape, 0.0, math.sqrt(variance), wanted, seed=self.seed)
        else:
            stddev = math.sqrt(variance) / _TRUNCATED_STDDEV
            tensor = random.truncated_normal(shape, 0.0, stddev, wanted, seed=self.seed)
        return tensor


class GlorotUniform(VarianceScaling):
    """Uniform with variance ``2 / (inputs + outputs)`` of a unit."""

    _config: ClassVar[tuple[str, ...]] = ("seed", "dtype")

    def __init__(self, seed: int | None = None, dtype: DTypeLike = float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


class GlorotNormal(VarianceScaling):
    """Truncated normal with variance ``2 / (inputs + outputs)`` of a unit."""

    _config: ClassVar[tuple[str, ...]] = ("seed", "dtype")

    def __init__(self, seed: int | None = None, dtype: DTypeLike = float32) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


class Orthogonal(Initializer):
    """A random matrix with orthonormal columns (rows, where there are fewer), times `gain`.

    Shapes of more than two dimensions are taken as matrices whose columns are the last dimension.
    """

    _config: ClassVar[tuple[str, ...]] = ("gain", "seed", "dtype")

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: DTypeLike = float32) -> None:
        self.gain = gain
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        dims = _dims(shape)
        if len(dims) < 2:
            raise ValueError(f"The tensor to initialize must be at least two-dimensional, its shape is {dims}")
        rows, columns = math.prod(dims[:-1]), dims[-1]
        tall = [max(rows, columns), min(rows, columns)]
        q, r = raw.Qr(random.random_normal(tall, dtype=wanted, seed=self.seed), full_matrices=False)
        # the signs make the distribution uniform over orthogonal matrices
        q = raw.Mul(q, raw.Sign(raw.DiagPart(r)))
        if rows < columns:
            q = raw.Transpose(q, [1, 0])
        scale = convert_to_tensor(self.gain, wanted, name="gain")
        tensor: Tensor = raw.Mul(scale, raw.Reshape(q, dims))
        return tensor


class Identity(Initializer):
    """The identity matrix times `gain`; for shapes of two dimensions.

    Raises:
        ValueError: (when called) another number of dimensions.
    """

    _config: ClassVar[tuple[str, ...]] = ("gain", "dtype")

    def __init__(self, gain: float = 1.0, dtype: DTypeLike = float32) -> None:
        self.gain = gain
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        dims = _dims(shape if partition_info is None else partition_info.full_shape)
        if len(dims) != 2:
            raise ValueError(f"Identity matrix initializer can only be used for 2D matrices, got the shape {dims}")
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        whole = constant_of(np.eye(*dims, dtype=wanted.as_numpy_dtype), "eye")
        if partition_info is not None:
            whole = raw.Slice(whole, partition_info.var_offset, _dims(shape))
        if self.gain == 1.0:
            return whole
        tensor: Tensor = raw.Mul(convert_to_tensor(self.gain, wanted, name="gain"), whole)
        return tensor


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal with variance ``1 / inputs`` of a unit."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform with variance ``1 / inputs`` of a unit."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


def he_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal with variance ``2 / inputs`` of a unit."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform with variance ``2 / inputs`` of a unit."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def _fans(dims: list[int]) -> tuple[float, float]:
    """How many inputs and outputs a unit has: the last two dimensions, times the size of the window before them."""
    if len(dims) < 2:
        n = float(dims[0]) if dims else 1.0
        return n, n
    window = math.prod(float(n) for n in dims[:-2])
    return dims[-2] * window, dims[-1] * window


def _floating(dtype: DTypeLike) -> DType:
    floating = as_dtype(dtype)
    if not floating.is_floating:
        raise ValueError(f"Expected floating point type, got {floating.name}.")
    return floating


zeros_initializer = Zeros
ones_initializer = Ones
constant_initializer = Constant
random_uniform_initializer = RandomUniform
random_normal_initializer = RandomNormal
truncated_normal_initializer = TruncatedNormal
uniform_unit_scaling_initializer = UniformUnitScaling
variance_scaling_initializer = VarianceScaling
orthogonal_initializer = Orthogonal
identity_initializer = Identity
glorot_uniform_initializer = GlorotUniform
glorot_normal_initializer = GlorotNormal
