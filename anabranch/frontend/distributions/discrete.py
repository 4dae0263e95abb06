"""Distributions over classes and counts: Bernoulli, categorical, multinomial, Dirichlet-multinomial."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import log, sqrt, square
from anabranch.frontend.arithmetic.math import lbeta
from anabranch.frontend.arithmetic.random import multinomial, random_gamma, random_uniform
from anabranch.frontend.arithmetic.reduction import argmax, reduce_max, reduce_sum
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.constants import one_hot, ones_like
from anabranch.frontend.arrays.gathering import sequence_mask
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.layout import transpose
from anabranch.frontend.arrays.shapes import (
    broadcast_dynamic_shape,
    broadcast_static_shape,
    broadcast_to,
    expand_dims,
    reshape,
    shape as shape_of,
)
from anabranch.frontend.control_flow.checks import assert_less_equal, assert_non_negative
from anabranch.frontend.control_flow.grouping import with_dependencies
from anabranch.frontend.distributions.distribution import NOT_REPARAMETERIZED, Distribution
from anabranch.frontend.distributions.divergences import RegisterKL
from anabranch.frontend.distributions.gammas import vector_concentration
from anabranch.frontend.distributions.parameters import (
    ScalarDistribution,
    check_counts,
    derived_seed,
    floating_parameters,
    integer_like,
    log_combinations,
    logits_and_probs,
    options,
    vector_covariance,
)
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.activations import log_softmax, softmax, softplus
from anabranch.frontend.nn.cross_entropies import (
    sigmoid_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor


class Bernoulli(ScalarDistribution):
    """1 with probability `probs`, else 0.

    Args:
        logits: log(probs / (1 - probs)); or
        probs: in [0, 1].
        dtype: of samples.

    Raises:
        ValueError: both or none of `logits` and `probs` are given.
    """

    _scalar_parameters = ("logits",)

    def __init__(
        self,
        logits: TensorLike | None = None,
        probs: TensorLike | None = None,
        dtype: DTypeLike = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bernoulli",
    ) -> None:
        given = {"logits": logits, "probs": probs, "dtype": dtype}
        parameters = {**given, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, False, validate_args, "Bernoulli")
        parents = [self._logits, self._probs]
        super().__init__(dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def logits(self) -> Tensor:
        return self._logits

    @property
    def probs(self) -> Tensor:
        return self._probs

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        shape = concat([[n], self.batch_shape_tensor()], 0)
        uniform = random_uniform(shape, seed=seed, dtype=self._probs.dtype)
        return cast(uniform < self._probs, self.dtype)

    def _log_prob(self, value: Tensor) -> Any:
        if self.validate_args:
            value = _zero_or_one(value)
        event = cast(value, self._logits.dtype)
        whole = broadcast_dynamic_shape(shape_of(event), shape_of(self._logits))
        labels, logits = broadcast_to(event, whole), broadcast_to(self._logits, whole)
        static = broadcast_static_shape(event.shape, self._logits.shape)
        for tensor in (labels, logits):
            tensor.set_shape(static)
        return -sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _entropy(self) -> Any:
        return softplus(-self._logits) + (1.0 - self._probs) * self._logits

    def _mean(self) -> Any:
        return self._probs + 0.0

    def _variance(self) -> Any:
        return self._probs * (1.0 - self._probs)

    def _mode(self) -> Any:
        return cast(self._probs > 0.5, self.dtype)


@RegisterKL(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(a: Bernoulli, b: Bernoulli, name: str | None = None) -> Any:
    with name_scope(name, "kl_bernoulli_bernoulli", [a.logits, b.logits]):
        zero = softplus(-b.logits) - softplus(-a.logits)
        one = softplus(b.logits) - softplus(a.logits)
        return zero * a.probs + one * (1.0 - a.probs)


def _zero_or_one(value: Tensor) -> Tensor:
    checks = [
        assert_non_negative(value, message="Elements must be non-negative."),
        assert_less_equal(value, ones_like(value), message="Elements cannot exceed 1."),
    ]
    if value.dtype.is_floating:
        checks.append(integer_like(value, "Elements cannot contain fractional components."))
    return with_dependencies(checks, value)


class Categorical(Distribution):
    """One of `classes` numbers, with the probabilities softmax(logits).

    Args:
        logits: [..., classes]; or
        probs: [..., classes], which sum to 1.
        dtype: of samples.

    Raises:
        ValueError: both or none of `logits` and `probs` are given.
    """

    def __init__(
        self,
        logits: TensorLike | None = None,
        probs: TensorLike | None = None,
        dtype: DTypeLike = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Categorical",
    ) -> None:
        given = {"logits": logits, "probs": probs, "dtype": dtype}
        parameters = {**given, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[logits, probs]) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, True, validate_args, "Categorical")
            self._shape = shape_of(self._logits, name="batch_shape")
        parents = [self._logits, self._probs]
        super().__init__(dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def event_size(self) -> Tensor:
        """int32 []: the number of classes."""
        size = self._logits.shape.with_rank_at_least(1)[-1].value
        if size is not None:
            return convert_to_tensor(size, dtypes.int32, name="event_size")
        count: Tensor = self._shape[-1]
        return count

    @property
    def logits(self) -> Tensor:
        return self._logits

    @property
    def probs(self) -> Tensor:
        return self._probs

    def _batch_shape(self) -> TensorShape:
        return self._logits.shape[:-1]

    def _batch_shape_tensor(self) -> Tensor:
        batch_shape: Tensor = self._shape[:-1]
        return batch_shape

    def _event_shape(self) -> TensorShape:
        return TensorShape([])

    def _event_shape_tensor(self) -> Tensor:
        return convert_to_tensor([], dtypes.int32)

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        rows = reshape(self._logits, [-1, self.event_size])
        kind = dtypes.int64 if self.dtype.size > 4 else dtypes.int32
        drawn = multinomial(rows, n, seed=seed, output_dtype=kind)
        shape = concat([[n], self.batch_shape_tensor()], 0)
        return cast(reshape(transpose(drawn), shape), self.dtype)

    def _cdf(self, value: Tensor) -> Tensor:
        """The sum of the probabilities of the classes below `value`."""
        events, probs = _broadcast_events(value, self._probs)
        below = sequence_mask(events, shape_of(probs)[-1], dtype=probs.dtype)
        return reduce_sum(below * probs, -1)

    def _log_prob(self, value: Tensor) -> Any:
        events, logits = _broadcast_events(value, self._logits)
        return -sparse_softmax_cross_entropy_with_logits(labels=events, logits=logits)

    def _entropy(self) -> Any:
        return -reduce_sum(log_softmax(self._logits) * self._probs, -1)

    def _mode(self) -> Any:
        return cast(argmax(self._logits, -1), self.dtype)


@RegisterKL(Categorical, Categorical)
def _kl_categorical_categorical(a: Categorical, b: Categorical, name: str | None = None) -> Tensor:
    with name_scope(name, "kl_categorical_categorical", [a.logits, b.logits]):
        return reduce_sum(softmax(a.logits) * (log_softmax(a.logits) - log_softmax(b.logits)), -1)


def _broadcast_events(value: Tensor, parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Classes int32 [...] and parameters [..., classes], broadcast so that they go together."""
    events = cast(value, dtypes.int32)
    static = broadcast_static_shape(events.shape, parameter.shape[:-1])
    if static.is_fully_defined() and events.shape == static and parameter.shape[:-1] == static:
        return events, parameter
    shape = shape_of(parameter)
    whole = broadcast_dynamic_shape(shape_of(events), shape[:-1])
    events, wide = broadcast_to(events, whole), broadcast_to(parameter, concat([whole, shape[-1:]], 0))
    events.set_shape(static)
    wide.set_shape(static.concatenate(parameter.shape[-1:]))
    return events, wide


class Multinomial(Distribution):
    """How often each class is drawn when `total_count` things are drawn with the probabilities of a `Categorical`.

    Args:
        total_count: floating, [...]; broadcasts with the classes' batch shape.
        logits: [..., classes]; or
        probs: [..., classes], which sum to 1.

    Raises:
        ValueError: both or none of `logits` and `probs` are given.
    """

    def __init__(
        self,
        total_count: TensorLike,
        logits: TensorLike | None = None,
        probs: TensorLike | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Multinomial",
    ) -> None:
        given = {"total_count": total_count, "logits": logits, "probs": probs}
        parameters = {**given, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[total_count, logits, probs]) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, True, validate_args, name)
            count = convert_to_tensor(total_count, name="total_count", preferred_dtype=self._probs.dtype)
            self._total_count = _valid_total(count, validate_args)
            self._mean_value = expand_dims(self._total_count, -1) * self._probs
        parents = [self._total_count, self._logits, self._probs]
        dtype = self._probs.dtype
        super().__init__(dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def total_count(self) -> Tensor:
        return self._total_count

    @property
    def logits(self) -> Tensor:
        return self._logits

    @property
    def probs(self) -> Tensor:
        return self._probs

    def _batch_shape(self) -> Any:
        return self._mean_value.shape.with_rank_at_least(1)[:-1]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self._mean_value)[:-1]

    def _event_shape(self) -> Any:
        return self._mean_value.shape.with_rank_at_least(1)[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self._mean_value)[-1:]

    def _sample_n(self, n: Tensor, seed: int | None) -> Tensor:
        whole = self.batch_shape_tensor()
        logits = broadcast_to(self._logits, concat([whole, self.event_shape_tensor()], 0))
        return _drawn_counts(logits, broadcast_to(self._total_count, whole), n, self.dtype, seed)

    def _value_tensor(self, value: TensorLike) -> Tensor:
        return check_counts(super()._value_tensor(value), self._total_count, self.validate_args)

    def _log_prob(self, value: Tensor) -> Any:
        unnormalized = reduce_sum(value * log_softmax(self._logits), -1)
        return unnormalized + log_combinations(self._total_count, value)

    def _mean(self) -> Any:
        return identity(self._mean_value)

    def _covariance(self) -> Tensor:
        probs = self._probs * ones_like(self._mean_value)
        return vector_covariance(self._mean_value, probs, self._variance())

    def _variance(self) -> Any:
        return self._mean_value * (1.0 - self._probs)


class DirichletMultinomial(Distribution):
    """How often each class is drawn when the probabilities are themselves drawn from a Dirichlet distribution.

    Args:
        total_count: floating, [...]; broadcasts with the batch shape of `concentration`.
        concentration: [..., classes], above 0.
    """

    def __init__(
        self,
        total_count: TensorLike,
        concentration: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DirichletMultinomial",
    ) -> None:
        given = {"total_count": total_count, "concentration": concentration}
        parameters = {**given, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[total_count, concentration]) as scope:
            (parameter,) = floating_parameters(concentration=concentration)
            self._concentration = vector_concentration(parameter, validate_args)
            count = convert_to_tensor(total_count, name="total_count", preferred_dtype=parameter.dtype)
            self._total_count = _valid_total(count, validate_args)
            self._total_concentration = reduce_sum(self._concentration, -1)
            self._batch_like = self._total_count + 0.0 * self._total_concentration
        parents = [self._total_count, self._concentration]
        dtype = parameter.dtype
        super().__init__(dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def total_count(self) -> Tensor:
        return self._total_count

    @property
    def concentration(self) -> Tensor:
        return self._concentration

    @property
    def total_concentration(self) -> Tensor:
        return self._total_concentration

    def _batch_shape(self) -> Any:
        return self._batch_like.shape

    def _batch_shape_tensor(self) -> Tensor:
        return shape_of(self._batch_like)

    def _event_shape(self) -> TensorShape:
        return self._concentration.shape.with_rank_at_least(1)[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self._concentration)[-1:]

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        whole = self.batch_shape_tensor()
        shape = concat([whole, self.event_shape_tensor()], 0)
        gamma = random_gamma([n], broadcast_to(self._concentration, shape), dtype=self.dtype, seed=seed)
        # each sample has probabilities of its own, so that each draws one set of counts
        totals = broadcast_to(self._total_count, concat([[n], whole], 0))
        counts = _drawn_counts(log(gamma), totals, 1, self.dtype, derived_seed(seed, "dirichlet_multinomial"))
        return counts[0]

    def _value_tensor(self, value: TensorLike) -> Tensor:
        counts = super()._value_tensor(value)
        return check_counts(counts, self._total_count, self.validate_args, "counts last-dimension")

    def _log_prob(self, value: Tensor) -> Any:
        ordered = lbeta(self._concentration + value) - lbeta(self._concentration)
        return ordered + log_combinations(self._total_count, value)

    def _mean(self) -> Any:
        return expand_dims(self._batch_like, -1) * (self._concentration / expand_dims(self._total_concentration, -1))

    def _covariance(self) -> Tensor:
        scale, mean = self._scale_of_variance(), self._mean()
        probs = self._concentration / expand_dims(self._total_concentration, -1)
        return vector_covariance(square(scale) * mean, probs * ones_like(mean), self._variance())

    def _variance(self) -> Any:
        mean = self._mean()
        return square(self._scale_of_variance()) * mean * (1.0 - mean / expand_dims(self._batch_like, -1))

    def _scale_of_variance(self) -> Any:
        """The standard deviation relative to that of a multinomial distribution."""
        total = expand_dims(self._total_concentration, -1)
        return sqrt((expand_dims(self._batch_like, -1) + total) / (1.0 + total))


def _valid_total(count: Tensor, validate_args: bool) -> Tensor:
    if not validate_args:
        return count
    checks = [
        assert_non_negative(count, message="total_count must be non-negative."),
        integer_like(count, "total_count cannot contain fractional components."),
    ]
    return with_dependencies(checks, count)


def _drawn_counts(logits: Tensor, totals: Tensor, n: TensorLike, dtype: DType, seed: int | None) -> Tensor:
    """How often each class is drawn: [n] + logits' shape, where `totals` has logits' shape without the classes.

    All rows draw as often as the one that draws most; what a row draws beyond its own total is not counted.
    """
    shape, classes = shape_of(logits), shape_of(logits)[-1]
    most = cast(reduce_max(totals), dtypes.int32)
    drawn = multinomial(reshape(logits, [-1, classes]), n * most, seed=seed)
    drawn = reshape(drawn, [-1, n, most])
    counted = sequence_mask(cast(reshape(totals, [-1, 1]), dtypes.int32), most, dtype=dtype)
    counts = reduce_sum(one_hot(drawn, classes, dtype=dtype) * expand_dims(counted, -1), 2)
    return reshape(transpose(counts, [1, 0, 2]), concat([[n], shape], 0))
