"""tf.linalg.LinearOperator: matrices that are known by their structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.dimensions import Dimension, as_dimension
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.linalg import (
    adjoint as _adjoint,
    cholesky,
    eye,
    matmul,
    matrix_determinant,
    matrix_solve,
    slogdet,
)
from anabranch.frontend.arrays.rearranging import matrix_diag_part
from anabranch.frontend.arrays.shapes import broadcast_dynamic_shape, broadcast_to, expand_dims, shape, squeeze
from anabranch.frontend.control_flow.checks import Assert, assert_near
from anabranch.frontend.framework import name_scope
from anabranch.frontend.variables.module import Module
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: what is said of an operator; None: not known
Hint = bool | None


def with_batch_of(matrix: Tensor, other: Tensor) -> Tensor:
    """`matrix`, broadcast so that its batch dimensions are those of the two matrices together."""
    mine, others = matrix.shape[:-2], other.shape[:-2]
    if mine.is_fully_defined() and mine.dims_tuple == others.dims_tuple:
        return matrix
    batch = broadcast_dynamic_shape(shape(matrix)[:-2], shape(other)[:-2])
    return broadcast_to(matrix, raw.ConcatV2([batch, shape(matrix)[-2:]], 0))


def conjugate(x: Tensor) -> Tensor:
    """`x`, conjugated where it is complex."""
    return raw.Conj(x) if x.dtype.is_complex else x


class LinearOperator(Module):
    """The base of linear operators: matrices [..., rows, columns], each batch of them known by its structure.

    What is said of an operator (`is_non_singular`, ...) is believed, and decides how it is solved; None: not known.
    A subclass defines `_shape`, and `_matmul` or `_to_dense`; further whatever can be done without the whole matrix.
    `_matmul` and `_solve` take `adjoint` and `adjoint_arg`, as the public methods do. Those here are spared the second,
    by defining `_product` and `_solution` in their place.

    Args:
        dtype: of the elements.
        graph_parents: the tensors that it is made of.
        is_non_singular, is_self_adjoint, is_positive_definite, is_square: what is known of it.
        name: of the operator.

    Raises:
        ValueError: what is said of it contradicts itself.
    """

    def __init__(
        self,
        dtype: DType,
        graph_parents: Sequence[Tensor] | None = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        if is_positive_definite:
            if is_non_singular is False:
                raise ValueError("A positive definite matrix is always non-singular.")
            is_non_singular = True
        if is_non_singular:
            if is_square is False:
                raise ValueError("A non-singular matrix is always square.")
            is_square = True
        if is_self_adjoint:
            if is_square is False:
                raise ValueError("A self-adjoint matrix is always square.")
            is_square = True
        super().__init__((name or type(self).__name__).replace("/", "_"))
        self._dtype, self._graph_parents = dtype, list(graph_parents or ())
        self._is_non_singular, self._is_self_adjoint = is_non_singular, is_self_adjoint
        self._is_positive_definite, self._is_square_hint = is_positive_definite, is_square

    # ---- what a subclass defines
    def _to_dense(self) -> Tensor:
        if not self._defines("_matmul"):
            raise NotImplementedError(f"{type(self).__name__} defines neither _to_dense nor _matmul")
        return self._matmul(self._identity())

    def _shape(self) -> TensorShape:
        raise NotImplementedError(f"{type(self).__name__} does not define _shape")

    def _shape_tensor(self) -> Tensor:
        return shape(self._to_dense())

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._product(_adjoint(x) if adjoint_arg else x, adjoint)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._solution(_adjoint(rhs) if adjoint_arg else rhs, adjoint)

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return matmul(self._to_dense(), x, adjoint_a=adjoint)

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        dense = self._to_dense()
        return matrix_solve(with_batch_of(dense, rhs), with_batch_of(rhs, dense), adjoint=adjoint)

    def _determinant(self) -> Tensor:
        return matrix_determinant(self._to_dense())

    def _log_abs_determinant(self) -> Tensor:
        return slogdet(self._to_dense())[1]

    def _diag_part(self) -> Tensor:
        return matrix_diag_part(self._to_dense())

    # ---- what is known
    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def graph_parents(self) -> list[Tensor]:
        """The tensors that it is made of."""
        return self._graph_parents

    @property
    def is_non_singular(self) -> bool | None:
        return self._is_non_singular

    @property
    def is_self_adjoint(self) -> bool | None:
        return self._is_self_adjoint

    @property
    def is_positive_definite(self) -> bool | None:
        return self._is_positive_definite

    @property
    def is_square(self) -> bool | None:
        """Whether there are as many rows as columns, as far as the shape or the caller says so."""
        rows, columns = (d.value for d in (self.range_dimension, self.domain_dimension))
        return rows == columns if None not in (rows, columns) else self._is_square_hint

    @property
    def shape(self) -> TensorShape:
        """[..., rows, columns], as far as it is known."""
        return self._shape()

    @property
    def batch_shape(self) -> TensorShape:
        return self.shape[:-2]

    @property
    def tensor_rank(self) -> int | None:
        return self.shape.ndims

    @property
    def domain_dimension(self) -> Dimension:
        """The number of columns."""
        return as_dimension(self.shape.with_rank_at_least(2)[-1])

    @property
    def range_dimension(self) -> Dimension:
        """The number of rows."""
        return as_dimension(self.shape.with_rank_at_least(2)[-2])

    def shape_tensor(self, name: str = "shape_tensor") -> Tensor:
        """The shape as an int32 vector."""
        with self._scope(name):
            known = self.shape
            return convert_to_tensor(known.as_list()) if known.is_fully_defined() else self._shape_tensor()

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """The batch dimensions as an int32 vector."""
        result: Tensor = self.shape_tensor(name)[:-2]
        return result

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Tensor:
        """The rank as an int32 scalar."""
        result: Tensor = raw.Size(self.shape_tensor(name))
        return result

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Tensor:
        """The number of columns as an int32 scalar."""
        result: Tensor = self.shape_tensor(name)[-1]
        return result

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Tensor:
        """The number of rows as an int32 scalar."""
        result: Tensor = self.shape_tensor(name)[-2]
        return result

    # ---- what it does
    def to_dense(self, name: str = "to_dense") -> Tensor:
        """The matrices."""
        with self._scope(name):
            return self._to_dense()

    def matmul(
        self, x: TensorLike, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul"
    ) -> Tensor | LinearOperator:
        """The product with matrices, or with another operator.

        Args:
            x: [..., columns, n], of the operator's dtype; or a LinearOperator.
            adjoint, adjoint_arg: whether the operator, or `x`, is transposed and conjugated first.

        Returns:
            [..., rows, n]; of two operators their composition.

        Raises:
            ValueError: the dimensions do not go together.
        """
        if isinstance(x, LinearOperator):
            compose = _COMPOSED["compose"]
            result: LinearOperator = compose([self.adjoint() if adjoint else self, x.adjoint() if adjoint_arg else x])
            return result
        with self._scope(name):
            return self._matmul(self._argument(x, adjoint, adjoint_arg), adjoint, adjoint_arg)

    def matvec(self, x: TensorLike, adjoint: bool = False, name: str = "matvec") -> Tensor:
        """The product with vectors [..., columns]: [..., rows]."""
        with self._scope(name):
            column = expand_dims(convert_to_tensor(x, self.dtype), -1)
            return squeeze(self._matmul(self._argument(column, adjoint, False), adjoint), [-1])

    def solve(self, rhs: TensorLike, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> Tensor:
        """The matrices whose product with this operator is `rhs`.

        Args:
            rhs: [..., rows, n].
            adjoint, adjoint_arg: whether the operator, or `rhs`, is transposed and conjugated first.

        Returns:
            [..., columns, n].

        Raises:
            NotImplementedError: the operator is known to be singular, or not square.
        """
        self._check_solvable()
        with self._scope(name):
            return self._solve(self._argument(rhs, not adjoint, adjoint_arg), adjoint, adjoint_arg)

    def solvevec(self, rhs: TensorLike, adjoint: bool = False, name: str = "solve") -> Tensor:
        """The vectors [..., columns] whose product with this operator is `rhs`, [..., rows]."""
        column = expand_dims(convert_to_tensor(rhs, self.dtype), -1)
        return squeeze(self.solve(column, adjoint, name=name), [-1])

    def __matmul__(self, other: TensorLike) -> Any:
        return self.matmul(other)

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """The operator of the transposed and conjugated matrices."""
        if self.is_self_adjoint:
            return self
        result: LinearOperator = _COMPOSED["adjoint"](self)
        return result

    @property
    def H(self) -> LinearOperator:
        return self.adjoint()

    def inverse(self, name: str = "inverse") -> LinearOperator:
        """The operator of the inverse matrices; raises ValueError if it is known to be singular or not square."""
        if self.is_square is False or self.is_non_singular is False:
            raise ValueError("Cannot take the inverse of an operator that is singular or not square.")
        result: LinearOperator = _COMPOSED["inverse"](self)
        return result

    def cholesky(self, name: str = "cholesky") -> LinearOperator:
        """The Cholesky factor as an operator.

        Raises:
            ValueError: the operator is not said to be positive definite and self-adjoint.
        """
        if not (self.is_positive_definite and self.is_self_adjoint):
            raise ValueError("Cannot take the Cholesky decomposition: Not a positive definite self adjoint matrix.")
        with self._scope(name):
            result: LinearOperator = _COMPOSED["lower"](cholesky(self._to_dense()))
            return result

    def determinant(self, name: str = "det") -> Tensor:
        """The determinants, shape [...]; raises NotImplementedError if the operator is not square."""
        self._check_square("determinant")
        with self._scope(name):
            return self._determinant()

    def log_abs_determinant(self, name: str = "log_abs_det") -> Tensor:
        """The logarithms of the absolute values of the determinants, shape [...]."""
        self._check_square("log_abs_determinant")
        with self._scope(name):
            return self._log_abs_determinant()

    def trace(self, name: str = "trace") -> Tensor:
        """The sums of the diagonals, shape [...]."""
        with self._scope(name):
            result: Tensor = raw.Sum(self._diag_part(), -1)
            return result

    def diag_part(self, name: str = "diag_part") -> Tensor:
        """The diagonals, shape [..., min(rows, columns)]."""
        with self._scope(name):
            return self._diag_part()

    def add_to_tensor(self, x: TensorLike, name: str = "add_to_tensor") -> Tensor:
        """The matrices plus `x`."""
        with self._scope(name):
            result: Tensor = self._to_dense() + convert_to_tensor(x, self.dtype)
            return result

    def assert_non_singular(self, name: str = "assert_non_singular") -> Operation:
        """Fails in the step where a determinant is zero."""
        with self._scope(name):
            size = raw.ComplexAbs(d) if (d := self._determinant()).dtype.is_complex else raw.Abs(d)
            return Assert(raw.All(size > 0, raw.Range(0, raw.Rank(size), 1)), ["Singular matrix encountered:", d])

    def assert_positive_definite(self, name: str = "assert_positive_definite") -> Operation:
        """Fails in the step where there is no Cholesky factor."""
        with self._scope(name):
            return cholesky(self._to_dense()).op

    def assert_self_adjoint(self, name: str = "assert_self_adjoint") -> Operation:
        """Fails in the step where a matrix is not its own adjoint."""
        with self._scope(name):
            dense = self._to_dense()
            return assert_near(dense, _adjoint(dense), message="Matrix was not equal to its adjoint.")

    # ---- for subclasses
    def _scope(self, name: str) -> Any:
        return name_scope(f"{self.name}/{name}")

    def _name_scope(self, name: str | None = None) -> Any:
        return self._scope(name) if name else name_scope(self.name)

    def _check_input_dtype(self, x: Tensor) -> None:
        if x.dtype.base_dtype != self.dtype:
            raise TypeError(f"{self.name}: Expected argument to have dtype {self.dtype}, found {x.dtype} in {x}")

    def _defines(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(LinearOperator, method)

    def _identity(self) -> Tensor:
        """Matrices with ones on the diagonal, that the operator can be multiplied with; one for each in the batch."""
        if self.shape.is_fully_defined():
            *batch, _, columns = self.shape.as_list()
            return eye(columns, batch_shape=batch, dtype=self.dtype)
        if not self._defines("_shape_tensor"):
            raise NotImplementedError(f"{self.name}: its shape is {self.shape}, so it has to define _shape_tensor")
        sizes = self._shape_tensor()
        return eye(sizes[-1], batch_shape=sizes[:-2], dtype=self.dtype)

    def _argument(self, x: TensorLike, by_rows: bool, adjoint_arg: bool) -> Tensor:
        tensor = convert_to_tensor(x, self.dtype, name="x")
        mine = self.range_dimension if by_rows else self.domain_dimension
        if not mine.is_compatible_with(tensor.shape.with_rank_at_least(2)[-1 if adjoint_arg else -2]):
            raise ValueError(f"{self.name}: Dimensions are not compatible: {self.shape} and {tensor.shape}")
        return tensor

    def _check_square(self, what: str) -> None:
        if self.is_square is False:
            raise NotImplementedError(f"{self.name}: {what} is for square matrices, not of shape {self.shape}")

    def _check_solvable(self) -> None:
        self._check_square("solve")
        if self.is_non_singular is False:
            raise NotImplementedError(f"{self.name}: Exact solve not implemented for an operator that is singular.")


#: operators that are made of others, from the module after this one, which needs this one
_COMPOSED: dict[str, Any] = {}


def register_composed(name: str, make: Callable[..., LinearOperator]) -> None:
    """Says what makes the adjoint, the inverse, ... of an operator."""
    _COMPOSED[name] = make
