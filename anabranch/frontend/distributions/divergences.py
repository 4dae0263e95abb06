"""Kullback and Leibler's divergence of one distribution from another, for the pairs of classes with a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.frontend.arithmetic.elementwise import is_nan, logical_not
from anabranch.frontend.arithmetic.reduction import reduce_any
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.graph.operation import Tensor

if TYPE_CHECKING:
    from anabranch.frontend.distributions.distribution import Distribution

Rule = Callable[..., Any]
_rules: dict[tuple[type, type], Rule] = {}


def _registered_kl(type_a: type, type_b: type) -> Rule | None:
    """The rule for the nearest ancestors of two classes: the one with the fewest steps in both lines together."""
    nearest, shortest = None, None
    for steps_a, a in enumerate(type_a.__mro__):
        for steps_b, b in enumerate(type_b.__mro__):
            rule = _rules.get((a, b))
            if rule is not None and (shortest is None or steps_a + steps_b < shortest):
                nearest, shortest = rule, steps_a + steps_b
    return nearest


def kl_divergence(
    distribution_a: Distribution, distribution_b: Distribution, allow_nan_stats: bool = True, name: str | None = None
) -> Tensor:
    """KL(a || b): the expectation under a of log(a / b), for each distribution of the batch.

    Args:
        allow_nan_stats: whether NaN is a result (True) or an error in the step (False).

    Raises:
        NotImplementedError: no rule is registered for the classes of the two.
    """
    type_a, type_b = type(distribution_a), type(distribution_b)
    rule = _registered_kl(type_a, type_b)
    if rule is None:
        raise NotImplementedError(
            f"No KL(distribution_a || distribution_b) registered for distribution_a type {type_a.__name__} and "
            f"distribution_b type {type_b.__name__}; register one with tf.distributions.RegisterKL"
        )
    with name_scope("KullbackLeibler"):
        divergence: Tensor = rule(distribution_a, distribution_b, name=name)
        if allow_nan_stats:
            return divergence
        message = (
            f"KL calculation between {distribution_a.name} and {distribution_b.name} returned NaN values "
            "(and was called with allow_nan_stats=False). Values:"
        )
        with control_dependencies([Assert(logical_not(reduce_any(is_nan(divergence))), [message, divergence])]):
            return identity(divergence, name="checked_kl")


def cross_entropy(ref: Distribution, other: Distribution, allow_nan_stats: bool = True, name: str | None = None) -> Any:
    """The expectation under `ref` of -log(other), in nats."""
    with name_scope(name, "cross_entropy"):
        return ref.entropy() + kl_divergence(ref, other, allow_nan_stats=allow_nan_stats)


class RegisterKL:
    """A decorator that registers a function `(a, b, name=None)` for the divergence of two classes of distributions."""

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = (dist_cls_a, dist_cls_b)

    def __call__(self, kl_fn: Rule) -> Rule:
        """Registers `kl_fn` and returns it.

        Raises:
            TypeError: `kl_fn` is not callable.
            ValueError: there is a rule for the two classes.
        """
        if not callable(kl_fn):
            raise TypeError(f"kl_fn must be callable, received: {kl_fn!r}")
        if self._key in _rules:
            names = " || ".join(cls.__name__ for cls in self._key)
            raise ValueError(f"KL({names}) has already been registered to: {_rules[self._key]}")
        _rules[self._key] = kl_fn
        return kl_fn
