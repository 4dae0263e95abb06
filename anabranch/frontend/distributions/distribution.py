"""What all distributions have in common: public methods that check, name and shape what the subclasses compute.

A distribution's *parameters* broadcast to its *batch shape*: one distribution for each element. A sample of one of
them has the *event shape*. `sample(n)` has the shape n + batch shape + event shape.

A subclass implements what it can of `_sample_n`, `_log_prob` or `_prob`, `_log_cdf` or `_cdf`, `_mean`, `_variance` or
`_stddev` and so on; what is missing is derived where it can be, and raises NotImplementedError elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arithmetic.elementwise import equal, exp, log, log1p, sqrt, square
from anabranch.frontend.arithmetic.reduction import reduce_prod
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.shapes import reshape, shape as shape_of, size
from anabranch.frontend.distributions.divergences import cross_entropy, kl_divergence
from anabranch.frontend.framework import get_static_value, name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor


class ReparameterizationType:
    """Whether gradients flow through samples into a distribution's parameters. Equal are only the same."""

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameterization Type: {self._rep_type}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


class Distribution:
    """The base class of distributions.

    Args:
        dtype: of samples.
        reparameterization_type: `FULLY_REPARAMETERIZED` where gradients flow through samples, or
            `NOT_REPARAMETERIZED`.
        validate_args: check in every step that parameters and values are valid.
        allow_nan_stats: a statistic that does not exist is NaN (True) or an error in the step (False).
        parameters: the arguments of the subclass, for `copy`.
        graph_parents: the tensors that the distribution is made of.
        name: the scope of its operations.

    Raises:
        ValueError: a graph parent is not a tensor.
    """

    #: the parameters of which a sample has the shape; see `param_shapes`
    _scalar_parameters: tuple[str, ...] = ()

    def __init__(
        self,
        dtype: DTypeLike,
        reparameterization_type: ReparameterizationType,
        validate_args: bool,
        allow_nan_stats: bool,
        parameters: Mapping[str, Any] | None = None,
        graph_parents: list[Any] | None = None,
        name: str | None = None,
    ) -> None:
        self._graph_parents = list(graph_parents or [])
        for i, parent in enumerate(self._graph_parents):
            if not isinstance(parent, Tensor):
                raise ValueError(f"graph parent item {i} is not a Tensor; {parent!r}.")
        if not name or not name.endswith("/"):
            with name_scope(name or type(self).__name__) as name:
                pass
        self._name = name
        self._dtype = as_dtype(dtype)
        self._reparameterization_type = reparameterization_type
        self._validate_args = validate_args
        self._allow_nan_stats = allow_nan_stats
        self._parameters = dict(parameters or {})

    # ------------------------------------------------------------------ what it is
    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return dict(self._parameters)

    @property
    def reparameterization_type(self) -> ReparameterizationType:
        return self._reparameterization_type

    @property
    def allow_nan_stats(self) -> bool:
        return self._allow_nan_stats

    @property
    def validate_args(self) -> bool:
        return self._validate_args

    def __str__(self) -> str:
        return (
            f'tfp.distributions.{type(self).__name__}("{self.name}"{self._shape_texts(", ")}, dtype={self.dtype.name})'
        )

    def __repr__(self) -> str:
        return (
            f"<tfp.distributions.{type(self).__name__} '{self.name}' batch_shape={self.batch_shape}"
            f" event_shape={self.event_shape} dtype={self.dtype.name}>"
        )

    def _shape_texts(self, separator: str) -> str:
        shapes = [("batch_shape", self.batch_shape), ("event_shape", self.event_shape)]
        return "".join(f"{separator}{name}={shape}" for name, shape in shapes if shape.ndims is not None)

    def copy(self, **override_parameters_kwargs: PassedOn) -> Self:
        """Another one like this, with some arguments replaced."""
        return type(self)(**{**self.parameters, **override_parameters_kwargs})

    @classmethod
    def param_shapes(cls, sample_shape: TensorLike, name: str = "DistributionParamShapes") -> dict[str, Tensor]:
        """The shape of each parameter for which `sample()` has the shape `sample_shape`, as int32 vectors."""
        with name_scope(name, values=[sample_shape]):
            return cls._param_shapes(sample_shape)

    @classmethod
    def param_static_shapes(cls, sample_shape: TensorLike) -> dict[str, TensorShape]:
        """Like `param_shapes`, with static shapes.

        Raises:
            ValueError: `sample_shape` is a tensor whose value is not known while the graph is built.
        """
        if isinstance(sample_shape, Tensor):
            value = get_static_value(sample_shape)
            if value is None:
                raise ValueError("sample_shape must be a fully-defined TensorShape or constant Tensor")
            sample_shape = value.tolist()
        elif isinstance(sample_shape, TensorShape) and not sample_shape.is_fully_defined():
            raise ValueError("TensorShape sample_shape must be fully defined")
        shapes = {}
        for parameter, shape in cls.param_shapes(TensorShape(sample_shape).as_list()).items():
            static = get_static_value(shape)
            if static is None:
                raise ValueError("sample_shape must be a fully-defined TensorShape or constant Tensor")
            shapes[parameter] = TensorShape(static.tolist())
        return shapes

    @classmethod
    def _param_shapes(cls, sample_shape: TensorLike) -> dict[str, Tensor]:
        if not cls._scalar_parameters:
            raise NotImplementedError("_param_shapes not implemented")
        shape = convert_to_tensor(sample_shape, dtypes.int32)
        return dict.fromkeys(cls._scalar_parameters, shape)

    # ------------------------------------------------------------------ shapes
    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """int32 vector: the shape of one sample without the event's dimensions."""
        with self._scope(name):
            if self.batch_shape.is_fully_defined():
                return convert_to_tensor(self.batch_shape.as_list(), dtypes.int32, name="batch_shape")
            return self._batch_shape_tensor()

    @property
    def batch_shape(self) -> TensorShape:
        """The batch shape as far as it is known while the graph is built."""
        return TensorShape(self._batch_shape())

    def event_shape_tensor(self, name: str = "event_shape_tensor") -> Tensor:
        """int32 vector: the shape of one sample of one distribution of the batch."""
        with self._scope(name):
            if self.event_shape.is_fully_defined():
                return convert_to_tensor(self.event_shape.as_list(), dtypes.int32, name="event_shape")
            return self._event_shape_tensor()

    @property
    def event_shape(self) -> TensorShape:
        """The event shape as far as it is known while the graph is built."""
        return TensorShape(self._event_shape())

    def is_scalar_event(self, name: str = "is_scalar_event") -> Tensor:
        """Bool []: whether an event is a single number."""
        with self._scope(name):
            return _is_scalar(self.event_shape, self.event_shape_tensor)

    def is_scalar_batch(self, name: str = "is_scalar_batch") -> Tensor:
        """Bool []: whether this is one distribution."""
        with self._scope(name):
            return _is_scalar(self.batch_shape, self.batch_shape_tensor)

    def _batch_shape(self) -> Any:
        return TensorShape(None)

    def _event_shape(self) -> Any:
        return TensorShape(None)

    def _batch_shape_tensor(self) -> Tensor:
        raise NotImplementedError(f"batch_shape_tensor is not implemented: {type(self).__name__}")

    def _event_shape_tensor(self) -> Tensor:
        raise NotImplementedError(f"event_shape_tensor is not implemented: {type(self).__name__}")

    # ------------------------------------------------------------------ samples
    def sample(self, sample_shape: TensorLike = (), seed: int | None = None, name: str = "sample") -> Tensor:
        """Samples of shape `sample_shape` + batch shape + event shape.

        Args:
            sample_shape: an integer, a shape, or an integer vector.
            seed: see `tf.set_random_seed`.
        """
        with self._scope(name, [sample_shape]):
            dims = sample_shape.as_list() if isinstance(sample_shape, TensorShape) else sample_shape
            vector = reshape(convert_to_tensor(dims, dtypes.int32, name="sample_shape"), [-1])
            samples = self._sample_n(reduce_prod(vector), seed)
            batch_event_shape = shape_of(samples)[1:]
            samples = reshape(samples, concat([vector, batch_event_shape], 0))
            return self._with_static_shape(samples, vector)

    def _with_static_shape(self, samples: Tensor, sample_shape: Tensor) -> Tensor:
        value = get_static_value(sample_shape)
        count = sample_shape.shape[0].value if sample_shape.shape.ndims else None
        leading = TensorShape([None] * count if count is not None else None)
        if value is not None:
            leading = TensorShape(value.tolist())
        samples.set_shape(leading.concatenate(self.batch_shape).concatenate(self.event_shape))
        return samples

    def _sample_n(self, n: Tensor, seed: int | None) -> Tensor:
        raise self._missing("sample_n")

    # ------------------------------------------------------------------ densities
    def log_prob(self, value: TensorLike, name: str = "log_prob") -> Tensor:
        """The logarithm of the density, or of the probability of a discrete value."""
        return self._of_value(name, value, [(self._log_prob, None), (self._prob, log)])

    def prob(self, value: TensorLike, name: str = "prob") -> Tensor:
        """The density, or the probability of a discrete value."""
        return self._of_value(name, value, [(self._prob, None), (self._log_prob, exp)])

    def log_cdf(self, value: TensorLike, name: str = "log_cdf") -> Tensor:
        """The logarithm of P(X <= value)."""
        return self._of_value(name, value, [(self._log_cdf, None), (self._cdf, log)])

    def cdf(self, value: TensorLike, name: str = "cdf") -> Tensor:
        """P(X <= value)."""
        return self._of_value(name, value, [(self._cdf, None), (self._log_cdf, exp)])

    def log_survival_function(self, value: TensorLike, name: str = "log_survival_function") -> Tensor:
        """The logarithm of P(X > value)."""
        forms = [(self._log_survival_function, None), (self._cdf, lambda p: log1p(-p))]
        return self._of_value(name, value, [*forms, (self._log_cdf, lambda p: log1p(-exp(p)))])

    def survival_function(self, value: TensorLike, name: str = "survival_function") -> Tensor:
        """P(X > value)."""
        forms = [(self._survival_function, None), (self._cdf, lambda p: 1.0 - p)]
        return self._of_value(name, value, [*forms, (self._log_cdf, lambda p: 1.0 - exp(p))])

    def quantile(self, value: TensorLike, name: str = "quantile") -> Tensor:
        """The x for which P(X <= x) = value."""
        return self._of_value(name, value, [(self._quantile, None)])

    def _of_value(
        self, name: str, value: TensorLike, forms: list[tuple[Any, Callable[[Tensor], Tensor] | None]]
    ) -> Tensor:
        """The first of the forms that the subclass implements, applied to the value."""
        with self._scope(name, [value]):
            value = self._value_tensor(value)
            return _first_implemented(forms, value)

    def _value_tensor(self, value: TensorLike) -> Tensor:
        return convert_to_tensor(value, name="value", preferred_dtype=self.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        raise self._missing("log_prob")

    def _prob(self, value: Tensor) -> Tensor:
        raise self._missing("prob")

    def _log_cdf(self, value: Tensor) -> Tensor:
        raise self._missing("log_cdf")

    def _cdf(self, value: Tensor) -> Tensor:
        raise self._missing("cdf")

    def _log_survival_function(self, value: Tensor) -> Tensor:
        raise self._missing("log_survival_function")

    def _survival_function(self, value: Tensor) -> Tensor:
        raise self._missing("survival_function")

    def _quantile(self, value: Tensor) -> Tensor:
        raise self._missing("quantile")

    # ------------------------------------------------------------------ statistics
    def entropy(self, name: str = "entropy") -> Tensor:
        """Shannon's entropy in nats."""
        return self._statistic(name, [(self._entropy, None)])

    def mean(self, name: str = "mean") -> Tensor:
        """The expectation."""
        return self._statistic(name, [(self._mean, None)])

    def variance(self, name: str = "variance") -> Tensor:
        """The variance of each element of an event."""
        return self._statistic(name, [(self._variance, None), (self._stddev, square)])

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation of each element of an event."""
        return self._statistic(name, [(self._stddev, None), (self._variance, sqrt)])

    def covariance(self, name: str = "covariance") -> Tensor:
        """The covariance matrix of an event that is a vector."""
        return self._statistic(name, [(self._covariance, None)])

    def mode(self, name: str = "mode") -> Tensor:
        """The most probable value."""
        return self._statistic(name, [(self._mode, None)])

    def _statistic(self, name: str, forms: list[tuple[Any, Callable[[Tensor], Tensor] | None]]) -> Tensor:
        with self._scope(name):
            return _first_implemented(forms)

    def _entropy(self) -> Tensor:
        raise self._missing("entropy")

    def _mean(self) -> Tensor:
        raise self._missing("mean")

    def _variance(self) -> Tensor:
        raise self._missing("variance")

    def _stddev(self) -> Tensor:
        raise self._missing("stddev")

    def _covariance(self) -> Tensor:
        raise self._missing("covariance")

    def _mode(self) -> Tensor:
        raise self._missing("mode")

    # ------------------------------------------------------------------ two distributions
    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Tensor:
        """The cross entropy of this and another distribution: their divergence plus this one's entropy."""
        with self._scope(name):
            result: Tensor = cross_entropy(self, other, allow_nan_stats=self.allow_nan_stats)
            return result

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Tensor:
        """Kullback and Leibler's divergence of this from another distribution; see `kl_divergence`."""
        with self._scope(name):
            return kl_divergence(self, other, allow_nan_stats=self.allow_nan_stats)

    # ------------------------------------------------------------------ helpers
    @contextlib.contextmanager
    def _scope(self, name: str, values: list[Any] | None = None) -> Iterator[str]:
        with name_scope(self.name), name_scope(name, values=[*(values or []), *self._graph_parents]) as scope:
            yield scope

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{what} is not implemented: {type(self).__name__}")


def _first_implemented(forms: list[tuple[Any, Callable[[Tensor], Tensor] | None]], *arguments: Tensor) -> Tensor:
    """Calls the forms in order until one is implemented; raises what the first raised if none is."""
    first: NotImplementedError | None = None
    for method, transform in forms:
        try:
            result: Tensor = method(*arguments)
        except NotImplementedError as error:
            first = first or error
            continue
        return result if transform is None else transform(result)
    assert first is not None
    raise first


def _is_scalar(static: TensorShape, dynamic: Callable[[], Tensor]) -> Tensor:
    if static.ndims is not None:
        return convert_to_tensor(static.ndims == 0, name="is_scalar")
    scalar: Tensor = equal(size(dynamic()), 0, name="is_scalar")
    return scalar
