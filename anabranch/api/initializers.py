"""`tf.initializers`."""

from __future__ import annotations

from anabranch.frontend.grouping import tables_initializer
from anabranch.frontend.initializers import (
    Identity as identity,
    constant_initializer as constant,
    glorot_normal_initializer as glorot_normal,
    glorot_uniform_initializer as glorot_uniform,
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
    ones_initializer as ones,
    orthogonal_initializer as orthogonal,
    random_normal_initializer as random_normal,
    random_uniform_initializer as random_uniform,
    truncated_normal_initializer as truncated_normal,
    uniform_unit_scaling_initializer as uniform_unit_scaling,
    variance_scaling_initializer as variance_scaling,
    zeros_initializer as zeros,
)
from anabranch.frontend.variable_functions import (
    global_variables_initializer as global_variables,
    local_variables_initializer as local_variables,
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
    "tables_initializer",
    "truncated_normal",
    "uniform_unit_scaling",
    "variables",
    "variance_scaling",
    "zeros",
]
