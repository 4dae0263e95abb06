from anabranch import compat as compat, contrib as contrib, estimator as estimator, feature_column as feature_column
from anabranch.api import (
    app as app,
    audio as audio,
    autograph as autograph,
    bitwise as bitwise,
    config as config,
    data as data,
    debugging as debugging,
    distribute as distribute,
    distributions as distributions,
    dtypes as dtypes,
    errors as errors,
    experimental as experimental,
    flags as flags,
    gfile as gfile,
    graph_util as graph_util,
    image as image,
    initializers as initializers,
    io as io,
    layers as layers,
    linalg as linalg,
    logging as logging,
    lookup as lookup,
    losses as losses,
    manip as manip,
    math as math,
    metrics as metrics,
    nn as nn,
    profiler as profiler,
    python_io as python_io,
    quantization as quantization,
    queue as queue,
    ragged as ragged,
    random as random,
    resource_loader as resource_loader,
    saved_model as saved_model,
    sets as sets,
    signal as signal,
    sparse as sparse,
    spectral as spectral,
    strings as strings,
    summary as summary,
    sysconfig as sysconfig,
    test as test,
    tpu as tpu,
    train as train,
    user_ops as user_ops,
    version as version,
    xla as xla,
)
from anabranch.autodiff.aggregation import AggregationMethod as AggregationMethod
from anabranch.autodiff.custom import (
    RegisterGradient as RegisterGradient,
    custom_gradient as custom_gradient,
    no_gradient as no_gradient,
)
from anabranch.autodiff.gradients import (
    UnconnectedGradients as UnconnectedGradients,
    gradients as gradients,
    hessians as hessians,
)
from anabranch.core import nest as nest
from anabranch.core.device import DeviceSpec as DeviceSpec
from anabranch.core.devices import register_device as register_device
from anabranch.core.dimensions import Dimension as Dimension, dimension_value as dimension_value
from anabranch.core.dtypes import (
    QUANTIZED_DTYPES as QUANTIZED_DTYPES,
    DType as DType,
    as_dtype as as_dtype,
    bfloat16 as bfloat16,
    bool as bool,
    complex64 as complex64,
    complex128 as complex128,
    double as double,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    half as half,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    qint8 as qint8,
    qint16 as qint16,
    qint32 as qint32,
    quint8 as quint8,
    quint16 as quint16,
    resource as resource,
    string as string,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    variant as variant,
)
from anabranch.core.kernels import register_kernel as register_kernel
from anabranch.core.shapes import TensorShape as TensorShape, dimension_at_index as dimension_at_index
from anabranch.errors import OpError as OpError
from anabranch.frontend import raw_ops as raw_ops
from anabranch.frontend.arithmetic.clipping import (
    clip_by_average_norm as clip_by_average_norm,
    clip_by_global_norm as clip_by_global_norm,
    clip_by_norm as clip_by_norm,
    clip_by_value as clip_by_value,
    global_norm as global_norm,
)
from anabranch.frontend.arithmetic.contraction import einsum as einsum, tensordot as tensordot
from anabranch.frontend.arithmetic.elementwise import (
    acos as acos,
    acosh as acosh,
    add as add,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atanh as atanh,
    ceil as ceil,
    cos as cos,
    cosh as cosh,
    digamma as digamma,
    div_no_nan as div_no_nan,
    equal as equal,
    erf as erf,
    erfc as erfc,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    floor_div as floor_div,
    floordiv as floordiv,
    floormod as floormod,
    greater as greater,
    greater_equal as greater_equal,
    is_finite as is_finite,
    is_inf as is_inf,
    is_nan as is_nan,
    less as less,
    less_equal as less_equal,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    maximum as maximum,
    minimum as minimum,
    mod as mod,
    multiply as multiply,
    negative as negative,
    not_equal as not_equal,
    realdiv as realdiv,
    reciprocal as reciprocal,
    rint as rint,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    squared_difference as squared_difference,
    subtract as subtract,
    tan as tan,
    tanh as tanh,
    truncatediv as truncatediv,
    truncatemod as truncatemod,
)
from anabranch.frontend.arithmetic.linalg import (
    cholesky as cholesky,
    cholesky_solve as cholesky_solve,
    cross as cross,
    eye as eye,
    matmul as matmul,
    matrix_determinant as matrix_determinant,
    matrix_inverse as matrix_inverse,
    matrix_solve as matrix_solve,
    matrix_solve_ls as matrix_solve_ls,
    matrix_square_root as matrix_square_root,
    matrix_triangular_solve as matrix_triangular_solve,
    norm as norm,
    qr as qr,
    self_adjoint_eig as self_adjoint_eig,
    self_adjoint_eigvals as self_adjoint_eigvals,
    sparse_matmul as sparse_matmul,
    svd as svd,
    trace as trace,
)
from anabranch.frontend.arithmetic.math import (
    abs as abs,
    accumulate_n as accumulate_n,
    add_n as add_n,
    angle as angle,
    atan2 as atan2,
    betainc as betainc,
    complex as complex,
    conj as conj,
    div as div,
    divide as divide,
    igamma as igamma,
    igammac as igammac,
    imag as imag,
    lbeta as lbeta,
    log_sigmoid as log_sigmoid,
    logical_xor as logical_xor,
    polygamma as polygamma,
    pow as pow,
    real as real,
    round as round,
    scalar_mul as scalar_mul,
    truediv as truediv,
    zeta as zeta,
)
from anabranch.frontend.arithmetic.quantization import (
    dequantize as dequantize,
    fake_quant_with_min_max_args as fake_quant_with_min_max_args,
    fake_quant_with_min_max_args_gradient as fake_quant_with_min_max_args_gradient,
    fake_quant_with_min_max_vars as fake_quant_with_min_max_vars,
    fake_quant_with_min_max_vars_gradient as fake_quant_with_min_max_vars_gradient,
    fake_quant_with_min_max_vars_per_channel as fake_quant_with_min_max_vars_per_channel,
    fake_quant_with_min_max_vars_per_channel_gradient as fake_quant_with_min_max_vars_per_channel_gradient,
    quantize as quantize,
    quantize_v2 as quantize_v2,
    quantized_concat as quantized_concat,
)
from anabranch.frontend.arithmetic.random import (
    multinomial as multinomial,
    random_gamma as random_gamma,
    random_normal as random_normal,
    random_poisson as random_poisson,
    random_shuffle as random_shuffle,
    random_uniform as random_uniform,
    truncated_normal as truncated_normal,
)
from anabranch.frontend.arithmetic.reduction import (
    arg_max as arg_max,
    arg_min as arg_min,
    argmax as argmax,
    argmin as argmin,
    bincount as bincount,
    confusion_matrix as confusion_matrix,
    count_nonzero as count_nonzero,
    cumprod as cumprod,
    cumsum as cumsum,
    histogram_fixed_width as histogram_fixed_width,
    histogram_fixed_width_bins as histogram_fixed_width_bins,
    lin_space as lin_space,
    linspace as linspace,
    range as range,
    reduce_all as reduce_all,
    reduce_any as reduce_any,
    reduce_logsumexp as reduce_logsumexp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
)
from anabranch.frontend.arithmetic.spectral import (
    fft as fft,
    fft2d as fft2d,
    fft3d as fft3d,
    ifft as ifft,
    ifft2d as ifft2d,
    ifft3d as ifft3d,
)
from anabranch.frontend.arrays.casting import (
    cast as cast,
    saturate_cast as saturate_cast,
    to_bfloat16 as to_bfloat16,
    to_complex64 as to_complex64,
    to_complex128 as to_complex128,
    to_double as to_double,
    to_float as to_float,
    to_int32 as to_int32,
    to_int64 as to_int64,
)
from anabranch.frontend.arrays.constants import (
    constant as constant,
    fill as fill,
    one_hot as one_hot,
    ones as ones,
    ones_like as ones_like,
    placeholder as placeholder,
    placeholder_with_default as placeholder_with_default,
    zeros as zeros,
    zeros_like as zeros_like,
)
from anabranch.frontend.arrays.data_flow import (
    dynamic_partition as dynamic_partition,
    dynamic_stitch as dynamic_stitch,
    edit_distance as edit_distance,
    scatter_nd as scatter_nd,
    searchsorted as searchsorted,
    setdiff1d as setdiff1d,
    tensor_scatter_add as tensor_scatter_add,
    tensor_scatter_nd_add as tensor_scatter_nd_add,
    tensor_scatter_nd_sub as tensor_scatter_nd_sub,
    tensor_scatter_nd_update as tensor_scatter_nd_update,
    tensor_scatter_sub as tensor_scatter_sub,
    tensor_scatter_update as tensor_scatter_update,
    unique as unique,
    unique_with_counts as unique_with_counts,
    unravel_index as unravel_index,
)
from anabranch.frontend.arrays.gathering import (
    batch_gather as batch_gather,
    boolean_mask as boolean_mask,
    gather as gather,
    gather_nd as gather_nd,
    sequence_mask as sequence_mask,
    where as where,
    where_v2 as where_v2,
)
from anabranch.frontend.arrays.identities import (
    ensure_shape as ensure_shape,
    guarantee_const as guarantee_const,
    identity as identity,
    identity_n as identity_n,
    stop_gradient as stop_gradient,
)
from anabranch.frontend.arrays.joining import (
    concat as concat,
    parallel_stack as parallel_stack,
    split as split,
    stack as stack,
    unstack as unstack,
)
from anabranch.frontend.arrays.layout import (
    matrix_transpose as matrix_transpose,
    pad as pad,
    tile as tile,
    transpose as transpose,
)
from anabranch.frontend.arrays.patches import (
    extract_volume_patches as extract_volume_patches,
    fingerprint as fingerprint,
)
from anabranch.frontend.arrays.rearranging import (
    batch_to_space as batch_to_space,
    batch_to_space_nd as batch_to_space_nd,
    bitcast as bitcast,
    depth_to_space as depth_to_space,
    diag as diag,
    diag_part as diag_part,
    extract_image_patches as extract_image_patches,
    invert_permutation as invert_permutation,
    matrix_band_part as matrix_band_part,
    matrix_diag as matrix_diag,
    matrix_diag_part as matrix_diag_part,
    matrix_set_diag as matrix_set_diag,
    meshgrid as meshgrid,
    repeat as repeat,
    required_space_to_batch_paddings as required_space_to_batch_paddings,
    reverse as reverse,
    reverse_sequence as reverse_sequence,
    roll as roll,
    space_to_batch as space_to_batch,
    space_to_batch_nd as space_to_batch_nd,
    space_to_depth as space_to_depth,
)
from anabranch.frontend.arrays.segments import (
    segment_max as segment_max,
    segment_mean as segment_mean,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
    sparse_segment_mean as sparse_segment_mean,
    sparse_segment_sqrt_n as sparse_segment_sqrt_n,
    sparse_segment_sum as sparse_segment_sum,
    unsorted_segment_max as unsorted_segment_max,
    unsorted_segment_mean as unsorted_segment_mean,
    unsorted_segment_min as unsorted_segment_min,
    unsorted_segment_prod as unsorted_segment_prod,
    unsorted_segment_sqrt_n as unsorted_segment_sqrt_n,
    unsorted_segment_sum as unsorted_segment_sum,
)
from anabranch.frontend.arrays.shapes import (
    broadcast_dynamic_shape as broadcast_dynamic_shape,
    broadcast_static_shape as broadcast_static_shape,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    rank as rank,
    reshape as reshape,
    shape as shape,
    shape_n as shape_n,
    size as size,
    squeeze as squeeze,
)
from anabranch.frontend.arrays.slicing import newaxis as newaxis, slice as slice, strided_slice as strided_slice
from anabranch.frontend.arrays.sorting import argsort as argsort, sort as sort
from anabranch.frontend.arrays.strings import (
    as_string as as_string,
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
    reduce_join as reduce_join,
    regex_replace as regex_replace,
    string_join as string_join,
    string_strip as string_strip,
    string_to_hash_bucket as string_to_hash_bucket,
    string_to_hash_bucket_fast as string_to_hash_bucket_fast,
    string_to_hash_bucket_strong as string_to_hash_bucket_strong,
    string_to_number as string_to_number,
    substr as substr,
)
from anabranch.frontend.control_flow.batched_functions import (
    nondifferentiable_batch_function as nondifferentiable_batch_function,
)
from anabranch.frontend.control_flow.checks import (
    Assert as Assert,
    assert_equal as assert_equal,
    assert_greater as assert_greater,
    assert_greater_equal as assert_greater_equal,
    assert_integer as assert_integer,
    assert_less as assert_less,
    assert_less_equal as assert_less_equal,
    assert_near as assert_near,
    assert_negative as assert_negative,
    assert_non_negative as assert_non_negative,
    assert_non_positive as assert_non_positive,
    assert_none_equal as assert_none_equal,
    assert_positive as assert_positive,
    assert_proper_iterable as assert_proper_iterable,
    assert_rank as assert_rank,
    assert_rank_at_least as assert_rank_at_least,
    assert_rank_in as assert_rank_in,
    assert_same_float_dtype as assert_same_float_dtype,
    assert_scalar as assert_scalar,
    assert_type as assert_type,
    is_non_decreasing as is_non_decreasing,
    is_numeric_tensor as is_numeric_tensor,
    is_strictly_increasing as is_strictly_increasing,
)
from anabranch.frontend.control_flow.conditionals import case as case, cond as cond, switch_case as switch_case
from anabranch.frontend.control_flow.defined_functions import (
    grad_pass_through as grad_pass_through,
    recompute_grad as recompute_grad,
    vectorized_map as vectorized_map,
)
from anabranch.frontend.control_flow.eager_functions import py_function as py_function
from anabranch.frontend.control_flow.functional import foldl as foldl, foldr as foldr, map_fn as map_fn, scan as scan
from anabranch.frontend.control_flow.functions import function as function
from anabranch.frontend.control_flow.gradient_tape import GradientTape as GradientTape
from anabranch.frontend.control_flow.grouping import (
    group as group,
    initialize_all_tables as initialize_all_tables,
    no_op as no_op,
    tables_initializer as tables_initializer,
    tuple as tuple,
)
from anabranch.frontend.control_flow.numeric_checks import (
    add_check_numerics_ops as add_check_numerics_ops,
    check_numerics as check_numerics,
    verify_tensor_all_finite as verify_tensor_all_finite,
)
from anabranch.frontend.control_flow.printing import Print as Print, print as print, timestamp as timestamp
from anabranch.frontend.control_flow.script import numpy_function as numpy_function, py_func as py_func
from anabranch.frontend.control_flow.tensor_array import TensorArray as TensorArray
from anabranch.frontend.control_flow.tensor_array_spec import TensorArraySpec as TensorArraySpec
from anabranch.frontend.control_flow.while_loop import while_loop as while_loop
from anabranch.frontend.data.specs import OptionalSpec as OptionalSpec
from anabranch.frontend.framework import (
    add_to_collection as add_to_collection,
    add_to_collections as add_to_collections,
    colocate_with as colocate_with,
    container as container,
    control_dependencies as control_dependencies,
    convert_to_tensor_or_indexed_slices as convert_to_tensor_or_indexed_slices,
    convert_to_tensor_or_sparse_tensor as convert_to_tensor_or_sparse_tensor,
    device as device,
    get_collection as get_collection,
    get_collection_ref as get_collection_ref,
    get_seed as get_seed,
    get_static_value as get_static_value,
    init_scope as init_scope,
    is_tensor as is_tensor,
    name_scope as name_scope,
    op_scope as op_scope,
    set_random_seed as set_random_seed,
)
from anabranch.frontend.images.geometry import random_crop as random_crop
from anabranch.frontend.nn.ctc import ctc_loss_with_first_blank
from anabranch.frontend.platform.logging import get_logger as get_logger
from anabranch.frontend.platform.sysconfig import (
    CXX11_ABI_FLAG as CXX11_ABI_FLAG,
    MONOLITHIC_BUILD as MONOLITHIC_BUILD,
)
from anabranch.frontend.platform.version import (
    COMPILER_VERSION as COMPILER_VERSION,
    GIT_VERSION as GIT_VERSION,
    GRAPH_DEF_VERSION as GRAPH_DEF_VERSION,
    GRAPH_DEF_VERSION_MIN_CONSUMER as GRAPH_DEF_VERSION_MIN_CONSUMER,
    GRAPH_DEF_VERSION_MIN_PRODUCER as GRAPH_DEF_VERSION_MIN_PRODUCER,
    VERSION as VERSION,
)
from anabranch.frontend.ragged.specs import RaggedTensorSpec as RaggedTensorSpec
from anabranch.frontend.ragged.strings import string_split as string_split
from anabranch.frontend.ragged.tensor import RaggedTensor as RaggedTensor
from anabranch.frontend.resources.accumulators import (
    ConditionalAccumulator as ConditionalAccumulator,
    ConditionalAccumulatorBase as ConditionalAccumulatorBase,
    SparseConditionalAccumulator as SparseConditionalAccumulator,
)
from anabranch.frontend.resources.queues import (
    FIFOQueue as FIFOQueue,
    PaddingFIFOQueue as PaddingFIFOQueue,
    PriorityQueue as PriorityQueue,
    QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from anabranch.frontend.resources.session_tensors import (
    delete_session_tensor as delete_session_tensor,
    get_session_handle as get_session_handle,
    get_session_tensor as get_session_tensor,
)
from anabranch.frontend.resources.staging import CriticalSection as CriticalSection
from anabranch.frontend.sparse.arithmetic import (
    sparse_add as sparse_add,
    sparse_maximum as sparse_maximum,
    sparse_minimum as sparse_minimum,
    sparse_reduce_max as sparse_reduce_max,
    sparse_reduce_max_sparse as sparse_reduce_max_sparse,
    sparse_reduce_sum as sparse_reduce_sum,
    sparse_reduce_sum_sparse as sparse_reduce_sum_sparse,
    sparse_softmax as sparse_softmax,
    sparse_tensor_dense_matmul as sparse_tensor_dense_matmul,
)
from anabranch.frontend.sparse.form import (
    sparse_concat as sparse_concat,
    sparse_fill_empty_rows as sparse_fill_empty_rows,
    sparse_mask as sparse_mask,
    sparse_merge as sparse_merge,
    sparse_placeholder as sparse_placeholder,
    sparse_reorder as sparse_reorder,
    sparse_reset_shape as sparse_reset_shape,
    sparse_reshape as sparse_reshape,
    sparse_retain as sparse_retain,
    sparse_slice as sparse_slice,
    sparse_split as sparse_split,
    sparse_tensor_to_dense as sparse_tensor_to_dense,
    sparse_to_dense as sparse_to_dense,
    sparse_to_indicator as sparse_to_indicator,
    sparse_transpose as sparse_transpose,
)
from anabranch.frontend.sparse.serialization import (
    deserialize_many_sparse as deserialize_many_sparse,
    serialize_many_sparse as serialize_many_sparse,
    serialize_sparse as serialize_sparse,
)
from anabranch.frontend.specs import (
    IndexedSlicesSpec as IndexedSlicesSpec,
    SparseTensorSpec as SparseTensorSpec,
    TensorSpec as TensorSpec,
    TypeSpec as TypeSpec,
)
from anabranch.frontend.storage.encodings import (
    decode_compressed as decode_compressed,
    decode_json_example as decode_json_example,
    parse_tensor as parse_tensor,
    serialize_tensor as serialize_tensor,
)
from anabranch.frontend.storage.parsing import (
    FixedLenFeature as FixedLenFeature,
    FixedLenSequenceFeature as FixedLenSequenceFeature,
    SparseFeature as SparseFeature,
    VarLenFeature as VarLenFeature,
    decode_csv as decode_csv,
    matching_files as matching_files,
    parse_example as parse_example,
    parse_single_example as parse_single_example,
    read_file as read_file,
    write_file as write_file,
)
from anabranch.frontend.storage.readers import (
    FixedLengthRecordReader as FixedLengthRecordReader,
    IdentityReader as IdentityReader,
    LMDBReader as LMDBReader,
    ReaderBase as ReaderBase,
    TextLineReader as TextLineReader,
    TFRecordReader as TFRecordReader,
    WholeFileReader as WholeFileReader,
)
from anabranch.frontend.storage.sequence_examples import parse_single_sequence_example as parse_single_sequence_example
from anabranch.frontend.switches import (
    control_flow_v2_enabled as control_flow_v2_enabled,
    disable_control_flow_v2 as disable_control_flow_v2,
    disable_eager_execution as disable_eager_execution,
    disable_resource_variables as disable_resource_variables,
    disable_tensor_equality as disable_tensor_equality,
    disable_v2_behavior as disable_v2_behavior,
    disable_v2_tensorshape as disable_v2_tensorshape,
    enable_control_flow_v2 as enable_control_flow_v2,
    enable_eager_execution as enable_eager_execution,
    enable_resource_variables as enable_resource_variables,
    executing_eagerly as executing_eagerly,
    executing_eagerly_outside_functions as executing_eagerly_outside_functions,
    resource_variables_enabled as resource_variables_enabled,
)
from anabranch.frontend.variables.functions import (
    all_variables as all_variables,
    assert_variables_initialized as assert_variables_initialized,
    assign as assign,
    assign_add as assign_add,
    assign_sub as assign_sub,
    batch_scatter_update as batch_scatter_update,
    count_up_to as count_up_to,
    global_variables as global_variables,
    global_variables_initializer as global_variables_initializer,
    initialize_all_variables as initialize_all_variables,
    initialize_local_variables as initialize_local_variables,
    initialize_variables as initialize_variables,
    is_variable_initialized as is_variable_initialized,
    local_variables as local_variables,
    local_variables_initializer as local_variables_initializer,
    model_variables as model_variables,
    moving_average_variables as moving_average_variables,
    report_uninitialized_variables as report_uninitialized_variables,
    scatter_add as scatter_add,
    scatter_div as scatter_div,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_nd_add as scatter_nd_add,
    scatter_nd_sub as scatter_nd_sub,
    scatter_nd_update as scatter_nd_update,
    scatter_sub as scatter_sub,
    scatter_update as scatter_update,
    trainable_variables as trainable_variables,
    variables_initializer as variables_initializer,
)
from anabranch.frontend.variables.initializers import (
    constant_initializer as constant_initializer,
    glorot_normal_initializer as glorot_normal_initializer,
    glorot_uniform_initializer as glorot_uniform_initializer,
    ones_initializer as ones_initializer,
    orthogonal_initializer as orthogonal_initializer,
    random_normal_initializer as random_normal_initializer,
    random_uniform_initializer as random_uniform_initializer,
    truncated_normal_initializer as truncated_normal_initializer,
    uniform_unit_scaling_initializer as uniform_unit_scaling_initializer,
    variance_scaling_initializer as variance_scaling_initializer,
    zeros_initializer as zeros_initializer,
)
from anabranch.frontend.variables.module import Module as Module
from anabranch.frontend.variables.older_functions import (
    create_partitioned_variables as create_partitioned_variables,
    variable_op_scope as variable_op_scope,
)
from anabranch.frontend.variables.partitioned import (
    fixed_size_partitioner as fixed_size_partitioner,
    min_max_variable_partitioner as min_max_variable_partitioner,
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from anabranch.frontend.variables.policy import (
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
    variable_creator_scope as variable_creator_scope,
)
from anabranch.frontend.variables.scope import (
    VariableScope as VariableScope,
    get_local_variable as get_local_variable,
    get_variable as get_variable,
    get_variable_scope as get_variable_scope,
    no_regularizer as no_regularizer,
    variable_scope as variable_scope,
)
from anabranch.frontend.variables.store import AUTO_REUSE as AUTO_REUSE
from anabranch.frontend.variables.template import make_template as make_template
from anabranch.frontend.variables.variables import Variable as Variable
from anabranch.graph.collections import GraphKeys as GraphKeys
from anabranch.graph.composite import (
    IndexedSlices as IndexedSlices,
    SparseTensor as SparseTensor,
    SparseTensorValue as SparseTensorValue,
)
from anabranch.graph.conversion import (
    convert_to_tensor as convert_to_tensor,
    register_tensor_conversion_function as register_tensor_conversion_function,
)
from anabranch.graph.graph import (
    Graph as Graph,
    get_default_graph as get_default_graph,
    reset_default_graph as reset_default_graph,
)
from anabranch.graph.graphdef_import import import_graph_def as import_graph_def
from anabranch.graph.operation import Operation as Operation, Tensor as Tensor
from anabranch.placement.cost_model import CostModel as CostModel
from anabranch.placement.policy import PlacementPolicy as PlacementPolicy, PlacementRule as PlacementRule
from anabranch.proto.config_pb2 import (
    ConfigProto as ConfigProto,
    GPUOptions as GPUOptions,
    GraphOptions as GraphOptions,
    OptimizerOptions as OptimizerOptions,
    RunMetadata as RunMetadata,
    RunOptions as RunOptions,
)
from anabranch.proto.graph_pb2 import (
    AttrValue as AttrValue,
    GraphDef as GraphDef,
    NameAttrList as NameAttrList,
    NodeDef as NodeDef,
)
from anabranch.proto.summary_pb2 import (
    Event as Event,
    HistogramProto as HistogramProto,
    LogMessage as LogMessage,
    SessionLog as SessionLog,
    Summary as Summary,
    SummaryMetadata as SummaryMetadata,
)
from anabranch.proto.tensors import make_ndarray as make_ndarray, make_tensor_proto as make_tensor_proto
from anabranch.proto.training_pb2 import MetaGraphDef as MetaGraphDef, TensorInfo as TensorInfo
from anabranch.runtime.devices import XlaDevice as XlaDevice
from anabranch.session import (
    InteractiveSession as InteractiveSession,
    Session as Session,
    get_default_session as get_default_session,
)

ctc_loss_v2 = ctc_loss_with_first_blank
NoGradient = no_gradient
NotDifferentiable = no_gradient
reverse_v2 = reverse

__version__: str
