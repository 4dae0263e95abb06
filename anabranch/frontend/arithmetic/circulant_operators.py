"""Linear operators that are diagonal in the basis of the discrete Fourier transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic import linear_operator_combinations as _combinations  # noqa: F401 - adjoints, inverses
from anabranch.frontend.arithmetic.linear_operator import Hint, LinearOperator
from anabranch.frontend.arrays.layout import matrix_transpose
from anabranch.frontend.arrays.shapes import broadcast_to, expand_dims, shape
from anabranch.frontend.control_flow.checks import Assert
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_SUFFIXES = {1: "", 2: "2D", 3: "3D"}
_ALLOWED = (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


class _Circulant(LinearOperator):
    """What circulant operators of every depth have in common."""

    def __init__(
        self, spectrum: TensorLike, block_depth: int, input_output_dtype: DTypeLike, hints: Sequence[Hint], name: str
    ) -> None:
        is_non_singular, is_self_adjoint, is_positive_definite, is_square = hints
        given = convert_to_tensor(spectrum, name="spectrum")
        if given.dtype not in _ALLOWED:
            raise TypeError(f"the spectrum must have one of the dtypes {[t.name for t in _ALLOWED]}, got {given}")
        given.shape.with_rank_at_least(block_depth)
        if not given.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real spectrum always corresponds to a self-adjoint operator.")
            is_self_adjoint = True
        if is_square is False:
            raise ValueError("A circulant operator is always square.")
        self._spectrum, self._block_depth = given, block_depth
        super().__init__(
            as_dtype(input_output_dtype),
            [given],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            True,
            name=name,
        )

    @property
    def spectrum(self) -> Tensor:
        """The eigenvalues."""
        return self._spectrum

    @property
    def block_depth(self) -> int:
        """How many circulant structures are nested."""
        return self._block_depth

    @property
    def block_shape(self) -> TensorShape:
        """The last `block_depth` dimensions of the spectrum."""
        return self._spectrum.shape[-self._block_depth :]

    def block_shape_tensor(self) -> Tensor:
        """The last `block_depth` dimensions of the spectrum as a vector."""
        lengths: Tensor = shape(self._spectrum)[-self._block_depth :]
        return lengths

    def convolution_kernel(self, name: str = "convolution_kernel") -> Tensor:
        """The first column, in the shape of the spectrum and the operator's dtype."""
        with self._scope(name):
            return self._cast(self._inverse_transformed(self._eigenvalues()))

    def assert_hermitian_spectrum(self, name: str = "assert_hermitian_spectrum") -> Operation:
        """Fails in the step where the matrices are not real."""
        with self._scope(name):
            kernel = self._inverse_transformed(self._eigenvalues())
            imaginary: Tensor = raw.Imag(kernel, Tout=_real(kernel))
            limit = float(np.finfo(_real(kernel).as_numpy_dtype).eps)
            most = raw.Cast(self._size(), DstT=imaginary.dtype) * limit
            small = raw.All(raw.Less(raw.Abs(imaginary), most), raw.Range(0, raw.Rank(imaginary), 1))
            return Assert(small, ["Spectrum was not Hermitian", imaginary])

    # ---- what a subclass of LinearOperator defines
    def _shape(self) -> TensorShape:
        full = self._spectrum.shape
        if full.ndims is None:
            return full
        count = self.block_shape.num_elements()
        return full[: -self._block_depth].concatenate([Dimension(count)] * 2)

    def _shape_tensor(self) -> Tensor:
        size = self._size()
        return raw.ConcatV2([shape(self._spectrum)[: -self._block_depth], raw.Pack([size, size])], 0)  # type: ignore[no-any-return]

    def _to_dense(self) -> Tensor:
        size = self._size()
        one = raw.Cast(1, DstT=self.dtype)
        identity = raw.MatrixDiag(raw.Fill(raw.Pack([size]), one))
        dense = self._matmul(identity, False)
        dense.set_shape(self.shape)
        return dense

    def _product(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._in_the_basis(x, lambda moved: moved * self._beside(adjoint))

    def _solution(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._in_the_basis(rhs, lambda moved: moved / self._beside(adjoint))

    def _determinant(self) -> Tensor:
        return self._cast(raw.Prod(self._spectrum, self._axes()))

    def _log_abs_determinant(self) -> Tensor:
        size = raw.ComplexAbs(self._spectrum, Tout=_real(self._spectrum)) if self._spectrum.dtype.is_complex else None
        logarithms = raw.Log(raw.Abs(self._spectrum) if size is None else size)
        return self._cast(raw.Sum(logarithms, self._axes()))

    def _diag_part(self) -> Tensor:
        mean = self._cast(raw.Mean(self._eigenvalues(), self._axes()))
        diagonal = broadcast_to(expand_dims(mean, -1), self.shape_tensor()[:-1])
        diagonal.set_shape(self.shape[:-1])
        return diagonal

    # ---- parts
    def _axes(self) -> list[int]:
        return list(range(-self._block_depth, 0))

    def _size(self) -> Tensor:
        return raw.Prod(self.block_shape_tensor(), 0)  # type: ignore[no-any-return]

    def _complex(self, x: Tensor) -> Tensor:
        """As the transforms take it, in the higher of the precisions of the spectrum and the operator."""
        double = dtypes.float64, dtypes.complex128
        wanted = dtypes.complex128 if {self.dtype, self._spectrum.dtype} & {*double} else dtypes.complex64
        return raw.Cast(x, DstT=wanted)  # type: ignore[no-any-return]

    def _cast(self, x: Tensor) -> Tensor:
        if x.dtype.is_complex and not self.dtype.is_complex:
            x = raw.Real(x, Tout=_real(x))
        return raw.Cast(x, DstT=self.dtype)  # type: ignore[no-any-return]

    def _eigenvalues(self) -> Tensor:
        return self._complex(self._spectrum)

    def _beside(self, adjoint: bool) -> Tensor:
        """The eigenvalues (those of the adjoint), with a dimension for the columns that they meet."""
        values = raw.Conj(self._eigenvalues()) if adjoint else self._eigenvalues()
        return expand_dims(values, -self._block_depth - 1)

    def _transformed(self, x: Tensor) -> Tensor:
        return getattr(raw, f"FFT{_SUFFIXES[self._block_depth]}")(x)  # type: ignore[no-any-return]

    def _inverse_transformed(self, x: Tensor) -> Tensor:
        return getattr(raw, f"IFFT{_SUFFIXES[self._block_depth]}")(x)  # type: ignore[no-any-return]

    def _in_the_basis(self, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """The columns of x [..., n, k], changed where they are transformed."""
        rows = self._complex(matrix_transpose(x))
        blocks = raw.Reshape(rows, raw.ConcatV2([shape(rows)[:-1], self.block_shape_tensor()], 0))
        changed = self._inverse_transformed(change(self._transformed(blocks)))
        lengths = raw.ConcatV2([shape(changed)[: -self._block_depth], raw.Pack([self._size()])], 0)
        return self._cast(matrix_transpose(raw.Reshape(changed, lengths)))


def _real(x: Tensor) -> dtypes.DType:
    return dtypes.float64 if x.dtype in (dtypes.complex128, dtypes.float64) else dtypes.float32


class LinearOperatorCirculant(_Circulant):
    """Circulant matrices: every column is the one before it, shifted by one and wrapped around.

    Args:
        spectrum: [..., n]: the discrete Fourier transform of the first column; floating or complex.
        input_output_dtype: of what the operator takes and gives. Where it is real, so must the matrices be.
    """

    def __init__(
        self,
        spectrum: TensorLike,
        input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = True,
        name: str = "LinearOperatorCirculant",
    ) -> None:
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(spectrum, 1, input_output_dtype, hints, name)


class LinearOperatorCirculant2D(_Circulant):
    """Circulant matrices of circulant blocks.

    Args:
        spectrum: [..., m, n]: the two-dimensional transform of the first column, as [..., m, n]; floating or complex.
        input_output_dtype: of what the operator takes and gives. Where it is real, so must the matrices be.
    """

    def __init__(
        self,
        spectrum: TensorLike,
        input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = True,
        name: str = "LinearOperatorCirculant2D",
    ) -> None:
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(spectrum, 2, input_output_dtype, hints, name)


class LinearOperatorCirculant3D(_Circulant):
    """Circulant matrices of blocks that are circulant matrices of circulant blocks.

    Args:
        spectrum: [..., k, m, n]: the three-dimensional transform of the first column; floating or complex.
        input_output_dtype: of what the operator takes and gives. Where it is real, so must the matrices be.
    """

    def __init__(
        self,
        spectrum: TensorLike,
        input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: Hint = None,
        is_self_adjoint: Hint = None,
        is_positive_definite: Hint = None,
        is_square: Hint = True,
        name: str = "LinearOperatorCirculant3D",
    ) -> None:
        hints = (is_non_singular, is_self_adjoint, is_positive_definite, is_square)
        super().__init__(spectrum, 3, input_output_dtype, hints, name)
