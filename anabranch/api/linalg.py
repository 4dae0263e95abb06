"""`tf.linalg`."""

from __future__ import annotations

from anabranch.frontend.array import matrix_transpose
from anabranch.frontend.array import matrix_transpose as transpose
from anabranch.frontend.clipping import global_norm
from anabranch.frontend.contraction import einsum, tensordot
from anabranch.frontend.linalg import (
    adjoint,
    cholesky,
    cholesky_solve,
    cross,
    expm,
    logdet,
    lu,
    matmul,
    matrix_rank,
    matvec,
    norm,
    normalize,
    pinv,
    qr,
    slogdet,
    svd,
    trace,
)
from anabranch.frontend.linalg import (
    matrix_determinant as det,
)
from anabranch.frontend.linalg import (
    matrix_inverse as inv,
)
from anabranch.frontend.linalg import (
    matrix_solve as solve,
)
from anabranch.frontend.linalg import (
    matrix_solve_ls as lstsq,
)
from anabranch.frontend.linalg import (
    matrix_triangular_solve as triangular_solve,
)
from anabranch.frontend.linalg import (
    self_adjoint_eig as eigh,
)
from anabranch.frontend.linalg import (
    self_adjoint_eigvals as eigvalsh,
)
from anabranch.frontend.nn import l2_normalize
from anabranch.frontend.rearranging import (
    diag as tensor_diag,
)
from anabranch.frontend.rearranging import (
    diag_part as tensor_diag_part,
)
from anabranch.frontend.rearranging import (
    matrix_band_part as band_part,
)
from anabranch.frontend.rearranging import (
    matrix_diag as diag,
)
from anabranch.frontend.rearranging import (
    matrix_diag_part as diag_part,
)
from anabranch.frontend.rearranging import (
    matrix_set_diag as set_diag,
)

__all__ = [
    "adjoint",
    "band_part",
    "cholesky",
    "cholesky_solve",
    "cross",
    "det",
    "diag",
    "diag_part",
    "eigh",
    "eigvalsh",
    "einsum",
    "expm",
    "global_norm",
    "inv",
    "l2_normalize",
    "logdet",
    "lstsq",
    "lu",
    "matmul",
    "matrix_rank",
    "matrix_transpose",
    "matvec",
    "norm",
    "normalize",
    "pinv",
    "qr",
    "set_diag",
    "slogdet",
    "solve",
    "svd",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
    "transpose",
    "triangular_solve",
]
