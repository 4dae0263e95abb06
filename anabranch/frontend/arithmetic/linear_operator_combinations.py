"""Linear operators that are made of others: adjoints, inverses, products, blocks, updates of low rank."""

from __future__ import annotations

import functools
import operator as operators
from collections.abc import Sequence

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape, broadcast_shape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.linalg import adjoint, matmul, matrix_inverse
from anabranch.frontend.arithmetic.linear_operator import (
    Hint,
    LinearOperator,
    conjugate,
    register_composed,
    with_batch_of,
)
from anabranch.frontend.arrays.shapes import expand_dims, shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class LinearOperatorAdjoint(LinearOperator):
    """The transposed and conjugated matrices of another operator."""

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str | None = None,
    ) -> None:
        self._operator = operator
        given = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(
            operator.dtype,
            operator.graph_parents,
            *_inherited(operator, given),
            name=name or f"{operator.name}_adjoint",
        )

    @property
    def operator(self) -> LinearOperator:
        return self._operator

    def _shape(self) -> TensorShape:
        inner = self._operator.shape
        return inner[:-2].concatenate([inner[-1], inner[-2]])

    def _to_dense(self) -> Tensor:
        return adjoint(self._operator.to_dense())

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._operator._matmul(x, not adjoint)

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._operator._solve(rhs, not adjoint)

    def _determinant(self) -> Tensor:
        return conjugate(self._operator.determinant())

    def _log_abs_determinant(self) -> Tensor:
        return self._operator.log_abs_determinant()


class LinearOperatorInversion(LinearOperator):
    """The inverse matrices of another operator."""

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str | None = None,
    ) -> None:
        if False in (is_non_singular, operator.is_non_singular, operator.is_square):
            raise ValueError("Inverse operators are always non-singular, and so is what they are the inverse of.")
        self._operator = operator
        given = (True, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(
            operator.dtype, operator.graph_parents, *_inherited(operator, given), name=name or f"{operator.name}_inv"
        )

    @property
    def operator(self) -> LinearOperator:
        return self._operator

    def _shape(self) -> TensorShape:
        return self._operator.shape

    def _to_dense(self) -> Tensor:
        return matrix_inverse(self._operator.to_dense())

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._operator._solve(x, adjoint)

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._operator._matmul(rhs, adjoint)

    def _determinant(self) -> Tensor:
        return raw.Reciprocal(self._operator.determinant())  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return raw.Neg(self._operator.log_abs_determinant())  # type: ignore[no-any-return]


class _OfSeveral(LinearOperator):
    """What is made of several operators."""

    _joint = "_o_"

    def __init__(
        self,
        operators: Sequence[LinearOperator],
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str | None = None,
    ) -> None:
        self._operators = list(operators)
        if not self._operators:
            raise ValueError(f"Expected a non-empty list of operators. Found: {operators}")
        kinds = {operator.dtype for operator in self._operators}
        if len(kinds) > 1:
            raise TypeError(f"the operators have different dtypes: {sorted(kind.name for kind in kinds)}")
        if is_non_singular is None and all(operator.is_non_singular for operator in self._operators):
            is_non_singular = True
        parents = [parent for operator in self._operators for parent in operator.graph_parents]
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(
            kinds.pop(), parents, *hints, name=name or self._joint.join(operator.name for operator in self._operators)
        )

    @property
    def operators(self) -> list[LinearOperator]:
        return self._operators

    def _batch(self) -> TensorShape:
        return functools.reduce(broadcast_shape, [operator.batch_shape for operator in self._operators])

    def _all_square(self) -> bool:
        return all(operator.is_square for operator in self._operators)


class _OfFactors(_OfSeveral):
    """Operators whose determinant is the product of those of several square ones."""

    def _determinant(self) -> Tensor:
        if not self._all_square():
            return super()._determinant()
        return functools.reduce(operators.mul, [operator.determinant() for operator in self._operators])

    def _log_abs_determinant(self) -> Tensor:
        if not self._all_square():
            return super()._log_abs_determinant()
        return functools.reduce(operators.add, [operator.log_abs_determinant() for operator in self._operators])


class LinearOperatorComposition(_OfFactors):
    """The products of the matrices of several operators.

    Args:
        operators: the leftmost first.
    """

    def _shape(self) -> TensorShape:
        return self._batch().concatenate([self._operators[0].range_dimension, self._operators[-1].domain_dimension])

    def _to_dense(self) -> Tensor:
        return functools.reduce(matmul, [operator.to_dense() for operator in self._operators])

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        for operator in self._operators if adjoint else reversed(self._operators):
            x = operator._matmul(x, adjoint)
        return x

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        if not self._all_square():
            return super()._solution(rhs, adjoint)
        for operator in reversed(self._operators) if adjoint else self._operators:
            rhs = operator._solve(rhs, adjoint)
        return rhs


class LinearOperatorKronecker(_OfSeveral):
    """The Kronecker products of the matrices of several operators.

    Args:
        operators: the outermost first.
    """

    _joint = "_x_"

    def _shape(self) -> TensorShape:
        dimensions = [[operator.shape[at] for operator in self._operators] for at in (-2, -1)]
        return self._batch().concatenate([functools.reduce(operators.mul, several) for several in dimensions])

    def _to_dense(self) -> Tensor:
        dense = functools.reduce(_kronecker, [operator.to_dense() for operator in self._operators])
        dense.set_shape(self.shape)
        return dense


class LinearOperatorBlockDiag(_OfFactors):
    """Matrices with those of several operators along the diagonal, and zeros beside them.

    Args:
        operators: the upper left first.
    """

    _joint = "_ds_"

    def _shape(self) -> TensorShape:
        dimensions = [[operator.shape[at] for operator in self._operators] for at in (-2, -1)]
        return self._batch().concatenate([functools.reduce(operators.add, several) for several in dimensions])

    def _to_dense(self) -> Tensor:
        blocks = [operator.to_dense() for operator in self._operators]
        blocks = [functools.reduce(with_batch_of, blocks, block) for block in blocks]
        columns = [shape(block)[-1] for block in blocks]
        rows = []
        for i, block in enumerate(blocks):
            around = [
                block if i == j else raw.Fill(raw.ConcatV2([shape(block)[:-1], raw.Pack([n])], 0), _zero(self.dtype))
                for j, n in enumerate(columns)
            ]
            rows.append(raw.ConcatV2(around, -1) if len(around) > 1 else block)
        dense: Tensor = raw.ConcatV2(rows, -2) if len(rows) > 1 else rows[0]
        dense.set_shape(self.shape)
        return dense


class LinearOperatorLowRankUpdate(LinearOperator):
    """An operator plus a product of low rank, U D V^H.

    Args:
        base_operator: square, [..., n, n].
        u: [..., n, k].
        diag_update: [..., k]: the diagonal of D; default: ones.
        v: [..., n, k]; default: `u`.
        is_diag_update_positive: whether all of `diag_update` is positive.
    """

    def __init__(
        self,
        base_operator: LinearOperator,
        u: TensorLike,
        diag_update: TensorLike | None = None,
        v: TensorLike | None = None,
        is_diag_update_positive: Hint = None,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorLowRankUpdate",
    ) -> None:
        self._base = base_operator
        self._u = convert_to_tensor(u, base_operator.dtype, name="u")
        self._v = self._u if v is None else convert_to_tensor(v, base_operator.dtype, name="v")
        self._diag = None if diag_update is None else convert_to_tensor(diag_update, base_operator.dtype)
        positive = is_diag_update_positive or diag_update is None
        if v is None and base_operator.is_self_adjoint and is_self_adjoint is None:
            is_self_adjoint = positive or not base_operator.dtype.is_complex or None
        if v is None and positive and base_operator.is_positive_definite and is_positive_definite is None:
            is_positive_definite = True
        parents = [*base_operator.graph_parents, self._u, self._v, *([] if self._diag is None else [self._diag])]
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(base_operator.dtype, parents, *hints, name=name)

    @property
    def base_operator(self) -> LinearOperator:
        return self._base

    @property
    def u(self) -> Tensor:
        return self._u

    @property
    def v(self) -> Tensor:
        return self._v

    @property
    def diag_update(self) -> Tensor | None:
        return self._diag

    def _shape(self) -> TensorShape:
        batch = functools.reduce(broadcast_shape, [self._base.batch_shape, self._u.shape[:-2], self._v.shape[:-2]])
        return batch.concatenate(self._base.shape[-2:])

    def _scaled(self, right: Tensor) -> Tensor:
        return right if self._diag is None else expand_dims(self._diag, -1) * right

    def _to_dense(self) -> Tensor:
        return self._base.to_dense() + matmul(self._u, self._scaled(adjoint(self._v)))

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        if adjoint:
            return super()._product(x, adjoint)
        update = matmul(self._u, self._scaled(matmul(self._v, x, adjoint_a=True)))
        return self._base._matmul(x, False) + update


# ---------------------------------------------------------------------- parts
def _inherited(operator: LinearOperator, given: Sequence[Hint]) -> tuple[Hint, Hint, Hint, Hint]:
    """What is known of the adjoint or the inverse: what is known of the operator, unless something else is said."""
    own = (operator.is_non_singular, operator.is_self_adjoint, operator.is_positive_definite, operator.is_square)
    hints = [mine if theirs is None else theirs for mine, theirs in zip(own, given, strict=True)]
    return hints[0], hints[1], hints[2], hints[3]


def _zero(dtype: DType) -> Tensor:
    return raw.Cast(0, DstT=dtype)  # type: ignore[no-any-return]


def _kronecker(a: Tensor, b: Tensor) -> Tensor:
    wide = expand_dims(expand_dims(a, -1), -3) * expand_dims(expand_dims(b, -2), -4)
    sizes = shape(wide)
    last = raw.Pack([sizes[-4] * sizes[-3], sizes[-2] * sizes[-1]])
    return raw.Reshape(wide, raw.ConcatV2([sizes[:-4], last], 0))  # type: ignore[no-any-return]


register_composed("adjoint", LinearOperatorAdjoint)
register_composed("inverse", LinearOperatorInversion)
register_composed("compose", LinearOperatorComposition)
