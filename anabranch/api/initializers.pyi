from anabranch.frontend.control_flow.grouping import tables_initializer as tables_initializer
from anabranch.frontend.variables.functions import (
    global_variables_initializer,
    local_variables_initializer,
    variables_initializer,
)
from anabranch.frontend.variables.initializers import (
    Identity,
    constant_initializer,
    glorot_normal_initializer,
    glorot_uniform_initializer,
    he_normal as he_normal,
    he_uniform as he_uniform,
    lecun_normal as lecun_normal,
    lecun_uniform as lecun_uniform,
    ones_initializer,
    orthogonal_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal_initializer,
    uniform_unit_scaling_initializer,
    variance_scaling_initializer,
    zeros_initializer,
)

constant = constant_initializer
global_variables = global_variables_initializer
glorot_normal = glorot_normal_initializer
glorot_uniform = glorot_uniform_initializer
identity = Identity
local_variables = local_variables_initializer
ones = ones_initializer
orthogonal = orthogonal_initializer
random_normal = random_normal_initializer
random_uniform = random_uniform_initializer
truncated_normal = truncated_normal_initializer
uniform_unit_scaling = uniform_unit_scaling_initializer
variables = variables_initializer
variance_scaling = variance_scaling_initializer
zeros = zeros_initializer
