"""Random tensors: uniform, normal, truncated normal, gamma, Poisson, multinomial, shuffled; and stateless forms.

Without a seed (of the graph or of the operation) every session draws other numbers; with one, every session draws the
same sequence. The `stateless` functions depend on their `seed` argument alone: a vector of two integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, to_array
from anabranch.frontend.framework import get_seed, name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _shape_tensor(shape: TensorLike) -> Tensor:
    """A shape argument as an integer vector; an empty list is the shape of a scalar."""
    if isinstance(shape, TensorShape):
        shape = [int(d) for d in shape]
    if isinstance(shape, list | tuple):
        values: Any = [convert_to_tensor(d) if is_tensor_like(d) else int(d) for d in shape]
        if not any(isinstance(d, Tensor) for d in values):
            values = to_array(values) if values else np.zeros(0, np.int32)  # of int64 only where a size needs it
        shape = values
    tensor = convert_to_tensor(shape, name="shape")
    return raw.Reshape(tensor, [-1]) if tensor.shape.ndims == 0 else tensor


def _scaled(
    numbers: Tensor, scale: TensorLike, offset: TensorLike, dtype: DType, name: str, scale_name: str, offset_name: str
) -> Tensor:
    factor = convert_to_tensor(scale, dtype, name=scale_name)
    start = convert_to_tensor(offset, dtype, name=offset_name)
    result: Tensor = raw.Add(raw.Mul(numbers, factor, name="mul"), start, name=name)
    return result


# ---------------------------------------------------------------------- uniform
def random_uniform(
    shape: TensorLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers uniform in [minval, maxval).

    Args:
        shape: an integer vector (list or tensor).
        minval, maxval: scalars; `maxval` defaults to 1 for floating dtypes and must be given for integers.
        dtype: float16, bfloat16, float32, float64, int32 or int64.
        seed: of this operation; see `set_random_seed`.
        name: of the operation.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Raises:
        ValueError: another dtype, or no `maxval` for integers.

    Example:
        >>> dice = sess.run(tf.random_uniform([100], 1, 7, dtype=tf.int32))
        >>> sorted(set(dice.tolist()))
        [1, 2, 3, 4, 5, 6]
    """
    number_type, high = _uniform_arguments(dtype, maxval)
    with name_scope(name, "random_uniform", _tensors(shape, minval, high)) as scope:
        dims, (seed1, seed2) = _shape_tensor(shape), get_seed(seed)
        if number_type.is_integer:
            low, top = (
                convert_to_tensor(minval, number_type, name="min"),
                convert_to_tensor(high, number_type, name="max"),
            )
            result: Tensor = raw.RandomUniformInt(dims, low, top, seed=seed1, seed2=seed2, name=scope)
            return result
        numbers = raw.RandomUniform(dims, dtype=number_type, seed=seed1, seed2=seed2)
        return _between(numbers, minval, high, number_type, scope)


def _uniform_arguments(dtype: DTypeLike, maxval: TensorLike) -> tuple[DType, Any]:
    number_type = as_dtype(dtype).base_dtype
    if number_type not in (*dtypes.FLOATING, dtypes.int32, dtypes.int64):
        raise ValueError(f"Invalid dtype {number_type.name}; random_uniform makes floating numbers, int32 and int64")
    if maxval is None:
        if number_type.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {number_type.name}")
        return number_type, 1
    return number_type, maxval


def _between(numbers: Tensor, minval: TensorLike, maxval: TensorLike, dtype: DType, name: str) -> Tensor:
    low, high = convert_to_tensor(minval, dtype, name="min"), convert_to_tensor(maxval, dtype, name="max")
    result: Tensor = raw.Add(raw.Mul(numbers, raw.Sub(high, low, name="sub"), name="mul"), low, name=name)
    return result


def _tensors(*values: TensorLike) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor)]


# ---------------------------------------------------------------------- normal
def random_normal(
    shape: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution.

    Args:
        shape: an integer vector (list or tensor).
        mean, stddev: of the floating type `dtype`, broadcast with `shape`.
        dtype: float16, bfloat16, float32 or float64.
        seed: of this operation; see `set_random_seed`.
        name: of the operation.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Raises:
        TypeError: another dtype.

    Example:
        >>> numbers = sess.run(tf.random_normal([1000], seed=1))
        >>> bool(abs(numbers.mean()) < 0.2)
        True
    """
    return _normal("random_normal", raw.RandomStandardNormal, shape, mean, stddev, dtype, seed, name)


def truncated_normal(
    shape: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution that is cut off at two standard deviations from the mean.

    Args:
        shape: an integer vector (list or tensor).
        mean, stddev: of the normal distribution before it is cut off.
        dtype: float16, bfloat16, float32 or float64.
        seed: of this operation; see `set_random_seed`.
        name: of the operation.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Raises:
        TypeError: another dtype.

    Example:
        >>> numbers = sess.run(tf.truncated_normal([1000], stddev=0.5))
        >>> bool((abs(numbers) <= 1.0).all())
        True
    """
    return _normal("truncated_normal", raw.TruncatedNormal, shape, mean, stddev, dtype, seed, name)


def _normal(
    kind: str,
    op: OpFunction,
    shape: TensorLike,
    mean: TensorLike,
    stddev: TensorLike,
    dtype: DTypeLike,
    seed: int | None,
    name: str | None,
) -> Tensor:
    number_type = as_dtype(dtype).base_dtype
    with name_scope(name, kind, _tensors(shape, mean, stddev)) as scope:
        dims, (seed1, seed2) = _shape_tensor(shape), get_seed(seed)
        numbers = op(dims, dtype=number_type, seed=seed1, seed2=seed2)
        return _scaled(numbers, stddev, mean, number_type, scope, "stddev", "mean")


def parameterized_truncated_normal(
    shape: TensorLike,
    means: TensorLike = 0.0,
    stddevs: TensorLike = 1.0,
    minvals: TensorLike = -2.0,
    maxvals: TensorLike = 2.0,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of normal distributions that are cut off at `minvals` and `maxvals`.

    Args:
        shape: an integer vector; its first dimension counts the distributions.
        means, stddevs, minvals, maxvals: scalars, or one value per distribution.
    """
    number_type = as_dtype(dtype).base_dtype
    with name_scope(name, "parameterized_truncated_normal", _tensors(shape, means, stddevs, minvals, maxvals)) as scope:
        dims, (seed1, seed2) = _shape_tensor(shape), get_seed(seed)
        given = zip((means, stddevs, minvals, maxvals), ("means", "stddevs", "minvals", "maxvals"), strict=True)
        parameters = [convert_to_tensor(value, number_type, name=label) for value, label in given]
        result: Tensor = raw.ParameterizedTruncatedNormal(dims, *parameters, seed=seed1, seed2=seed2, name=scope)
        return result


# ---------------------------------------------------------------------- gamma and Poisson
def random_gamma(
    shape: TensorLike,
    alpha: TensorLike,
    beta: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of gamma distributions, differentiable by `alpha` and `beta`.

    Args:
        shape: how many numbers to draw from each distribution.
        alpha: the shape parameters, of dtype `dtype`.
        beta: the inverse scales, broadcast with `alpha`; default: 1.

    Returns:
        shape + the broadcast shape of alpha and beta; never zero.
    """
    number_type = as_dtype(dtype).base_dtype
    with name_scope(name, "random_gamma", _tensors(shape, alpha, beta)) as scope:
        dims, (seed1, seed2) = _shape_tensor(shape), get_seed(seed)
        concentration = convert_to_tensor(alpha, number_type, name="alpha")
        rate = convert_to_tensor(1 if beta is None else beta, number_type, name="beta")
        concentration = raw.AddV2(concentration, raw.ZerosLike(rate))
        numbers = raw.RealDiv(raw.RandomGamma(dims, concentration, seed=seed1, seed2=seed2), rate)
        smallest = np.finfo(number_type.as_numpy_dtype).tiny
        result: Tensor = raw.Maximum(np.array(smallest, number_type.as_numpy_dtype), numbers, name=scope)
        return result


def random_poisson(
    lam: TensorLike,
    shape: TensorLike,
    dtype: DTypeLike = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of Poisson distributions.

    Args:
        lam: the rates; floating, or int32 or int64.
        shape: how many numbers to draw from each distribution.
        dtype: of the result: floating, int32 or int64.

    Returns:
        shape + lam.shape
    """
    with name_scope(name, "random_poisson", _tensors(lam, shape)) as scope:
        dims, (seed1, seed2) = _shape_tensor(shape), get_seed(seed)
        rate = convert_to_tensor(lam, name="lam")
        result: Tensor = raw.RandomPoissonV2(dims, rate, dtype=dtype, seed=seed1, seed2=seed2, name=scope)
        return result


# ---------------------------------------------------------------------- choices
def random_shuffle(value: TensorLike, seed: int | None = None, name: str | None = None) -> Tensor:
    """`value` with its first dimension in random order.

    Args:
        value: a tensor of any dtype, of rank 1 or more.
        seed: of this operation; see `set_random_seed`.
        name: of the operation.

    Returns:
        A tensor of the dtype and shape of `value`.

    Raises:
        TypeError: `value` cannot be converted to a tensor.

    Example:
        >>> sorted(sess.run(tf.random_shuffle([1, 2, 3])).tolist())
        [1, 2, 3]
    """
    seed1, seed2 = get_seed(seed)
    result: Tensor = raw.RandomShuffle(value, seed=seed1, seed2=seed2, name=name)
    return result


def multinomial(
    logits: TensorLike,
    num_samples: TensorLike,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: DTypeLike | None = None,
) -> Tensor:
    """Classes drawn with replacement.

    Args:
        logits: [batch, classes]: the logarithms of the classes' probabilities, up to a constant.
        num_samples: how many to draw for each row, an integer scalar.
        seed: of this operation; see `set_random_seed`.
        name: of the operation.
        output_dtype: int32 or int64 (default).

    Returns:
        [batch, num_samples]

    Raises:
        ValueError: `logits` is no matrix.

    Example:
        >>> sess.run(tf.multinomial([[0.0, -1e9]], num_samples=3))
        array([[0, 0, 0]])
    """
    return _drawn("multinomial", logits, num_samples, output_dtype, seed, name)


def categorical(
    logits: TensorLike,
    num_samples: TensorLike,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Classes drawn with replacement; see `multinomial`."""
    return _drawn("categorical", logits, num_samples, dtype, seed, name)


def _drawn(
    kind: str, logits: TensorLike, num_samples: TensorLike, dtype: DTypeLike | None, seed: int | None, name: str | None
) -> Tensor:
    with name_scope(name, kind, _tensors(logits)):
        weights = convert_to_tensor(logits, name="logits")
        seed1, seed2 = get_seed(seed)
        result: Tensor = raw.Multinomial(weights, num_samples, seed=seed1, seed2=seed2, output_dtype=dtype)
        return result


# ---------------------------------------------------------------------- stateless
def stateless_random_uniform(
    shape: TensorLike,
    seed: TensorLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Numbers uniform in [minval, maxval) that follow from `seed`; see `random_uniform`."""
    number_type, high = _uniform_arguments(dtype, maxval)
    with name_scope(name, "stateless_random_uniform", _tensors(shape, seed, minval, high)) as scope:
        dims = _shape_tensor(shape)
        if number_type.is_integer:
            low, top = (
                convert_to_tensor(minval, number_type, name="min"),
                convert_to_tensor(high, number_type, name="max"),
            )
            result: Tensor = raw.StatelessRandomUniformInt(dims, seed, low, top, name=scope)
            return result
        return _between(raw.StatelessRandomUniform(dims, seed, dtype=number_type), minval, high, number_type, scope)


def stateless_random_normal(
    shape: TensorLike,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution that follow from `seed`; see `random_normal`."""
    return _stateless_normal(
        "stateless_random_normal", raw.StatelessRandomNormal, shape, seed, mean, stddev, dtype, name
    )


def stateless_truncated_normal(
    shape: TensorLike,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Numbers of a truncated normal distribution that follow from `seed`; see `truncated_normal`."""
    op = raw.StatelessTruncatedNormal
    return _stateless_normal("stateless_truncated_normal", op, shape, seed, mean, stddev, dtype, name)


def _stateless_normal(
    kind: str,
    op: OpFunction,
    shape: TensorLike,
    seed: TensorLike,
    mean: TensorLike,
    stddev: TensorLike,
    dtype: DTypeLike,
    name: str | None,
) -> Tensor:
    number_type = as_dtype(dtype).base_dtype
    with name_scope(name, kind, _tensors(shape, seed, mean, stddev)) as scope:
        numbers = op(_shape_tensor(shape), seed, dtype=number_type)
        return _scaled(numbers, stddev, mean, number_type, scope, "stddev", "mean")


stateless_uniform = stateless_random_uniform
stateless_normal = stateless_random_normal


def stateless_multinomial(
    logits: TensorLike,
    num_samples: TensorLike,
    seed: TensorLike,
    output_dtype: DTypeLike = dtypes.int64,
    name: str | None = None,
) -> Tensor:
    """Classes that follow from `seed`; see `multinomial`."""
    with name_scope(name, "stateless_multinomial", _tensors(logits, seed)):
        result: Tensor = raw.StatelessMultinomial(logits, num_samples, seed, output_dtype=output_dtype)
        return result


def stateless_categorical(
    logits: TensorLike,
    num_samples: TensorLike,
    seed: TensorLike,
    dtype: DTypeLike = dtypes.int64,
    name: str | None = None,
) -> Tensor:
    """Classes that follow from `seed`; see `multinomial`."""
    return stateless_multinomial(logits, num_samples, seed, dtype, name)
