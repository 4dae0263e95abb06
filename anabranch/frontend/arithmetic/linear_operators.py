"""Linear operators: matrices by their diagonals, triangles, or as products, sums and blocks of others."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape, broadcast_shape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic import linear_operator_combinations as _combinations  # noqa: F401 - adjoints, inverses
from anabranch.frontend.arithmetic.linalg import matmul, matrix_triangular_solve
from anabranch.frontend.arithmetic.linear_operator import (
    Hint,
    LinearOperator,
    conjugate,
    register_composed,
    with_batch_of,
)
from anabranch.frontend.arrays.rearranging import matrix_band_part, matrix_diag, matrix_diag_part
from anabranch.frontend.arrays.shapes import broadcast_to, expand_dims, shape
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _abs(x: Tensor) -> Tensor:
    return raw.ComplexAbs(x) if x.dtype.is_complex else raw.Abs(x)  # type: ignore[no-any-return]


def _log_abs(x: Tensor) -> Tensor:
    return raw.Cast(raw.Log(_abs(x)), DstT=x.dtype)  # type: ignore[no-any-return]


class LinearOperatorFullMatrix(LinearOperator):
    """Any matrices.

    Args:
        matrix: [..., rows, columns].
    """

    def __init__(
        self,
        matrix: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorFullMatrix",
    ) -> None:
        self._matrix = convert_to_tensor(matrix, name="matrix")
        self._matrix.shape.with_rank_at_least(2)
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(self._matrix.dtype, [self._matrix], *hints, name=name)

    def _to_dense(self) -> Tensor:
        return self._matrix

    def _shape(self) -> TensorShape:
        return self._matrix.shape


class LinearOperatorLowerTriangular(LinearOperator):
    """Lower triangular matrices.

    Args:
        tril: [..., n, n]; what is above the diagonal is not read.
    """

    def __init__(
        self,
        tril: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:
        given = convert_to_tensor(tril, name="tril")
        given.shape.with_rank_at_least(2)[-2].assert_is_compatible_with(given.shape[-1])
        self._tril = matrix_band_part(given, -1, 0)
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, True if is_square is None else is_square)
        super().__init__(given.dtype, [given], *hints, name=name)

    def _to_dense(self) -> Tensor:
        return self._tril

    def _shape(self) -> TensorShape:
        return self._tril.shape

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        matrix, rhs = with_batch_of(self._tril, rhs), with_batch_of(rhs, self._tril)
        return matrix_triangular_solve(matrix, rhs, lower=True, adjoint=adjoint)

    def _determinant(self) -> Tensor:
        return raw.Prod(matrix_diag_part(self._tril), -1)  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return raw.Sum(_log_abs(matrix_diag_part(self._tril)), -1)  # type: ignore[no-any-return]


class LinearOperatorDiag(LinearOperator):
    """Diagonal matrices.

    Args:
        diag: [..., n].
    """

    def __init__(
        self,
        diag: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorDiag",
    ) -> None:
        self._diag = convert_to_tensor(diag, name="diag")
        self._diag.shape.with_rank_at_least(1)
        if not self._diag.dtype.is_complex:
            is_self_adjoint = True
        if is_square is False:
            raise ValueError("Only square diagonal operators currently supported.")
        super().__init__(
            self._diag.dtype, [self._diag], is_non_singular, is_self_adjoint, is_positive_definite, True, name=name
        )

    @property
    def diag(self) -> Tensor:
        return self._diag

    def _to_dense(self) -> Tensor:
        return matrix_diag(self._diag)

    def _shape(self) -> TensorShape:
        return self._diag.shape.concatenate(self._diag.shape[-1:])

    def _column(self, adjoint: bool) -> Tensor:
        return expand_dims(conjugate(self._diag) if adjoint else self._diag, -1)

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._column(adjoint) * x

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return rhs / self._column(adjoint)

    def _determinant(self) -> Tensor:
        return raw.Prod(self._diag, -1)  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return raw.Sum(_log_abs(self._diag), -1)  # type: ignore[no-any-return]

    def _diag_part(self) -> Tensor:
        return self._diag


class LinearOperatorScaledIdentity(LinearOperator):
    """The identity, times a number for each matrix of a batch.

    Args:
        num_rows: an integer, or a scalar tensor.
        multiplier: [...].
        assert_proper_shapes: not needed: shapes are checked anyway.
    """

    def __init__(
        self,
        num_rows: TensorLike,
        multiplier: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorScaledIdentity",
    ) -> None:
        if not is_square:
            raise ValueError("A ScaledIdentity operator is always square.")
        self._multiplier = convert_to_tensor(multiplier, name="multiplier")
        self._rows = _dimension(num_rows, "num_rows")
        if not self._multiplier.dtype.is_complex:
            is_self_adjoint = True
        super().__init__(
            self._multiplier.dtype,
            [self._multiplier],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name=name,
        )

    @property
    def multiplier(self) -> Tensor:
        return self._multiplier

    def _shape(self) -> TensorShape:
        return self._multiplier.shape.concatenate([_known(self._rows)] * 2)

    def _diag_part(self) -> Tensor:
        wanted = raw.ConcatV2([shape(self._multiplier), raw.Pack([self._rows])], 0)
        diagonal = broadcast_to(expand_dims(self._multiplier, -1), wanted)
        diagonal.set_shape(self.shape[:-1])
        return diagonal

    def _to_dense(self) -> Tensor:
        return matrix_diag(self._diag_part())

    def _scale(self, adjoint: bool) -> Tensor:
        multiplier = conjugate(self._multiplier) if adjoint else self._multiplier
        return expand_dims(expand_dims(multiplier, -1), -1)

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._scale(adjoint) * x

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return rhs / self._scale(adjoint)

    def _determinant(self) -> Tensor:
        return raw.Pow(self._multiplier, raw.Cast(self._rows, DstT=self.dtype))  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        rows: Tensor = raw.Cast(self._rows, DstT=self.dtype)
        return _log_abs(self._multiplier) * rows


class LinearOperatorIdentity(LinearOperatorScaledIdentity):
    """The identity.

    Args:
        num_rows: an integer, or a scalar tensor.
        batch_shape: of the batch; default: one matrix.
        dtype: default: float32.
        assert_proper_shapes: not needed: shapes are checked anyway.
    """

    def __init__(
        self,
        num_rows: TensorLike,
        batch_shape: TensorLike | None = None,
        dtype: DTypeLike | None = None,
        is_non_singular: Hint = True,
        is_self_adjoint: Hint = True,
        is_positive_definite: Hint = True,
        is_square: Hint = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorIdentity",
    ) -> None:
        if not (is_non_singular and is_self_adjoint and is_positive_definite and is_square):
            raise ValueError("An identity operator is always self-adjoint, positive definite and square.")
        batch = convert_to_tensor([] if batch_shape is None else batch_shape, dtypes.int32)
        ones = raw.Fill(batch, raw.Cast(1, DstT=as_dtype(dtype or dtypes.float32)))
        super().__init__(num_rows, ones, True, True, True, True, name=name)


class LinearOperatorZeros(LinearOperator):
    """Matrices of zeros.

    Args:
        num_rows, num_columns: integers, or scalar tensors; by default there are as many columns as rows.
        batch_shape: of the batch; default: one matrix.
        dtype: default: float32.
        assert_proper_shapes: not needed: shapes are checked anyway.
    """

    def __init__(
        self,
        num_rows: TensorLike,
        num_columns: TensorLike | None = None,
        batch_shape: TensorLike | None = None,
        dtype: DTypeLike | None = None,
        is_non_singular: Hint = False,
        is_self_adjoint: Hint = True,
        is_positive_definite: Hint = False,
        is_square: Hint = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorZeros",
    ) -> None:
        if is_non_singular or is_positive_definite:
            raise ValueError("A zero operator is always singular, and never positive definite.")
        rows = _dimension(num_rows, "num_rows")
        columns = rows if num_columns is None else _dimension(num_columns, "num_columns")
        batch = convert_to_tensor([] if batch_shape is None else batch_shape, dtypes.int32)
        wanted = raw.ConcatV2([batch, raw.Pack([rows, columns])], 0)
        self._zeros: Tensor = raw.Fill(wanted, raw.Cast(0, DstT=as_dtype(dtype or dtypes.float32)))
        super().__init__(self._zeros.dtype, None, False, is_self_adjoint, False, is_square, name=name)

    def _to_dense(self) -> Tensor:
        return self._zeros

    def _shape(self) -> TensorShape:
        return self._zeros.shape


class LinearOperatorHouseholder(LinearOperator):
    """Reflections: the identity minus twice the projection on an axis.

    Args:
        reflection_axis: [..., n]; not zero.
    """

    def __init__(
        self,
        reflection_axis: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorHouseholder",
    ) -> None:
        if False in (is_non_singular, is_self_adjoint, is_square) or is_positive_definite:
            raise ValueError("A Householder operator is self-adjoint, non-singular, square and not positive definite.")
        self._axis = convert_to_tensor(reflection_axis, name="reflection_axis")
        length = raw.Sqrt(raw.Sum(self._axis * conjugate(self._axis), -1, keep_dims=True))
        self._unit = expand_dims(self._axis / length, -1)
        super().__init__(self._axis.dtype, [self._axis], True, True, False, True, name=name)

    @property
    def reflection_axis(self) -> Tensor:
        return self._axis

    def _shape(self) -> TensorShape:
        return self._axis.shape.concatenate(self._axis.shape[-1:])

    def _to_dense(self) -> Tensor:
        twice = matmul(self._unit, self._unit, adjoint_b=True) * 2
        diagonal = raw.OnesLike(self._axis)
        return matrix_diag(diagonal) - twice

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return x - matmul(self._unit, matmul(self._unit, x, adjoint_a=True)) * 2

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._product(rhs, adjoint)

    def _determinant(self) -> Tensor:
        return raw.Neg(raw.OnesLike(self._axis[..., 0]))  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return raw.ZerosLike(self._axis[..., 0])  # type: ignore[no-any-return]


class LinearOperatorToeplitz(LinearOperator):
    """Matrices whose diagonals are constant.

    Args:
        col, row: [..., n]: the first column and the first row, which begin alike.
    """

    def __init__(
        self,
        col: TensorLike,
        row: TensorLike,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = None,
        name: str = "LinearOperatorToeplitz",
    ) -> None:
        if is_square is False:
            raise ValueError("Only square Toeplitz operators currently supported.")
        self._col, self._row = convert_to_tensor(col, name="col"), convert_to_tensor(row, name="row")
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, True)
        super().__init__(self._col.dtype, [self._col, self._row], *hints, name=name)

    @property
    def col(self) -> Tensor:
        return self._col

    @property
    def row(self) -> Tensor:
        return self._row

    def _shape(self) -> TensorShape:
        both = broadcast_shape(self._col.shape, self._row.shape)
        return both.concatenate(both[-1:])

    def _to_dense(self) -> Tensor:
        batch = raw.ZerosLike(self._col + self._row)
        diagonals = raw.ConcatV2([raw.ReverseV2(self._row + batch, [-1])[..., :-1], self._col + batch], -1)
        size = shape(self._col)[-1]
        number = raw.Range(0, size, 1)
        # the first row of an index is size - 1, ..., 0: element (i, j) is of the diagonal i - j
        places = expand_dims(number, -1) - expand_dims(number, 0) + (size - 1)
        return raw.GatherV2(diagonals, places, -1)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- parts
def _dimension(number: TensorLike, what: str) -> Tensor:
    tensor = convert_to_tensor(number, name=what)
    if tensor.shape.ndims not in (0, None) or not tensor.dtype.is_integer:
        raise TypeError(f"{what} must be an integer scalar, got {tensor}")
    known = constant_value(tensor)
    if known is not None and known < 0:
        raise ValueError(f"{what} must be non-negative, got {int(known)}")
    return raw.Cast(tensor, DstT=dtypes.int32)  # type: ignore[no-any-return]


def _known(dimension: Tensor) -> Dimension:
    value = constant_value(dimension)
    return Dimension(None if value is None else int(value))


register_composed("lower", LinearOperatorLowerTriangular)
#: the base, for those who ask this module for it: by then the adjoint and the inverse of any operator can be made
BaseOperator = LinearOperator
