"""`tf.initializers`."""

from __future__ import annotations

from anabranch.frontend.array import identity
from anabranch.frontend.initializers import (
    constant_initializer as constant,
)
from anabranch.frontend.initializers import (
    glorot_normal_initializer as glorot_normal,
)
from anabranch.frontend.initializers import (
    glorot_uniform_initializer as glorot_uniform,
)
from anabranch.frontend.initializers import (
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
)
from anabranch.frontend.initializers import (
    ones_initializer as ones,
)
from anabranch.frontend.initializers import (
    orthogonal_initializer as orthogonal,
)
from anabranch.frontend.initializers import (
    random_normal_initializer as random_normal,
)
from anabranch.frontend.initializers import (
    random_uniform_initializer as random_uniform,
)
from anabranch.frontend.initializers import (
    truncated_normal_initializer as truncated_normal,
)
from anabranch.frontend.initializers import (
    uniform_unit_scaling_initializer as uniform_unit_scaling,
)
from anabranch.frontend.initializers import (
    variance_scaling_initializer as variance_scaling,
)
from anabranch.frontend.initializers import (
    zeros_initializer as zeros,
)
from anabranch.frontend.variable_functions import (
    global_variables_initializer as global_variables,
)
from anabranch.frontend.variable_functions import (
    local_variables_initializer as local_variables,
)
from anabranch.frontend.variable_functions import (
    variables_initializer as variables,
)

__all__ = [
    "constant",
    "global_variables",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "local_variables",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "uniform_unit_scaling",
    "variables",
    "variance_scaling",
    "zeros",
]
