from anabranch.api import nest as nest
from anabranch.compat.private.deprecation import (
    deprecated as deprecated,
    deprecated_arg_values as deprecated_arg_values,
    deprecated_args as deprecated_args,
)
from anabranch.compat.private.graphs import (
    prepend_name_scope as prepend_name_scope,
    strip_name_scope as strip_name_scope,
)
from anabranch.contrib.checkpoint_initializers import (
    load_and_remap_matrix_initializer as load_and_remap_matrix_initializer,
    load_embedding_initializer as load_embedding_initializer,
    load_linear_multiclass_bias_initializer as load_linear_multiclass_bias_initializer,
    load_variable_slot_initializer as load_variable_slot_initializer,
)
from anabranch.contrib.framework_checks import (
    assert_scalar_int as assert_scalar_int,
    get_placeholders as get_placeholders,
    py_func as py_func,
    reduce_sum_n as reduce_sum_n,
    remove_squeezable_dimensions as remove_squeezable_dimensions,
    with_same_shape as with_same_shape,
    with_shape as with_shape,
    zero_initializer as zero_initializer,
)
from anabranch.contrib.fused_graphs import fuse_op as fuse_op
from anabranch.contrib.orthogonal_kernels import (
    ConvolutionDeltaOrthogonal,
    ConvolutionOrthogonal1D,
    ConvolutionOrthogonal2D,
    ConvolutionOrthogonal3D,
)
from anabranch.contrib.record_input import RecordBatches
from anabranch.frontend.arrays.sorting import argsort as argsort, sort as sort
from anabranch.frontend.bounded_specs import BoundedTensorSpec as BoundedTensorSpec
from anabranch.frontend.control_flow.checks import (
    assert_same_float_dtype as assert_same_float_dtype,
    assert_scalar as assert_scalar,
    is_non_decreasing as is_non_decreasing,
    is_numeric_tensor as is_numeric_tensor,
    is_strictly_increasing as is_strictly_increasing,
)
from anabranch.frontend.control_flow.conditionals import (
    smart_case as smart_case,
    smart_constant_value as smart_constant_value,
)
from anabranch.frontend.framework import (
    convert_to_tensor_or_sparse_tensor as convert_to_tensor_or_sparse_tensor,
    is_tensor as is_tensor,
)
from anabranch.frontend.layers.utils import smart_cond as smart_cond
from anabranch.frontend.resources.staging import CriticalSection as CriticalSection
from anabranch.frontend.specs import TensorSpec as TensorSpec
from anabranch.tools.contributed_names import framework
from anabranch.train.checkpoint_utils import (
    init_from_checkpoint as init_from_checkpoint,
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
)
from anabranch.train.training_util import (
    assert_global_step as assert_global_step,
    create_global_step as create_global_step,
    get_global_step as get_global_step,
    get_or_create_global_step as get_or_create_global_step,
)

convolutional_delta_orthogonal = ConvolutionDeltaOrthogonal
convolutional_orthogonal_1d = ConvolutionOrthogonal1D
convolutional_orthogonal_2d = ConvolutionOrthogonal2D
convolutional_orthogonal_3d = ConvolutionOrthogonal3D
RecordInput = RecordBatches

__getattr__ = framework
