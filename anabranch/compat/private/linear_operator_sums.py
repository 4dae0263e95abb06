"""`add_operators` of TensorFlow's private `linear_operator_addition`, with which libraries add linear operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import anabranch as tf

#: what keeps its form in a sum with what stands before it
_FORMS = (
    tf.linalg.LinearOperatorScaledIdentity,
    tf.linalg.LinearOperatorDiag,
    tf.linalg.LinearOperatorLowerTriangular,
    tf.linalg.LinearOperatorFullMatrix,
)


def add_operators(
    operators: Sequence[tf.linalg.LinearOperator], operator_name: str | None = None, name: str | None = None
) -> list[tf.linalg.LinearOperator]:
    """A list of one operator, the sum of others, which has the simplest form that holds it.

    What is positive definite, self-adjoint or square in each of them is so in the sum.

    Args:
        operators: of one dtype, matrices of equal sizes, whose batches broadcast.
        operator_name: of the sum.
        name: of the scope in which it is computed.

    Raises:
        TypeError: one of them is no linear operator.
        ValueError: there are none, or their sizes differ.
    """
    known = list(operators)
    if not known:
        raise ValueError("add_operators needs at least one operator")
    for one in known:
        if not isinstance(one, tf.linalg.LinearOperator):
            raise TypeError(f"add_operators adds linear operators, not {one!r}")
        if not one.shape[-2:].is_compatible_with(known[0].shape[-2:]):
            raise ValueError(f"operators of shapes {known[0].shape} and {one.shape} cannot be added")
    with tf.name_scope(name or "add_operators"):
        # the simplest first, so that no more than needed is computed of full matrices
        return [functools.reduce(functools.partial(_sum, operator_name), sorted(known, key=_form))]


def _form(operator: tf.linalg.LinearOperator) -> int:
    """The place in `_FORMS` of the simplest form that an operator has; the last of any other's."""
    return next((i for i, form in enumerate(_FORMS) if isinstance(operator, form)), len(_FORMS) - 1)


def _sum(
    name: str | None, simple: tf.linalg.LinearOperator, other: tf.linalg.LinearOperator
) -> tf.linalg.LinearOperator:
    """The sum of two operators, of which the second has the less simple form, or the same."""
    options: dict[str, Any] = {
        hint: getattr(simple, hint) and getattr(other, hint)
        for hint in ("is_self_adjoint", "is_positive_definite", "is_square")
    }
    options |= {"is_non_singular": options["is_positive_definite"], "name": name or f"Add/{simple.name}__{other.name}/"}
    options = {key: value for key, value in options.items() if value}
    form = _FORMS[_form(other)]
    if form is tf.linalg.LinearOperatorScaledIdentity:
        assert isinstance(simple, form)
        assert isinstance(other, form)
        known = tf.compat.dimension_value(other.shape[-1])
        rows = other.range_dimension_tensor() if known is None else known
        return form(rows, simple.multiplier + other.multiplier, **options)
    if form is tf.linalg.LinearOperatorDiag:
        return form(simple.diag_part() + other.diag_part(), **options)
    return form(simple.add_to_tensor(other.to_dense()), **options)
