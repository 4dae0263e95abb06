"""Parameters of distributions: converted, checked, and in the two forms that those of discrete distributions have."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import floor, lgamma, log, log1p, sigmoid
from anabranch.frontend.arithmetic.linalg import matmul
from anabranch.frontend.arithmetic.reduction import reduce_sum
from anabranch.frontend.arrays.constants import ones_like
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.arrays.rearranging import matrix_set_diag
from anabranch.frontend.arrays.shapes import (
    broadcast_dynamic_shape,
    broadcast_static_shape,
    expand_dims,
    shape as shape_of,
)
from anabranch.frontend.control_flow.checks import (
    assert_equal,
    assert_less_equal,
    assert_near,
    assert_non_negative,
    assert_positive,
)
from anabranch.frontend.control_flow.grouping import with_dependencies
from anabranch.frontend.distributions.distribution import Distribution
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.activations import softmax
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor


class ScalarDistribution(Distribution):
    """A distribution of numbers: its batch shape is what its parameters broadcast to."""

    _graph_parents: list[Tensor]

    def _batch_shape(self) -> TensorShape:
        batch_shape = TensorShape([])
        for parameter in self._graph_parents:
            batch_shape = broadcast_static_shape(batch_shape, parameter.shape)
        return batch_shape

    def _batch_shape_tensor(self) -> Tensor:
        batch_shape = shape_of(self._graph_parents[0])
        for parameter in self._graph_parents[1:]:
            batch_shape = broadcast_dynamic_shape(batch_shape, shape_of(parameter))
        return batch_shape

    def _event_shape(self) -> TensorShape:
        return TensorShape([])

    def _event_shape_tensor(self) -> Tensor:
        return convert_to_tensor([], dtypes.int32)


def floating_parameters(**values: TensorLike) -> list[Tensor]:
    """Parameters as tensors of one floating dtype: that of the first one that has a dtype, else float32."""
    wanted = next((v.dtype for v in values.values() if hasattr(v, "dtype")), None)
    common = dtypes.as_dtype(wanted).base_dtype if wanted is not None else dtypes.float32
    preferred = common if common.is_floating else dtypes.float32
    return [identity(convert_to_tensor(v, name=n, preferred_dtype=preferred), name=n) for n, v in values.items()]


def derived_seed(seed: int | None, salt: str) -> int | None:
    """Another seed, which `seed` and a string decide, for a second source of numbers."""
    if seed is None:
        return None
    mixed = seed & 0xFFFFFFFF
    for character in salt:
        mixed = (mixed * 16777619 ^ ord(character)) & 0xFFFFFFFF
    return mixed & 0x7FFFFFFF


def options(validate_args: bool, allow_nan_stats: bool, name: str) -> dict[str, Any]:
    """The arguments that all distributions have, as `Distribution.parameters` lists them."""
    return {"validate_args": validate_args, "allow_nan_stats": allow_nan_stats, "name": name}


def positive(parameter: Tensor, validate_args: bool) -> Tensor:
    """The parameter, which must be above 0."""
    return with_dependencies([assert_positive(parameter)], parameter) if validate_args else parameter


def integer_like(value: Tensor, message: str) -> Any:
    """Asserts that there are no fractions."""
    return assert_equal(value, floor(value), message=message)


def check_counts(counts: Tensor, total_count: Tensor, validate_args: bool, what: str = "counts") -> Tensor:
    """The counts, which must be whole numbers that sum to the total."""
    if not validate_args:
        return counts
    checks = [
        assert_non_negative(counts, message="counts must be non-negative."),
        integer_like(counts, "counts cannot contain fractional components."),
        assert_equal(total_count, reduce_sum(counts, -1), message=f"{what} must sum to `self.total_count`"),
    ]
    return with_dependencies(checks, counts)


def log_combinations(n: Tensor, counts: Tensor, name: str = "log_combinations") -> Any:
    """The logarithm of the number of ways to put n things into classes of these sizes (the last dimension)."""
    with name_scope(name, values=[n, counts]):
        return lgamma(n + 1.0) - reduce_sum(lgamma(counts + 1.0), -1)


def logits_and_probs(
    logits: TensorLike | None, probs: TensorLike | None, multidimensional: bool, validate_args: bool, name: str
) -> tuple[Tensor, Tensor]:
    """Both forms of a discrete distribution's parameter, from the one that is given.

    Args:
        multidimensional: whether the last dimension holds the classes; otherwise it is the probability of 1.

    Raises:
        ValueError: both or none are given.
    """
    if (probs is None) == (logits is None):
        raise ValueError("Must pass probs or logits, but not both.")
    with name_scope(name, values=[probs, logits]):
        if probs is None:
            (logits,) = floating_parameters(logits=logits)
            return logits, (softmax if multidimensional else sigmoid)(logits, name="probs")
        (probs,) = floating_parameters(probs=probs)
        if validate_args:
            probs = _checked_probs(probs, multidimensional)
        with name_scope("logits"):
            return log(probs) if multidimensional else log(probs) - log1p(-probs), probs


def _checked_probs(probs: Tensor, multidimensional: bool) -> Tensor:
    one = ones_like(probs)
    checks = [assert_non_negative(probs)]
    if multidimensional:
        total = reduce_sum(probs, -1)
        checks.append(assert_near(total, ones_like(total), message="probs does not sum to 1."))
    else:
        checks.append(assert_less_equal(probs, one, message="probs has components greater than 1."))
    return with_dependencies(checks, probs)


def vector_covariance(left: Tensor, right: Tensor, variance: Tensor) -> Tensor:
    """-left right^T with the variances on the diagonal: the covariance of events that have a fixed sum."""
    product = matmul(expand_dims(left, -1), expand_dims(right, -2))
    return matrix_set_diag(-product, variance)
