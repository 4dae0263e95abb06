from anabranch.frontend.arithmetic.circulant_operators import (
    LinearOperatorCirculant as LinearOperatorCirculant,
    LinearOperatorCirculant2D as LinearOperatorCirculant2D,
    LinearOperatorCirculant3D as LinearOperatorCirculant3D,
)
from anabranch.frontend.arithmetic.clipping import global_norm as global_norm
from anabranch.frontend.arithmetic.contraction import einsum as einsum, tensordot as tensordot
from anabranch.frontend.arithmetic.linalg import (
    adjoint as adjoint,
    cholesky as cholesky,
    cholesky_solve as cholesky_solve,
    cross as cross,
    expm as expm,
    eye as eye,
    logdet as logdet,
    logm as logm,
    lu as lu,
    matmul as matmul,
    matrix_determinant,
    matrix_inverse,
    matrix_rank as matrix_rank,
    matrix_solve,
    matrix_solve_ls,
    matrix_square_root,
    matrix_triangular_solve,
    matvec as matvec,
    norm as norm,
    normalize as normalize,
    pinv as pinv,
    qr as qr,
    self_adjoint_eig,
    self_adjoint_eigvals,
    slogdet as slogdet,
    svd as svd,
    trace as trace,
)
from anabranch.frontend.arithmetic.linear_operator_combinations import (
    LinearOperatorAdjoint as LinearOperatorAdjoint,
    LinearOperatorBlockDiag as LinearOperatorBlockDiag,
    LinearOperatorComposition as LinearOperatorComposition,
    LinearOperatorInversion as LinearOperatorInversion,
    LinearOperatorKronecker as LinearOperatorKronecker,
    LinearOperatorLowRankUpdate as LinearOperatorLowRankUpdate,
)
from anabranch.frontend.arithmetic.linear_operators import (
    BaseOperator,
    LinearOperatorDiag as LinearOperatorDiag,
    LinearOperatorFullMatrix as LinearOperatorFullMatrix,
    LinearOperatorHouseholder as LinearOperatorHouseholder,
    LinearOperatorIdentity as LinearOperatorIdentity,
    LinearOperatorLowerTriangular as LinearOperatorLowerTriangular,
    LinearOperatorScaledIdentity as LinearOperatorScaledIdentity,
    LinearOperatorToeplitz as LinearOperatorToeplitz,
    LinearOperatorZeros as LinearOperatorZeros,
)
from anabranch.frontend.arithmetic.tridiagonal import (
    tridiagonal_matmul as tridiagonal_matmul,
    tridiagonal_solve as tridiagonal_solve,
)
from anabranch.frontend.arrays.layout import matrix_transpose as matrix_transpose
from anabranch.frontend.arrays.rearranging import (
    diag as _diag,
    diag_part as _diag_part,
    matrix_band_part,
    matrix_diag,
    matrix_diag_part,
    matrix_set_diag,
)
from anabranch.frontend.nn.activations import l2_normalize as l2_normalize

LinearOperator = BaseOperator
band_part = matrix_band_part
det = matrix_determinant
diag = matrix_diag
diag_part = matrix_diag_part
eigh = self_adjoint_eig
eigvalsh = self_adjoint_eigvals
inv = matrix_inverse
lstsq = matrix_solve_ls
set_diag = matrix_set_diag
solve = matrix_solve
sqrtm = matrix_square_root
tensor_diag = _diag
tensor_diag_part = _diag_part
transpose = matrix_transpose
triangular_solve = matrix_triangular_solve
