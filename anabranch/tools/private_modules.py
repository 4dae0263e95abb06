"""The private modules of TensorFlow that an aliased `tensorflow` has, and where each finds its names."""

from __future__ import annotations

from typing import Final

from anabranch.tools.private_contrib import PRIVATE_CONTRIB_MODULES
from anabranch.tools.private_further import further_modules

#: modules of `python.ops.distributions`
_DISTRIBUTIONS: Final = (
    *("bernoulli", "beta", "categorical", "dirichlet", "dirichlet_multinomial", "distribution", "distributions"),
    *("exponential", "gamma", "kullback_leibler", "laplace", "multinomial", "normal", "student_t", "uniform"),
)

#: Private modules: where their attributes are looked up, in this order. `tf` is the public package; `=` renames;
#: `generated` has the functions that TensorFlow generates for its operation types.
PRIVATE_MODULES: Final[dict[str, str]] = {
    "examples.tutorials.mnist.input_data": "anabranch.contrib.mnist_data",
    "examples.tutorials.mnist.mnist": "anabranch.contrib.mnist_network",
    "python.client.device_lib": "anabranch.tools.device_lib",
    "python.client.session": "tf anabranch.frontend.fetches",
    "python.client.timeline": "anabranch.runtime.timeline",
    "python.compat.compat": "tf.compat",
    "python.data": "tf.data",
    "python.data.experimental": "tf.data.experimental",
    "python.data.ops.dataset_ops": "tf.data DatasetV1=Dataset DatasetV2=Dataset",
    "python.data.ops.iterator_ops": "tf.data",
    "python.data.ops.readers": "tf.data",
    "python.data.util.nest": "anabranch.frontend.data.nest",
    "python.distribute.summary_op_util": "anabranch.compat.private.summary_scopes",
    "python.eager.backprop": "tf anabranch.frontend.control_flow.gradient_tape",
    "python.eager.context": "anabranch.compat.private.switches",
    "python.eager.monitoring": "anabranch.compat.private.monitoring",
    "python.eager.profiler": "anabranch.compat.private.eager_profiler",
    "python.estimator.estimator": "tf.estimator",
    "python.estimator.export.export": "tf.estimator.export",
    "python.estimator.export.export_output": "tf.estimator.export",
    "python.estimator.inputs.numpy_io": "tf.estimator.inputs",
    "python.estimator.model_fn": "tf.estimator",
    "python.estimator.run_config": "tf.estimator",
    "python.estimator.util": "anabranch.compat.private.function_arguments",
    "python.feature_column.feature_column": (
        "tf.feature_column anabranch.feature_column.columns anabranch.feature_column.embedding "
        "_FeatureColumn=FeatureColumn _DenseColumn=DenseColumn _CategoricalColumn=CategoricalColumn "
        "_EmbeddingColumn=EmbeddingColumn"
    ),
    "python.feature_column.feature_column_lib": "tf.feature_column",
    "python.feature_column.feature_column_v2": (
        "tf.feature_column anabranch.feature_column.columns anabranch.feature_column.embedding"
    ),
    "python.framework.common_shapes": "anabranch.core.shapes",
    "python.framework.composite_tensor": "anabranch.compat.private.graphs",
    "python.framework.constant_op": "anabranch.compat.private.shape_conversions tf",
    "python.framework.device": "anabranch.core.device DeviceSpecV1=DeviceSpec",
    "python.framework.device_spec": "anabranch.core.device DeviceSpecV1=DeviceSpec",
    "python.framework.dtypes": "anabranch.core.dtypes tf",
    "python.framework.errors": "tf.errors",
    "python.framework.errors_impl": "tf.errors",
    "python.framework.function": "anabranch.frontend.control_flow.defined_functions",
    "python.framework.graph_io": "tf.io tf.train",
    "python.framework.graph_util": "tf.graph_util",
    "python.framework.graph_util_impl": "tf.graph_util",
    "python.framework.importer": "tf",
    "python.framework.meta_graph": "anabranch.train.meta_graph",
    "python.framework.op_def_registry": "anabranch.compat.private.operation_types",
    "python.framework.ops": (
        "tf anabranch.frontend.framework anabranch.compat.private.graphs anabranch.train.meta_graph"
    ),
    "python.framework.random_seed": "anabranch.frontend.framework",
    "python.framework.smart_cond": "anabranch.frontend.layers.utils smart_constant_value=constant_value",
    "python.framework.sparse_tensor": "tf",
    "python.framework.tensor_shape": "anabranch.core.shapes anabranch.core.dimensions tf",
    "python.framework.tensor_spec": "tf anabranch.frontend.bounded_specs",
    "python.framework.tensor_util": (
        "tf anabranch.graph.constants constant_value=get_static_value MakeNdarray=make_ndarray"
    ),
    "python.framework.test_util": "anabranch.compat.private.test_modes tf.test TensorFlowTestCase=TestCase",
    "python.framework.versions": "tf.version",
    "python.framework.type_spec": "anabranch.compat.private.type_specs anabranch.frontend.specs",
    "python.keras.backend": (
        # the package's backend takes these of ours itself
        "anabranch.compat.private.keras_backend anabranch.compat.private.keras_rnn "
        "anabranch.compat.private.keras_settings keras.backend"
    ),
    "python.keras.engine.input_spec": "anabranch.frontend.layers.input_spec",
    "python.keras.utils.tf_utils": "anabranch.compat.private.keras_rnn anabranch.frontend.layers.utils",
    "python.layers.base": "anabranch.frontend.layers.base anabranch.frontend.layers.input_spec tf.layers",
    "python.layers.convolutional": (
        "anabranch.frontend.layers.convolutional tf.layers Convolution1D=Conv1D Convolution2D=Conv2D "
        "Convolution3D=Conv3D Convolution2DTranspose=Conv2DTranspose Convolution3DTranspose=Conv3DTranspose "
        "SeparableConvolution1D=SeparableConv1D SeparableConvolution2D=SeparableConv2D"
    ),
    "python.layers.core": "anabranch.frontend.layers.core tf.layers",
    "python.layers.layers": "tf.layers",
    "python.layers.normalization": "anabranch.frontend.layers.normalization tf.layers",
    "python.layers.pooling": "anabranch.frontend.layers.pooling tf.layers",
    "python.layers.utils": "anabranch.frontend.layers.utils",
    "python.lib.io.file_io": (
        "tf.io.gfile anabranch.io.gfile anabranch.compat.private.files FileIO=GFile file_exists=exists "
        "delete_file=remove delete_recursively=rmtree create_dir=mkdir recursive_create_dir=makedirs "
        "is_directory=isdir get_matching_files=glob list_directory=listdir"
    ),
    "python.lib.io.tf_record": "tf.python_io",
    "python.ops.array_ops": "tf anabranch.frontend.arrays.shapes generated",
    "python.ops.candidate_sampling_ops": "tf.nn",
    "python.ops.check_ops": "tf tf.debugging",
    "python.ops.clip_ops": "tf",
    "python.ops.confusion_matrix": "tf anabranch.frontend.measures.weights_broadcast",
    "python.ops.control_flow_ops": (
        "tf anabranch.frontend.control_flow.grouping anabranch.frontend.control_flow.conditionals "
        "anabranch.compat.private.branches generated"
    ),
    "python.ops.control_flow_util": "anabranch.compat.private.switches",
    "python.ops.critical_section_ops": "tf",
    "python.ops.ctc_ops": "tf.nn",
    "python.ops.custom_gradient": "tf",
    "python.ops.data_flow_ops": "tf anabranch.frontend.resources.queues anabranch.frontend.resources.staging generated",
    **{f"python.ops.distributions.{module}": "tf.distributions" for module in _DISTRIBUTIONS},
    "python.ops.distributions.util": "anabranch.compat.private.derived_seeds",
    "python.ops.embedding_ops": "tf.nn",
    "python.ops.functional_ops": "tf generated",
    "python.ops.gradient_checker": "tf.test",
    "python.ops.gradient_checker_v2": "anabranch.compat.private.gradient_checks",
    "python.ops.gradients": "tf",
    "python.ops.gradients_impl": "tf gradients_v2=gradients",
    "python.ops.histogram_ops": "tf",
    "python.ops.image_ops": "tf.image generated",
    "python.ops.image_ops_impl": "tf.image",
    "python.ops.init_ops": "tf tf.initializers anabranch.frontend.variables.initializers",
    "python.ops.inplace_ops": "anabranch.compat.private.in_place",
    "python.ops.io_ops": "tf generated",
    "python.ops.linalg.linear_operator_addition": "anabranch.compat.private.linear_operator_sums",
    "python.ops.linalg.linear_operator_util": "anabranch.compat.private.linear_operator_batches",
    "python.ops.list_ops": "anabranch.compat.private.tensor_lists generated",
    "python.ops.linalg_ops": "tf tf.linalg generated",
    "python.ops.logging_ops": "tf tf.summary generated",
    "python.ops.lookup_ops": "anabranch.contrib.lookup tf.lookup tf",
    "python.ops.losses.losses": "tf.losses",
    "python.ops.losses.losses_impl": "tf.losses",
    "python.ops.map_fn": "tf",
    "python.ops.math_ops": (
        "tf tf.math anabranch.compat.private.graphs anabranch.compat.private.reduced_shapes generated"
    ),
    "python.ops.metrics": "tf.metrics",
    "python.ops.metrics_impl": "tf.metrics anabranch.compat.private.metrics",
    "python.ops.nccl_ops": "tf.contrib.nccl",
    "python.ops.nn": "tf.nn",
    "python.ops.nn_impl": "tf.nn",
    "python.ops.nn_ops": "tf.nn generated",
    "python.ops.numerics": "tf",
    "python.ops.op_selector": "anabranch.frontend.graph_editor.selection",
    "python.ops.parsing_ops": "tf tf.io generated",
    "python.ops.partitioned_variables": "tf",
    "python.ops.random_ops": "tf tf.random anabranch.frontend.arithmetic.random",
    "python.ops.resource_variable_ops": "tf ResourceVariable=Variable anabranch.compat.private.graphs generated",
    "python.ops.resources": "anabranch.compat.private.resources",
    "python.ops.rnn": (
        "tf.nn anabranch.contrib.rnn_extras rnn_cell_impl=rnn_cell _transpose_batch_time=transpose_batch_time"
    ),
    "python.ops.rnn_cell": "tf.nn.rnn_cell",
    "python.ops.rnn_cell_impl": "tf.nn.rnn_cell anabranch.compat.private.rnn_cells",
    "python.ops.script_ops": "tf",
    "python.ops.sparse_ops": "tf tf.sparse generated",
    "python.ops.spectral_ops_test_util": "anabranch.compat.private.test_modes",
    "python.ops.special_math_ops": "tf",
    "python.ops.standard_ops": "tf",
    "python.ops.state_ops": "tf generated",
    "python.ops.string_ops": "tf tf.strings generated",
    "python.ops.summary_op_util": "anabranch.compat.private.summary_scopes",
    "python.ops.summary_ops": "tf.summary",
    "python.ops.summary_ops_v2": "tf.contrib.summary anabranch.compat.private.summary_scopes",
    "python.ops.template": "tf",
    "python.ops.tensor_array_ops": "tf",
    "python.ops.unconnected_gradients": "tf",
    "python.ops.variable_scope": (
        "tf anabranch.frontend.variables.scope anabranch.compat.private.scopes variable=Variable"
    ),
    "python.ops.variables": (
        "tf anabranch.frontend.variables.variables anabranch.frontend.variables.partitioned VariableV1=Variable"
    ),
    "python.grappler.tf_optimizer": "anabranch.compat.private.graph_optimizer",
    "python.ops.weights_broadcast_ops": "anabranch.frontend.measures.weights_broadcast",
    "python.platform.app": "tf.app",
    "python.platform.flags": "tf.flags",
    "python.platform.gfile": "tf.gfile",
    "python.platform.googletest": "tf.test",
    "python.platform.resource_loader": "tf.resource_loader",
    "python.platform.test": "tf.test",
    "python.platform.tf_logging": "tf.logging",
    "python.pywrap_tensorflow": (
        "anabranch.compat.private.event_writer anabranch.compat.private.branches tf.train "
        "EventsWriter=PrefixedEventsWriter"
    ),
    "python.pywrap_tensorflow_internal": (
        "anabranch.compat.private.event_writer anabranch.compat.private.branches tf.train "
        "EventsWriter=PrefixedEventsWriter"
    ),
    "python.saved_model.builder": "tf.saved_model.builder tf.saved_model",
    "python.saved_model.builder_impl": "tf.saved_model.builder",
    "python.saved_model.constants": "anabranch.serving.constants",
    "python.saved_model.loader": "tf.saved_model.loader tf.saved_model",
    "python.saved_model.loader_impl": "anabranch.serving.loader",
    "python.saved_model.main_op": "tf.saved_model.main_op",
    "python.saved_model.main_op_impl": "tf.saved_model.main_op",
    "python.saved_model.nested_structure_coder": "anabranch.compat.private.structure_messages",
    "python.saved_model.saved_model": "tf.saved_model",
    "python.saved_model.signature_constants": "tf.saved_model.signature_constants",
    "python.saved_model.signature_def_utils": "tf.saved_model.signature_def_utils",
    "python.saved_model.signature_def_utils_impl": "tf.saved_model.signature_def_utils",
    "python.saved_model.simple_save": "tf.saved_model",
    "python.saved_model.tag_constants": "tf.saved_model.tag_constants",
    "python.saved_model.utils": "tf.saved_model.utils",
    "python.saved_model.utils_impl": "tf.saved_model.utils",
    "python.summary.summary": "tf.summary",
    "python.summary.summary_iterator": "tf.train",
    "python.summary.writer.writer": "tf.summary",
    "python.summary.writer.writer_cache": "tf.summary",
    "python.tf2": "anabranch.compat.private.switches",
    "python.tpu.tpu_config": "tf.contrib.tpu",
    "python.tpu.tpu_estimator": "tf.contrib.tpu",
    "python.tpu.tpu_function": "anabranch.compat.private.replicas_on_chips",
    "python.tpu.tpu_optimizer": "tf.tpu",
    "python.tools.freeze_graph": "anabranch.compat.private.freezing",
    "python.tools.inspect_checkpoint": "anabranch.compat.private.freezing",
    "python.tools.optimize_for_inference_lib": "anabranch.compat.private.freezing",
    "python.tools.strip_unused_lib": "anabranch.compat.private.freezing",
    "python.training.adagrad": "tf.train",
    "python.training.adam": "tf.train",
    "python.training.basic_session_run_hooks": "tf.train",
    "python.training.checkpoint_management": "tf.train",
    "python.training.checkpoint_state_pb2": "anabranch.proto.training_pb2",
    "python.training.checkpoint_utils": "tf.train",
    "python.training.coordinator": "tf.train",
    "python.training.device_setter": (
        "tf.train anabranch.train.device_setter _RoundRobinStrategy=RoundRobinStrategy "
        "_ReplicaDeviceChooser=ReplicaDeviceChooser"
    ),
    "python.training.evaluation": "anabranch.compat.private.evaluation",
    "python.training.ftrl": "tf.train",
    "python.training.gradient_descent": "tf.train",
    "python.training.input": "tf.train",
    "python.training.learning_rate_decay": "tf.train",
    "python.training.momentum": "tf.train",
    "python.training.monitored_session": "tf.train anabranch.train.hooked_session _HookedSession=HookedSession",
    "python.training.moving_averages": "anabranch.train.moving_averages tf.train",
    "python.training.optimizer": "tf.train anabranch.train.optimizer _deduplicate_indexed_slices=deduplicated",
    "python.training.queue_runner": "tf.train",
    "python.training.queue_runner_impl": "tf.train",
    "python.training.rmsprop": "tf.train",
    "python.training.saver": "tf.train anabranch.compat.private.savers",
    "python.training.session_manager": "tf.train",
    "python.training.session_run_hook": "tf.train",
    "python.training.slot_creator": "anabranch.train.slot_creator",
    "python.training.summary_io": "tf.summary tf.train",
    "python.training.supervisor": "tf.train",
    "python.training.sync_replicas_optimizer": "tf.train",
    "python.training.saving.saveable_object": "anabranch.train.saveables",
    "python.training.tracking.base": "anabranch.core.trackables anabranch.train.object_saveables",
    "python.training.tracking.data_structures": "anabranch.compat.private.tracking tf.contrib.checkpoint",
    "python.training.tracking.graph_view": "anabranch.train.object_graph",
    "python.training.tracking.python_state": "tf.train.experimental",
    "python.training.tracking.tracking": "anabranch.core.trackables anabranch.compat.private.tracking",
    "python.training.tracking.util": (
        "anabranch.compat.private.tracking tf.train tf.contrib.checkpoint anabranch.train.object_checkpoints "
        "anabranch.train.load_status anabranch.train.object_inspection CheckpointV1=Checkpoint"
    ),
    "python.training.training": "tf.train",
    "python.training.training_util": "anabranch.train.training_util tf.train",
    "python.util.all_util": "anabranch.compat.private.documented_names",
    "python.util.compat": "tf.compat anabranch.compat.private.collections_names",
    "python.util.deprecation": "anabranch.compat.private.deprecation",
    "python.util.function_utils": "anabranch.compat.private.function_arguments",
    "python.util.lazy_loader": "anabranch.compat.private.lazy_loader",
    "python.util.nest": "anabranch.core.nest anabranch.compat.private.nests",
    "python.util.serialization": "anabranch.compat.private.json_types",
    "python.util.tf_contextlib": "anabranch.compat.private.decorators",
    "python.util.tf_decorator": "anabranch.compat.private.decorators",
    "python.util.tf_inspect": "anabranch.compat.private.inspection inspect",
    "core.example.example_pb2": "anabranch.proto.example_pb2",
    "core.example.feature_pb2": "anabranch.proto.example_pb2",
    "core.framework.attr_value_pb2": "anabranch.proto.graph_pb2",
    "core.framework.cost_graph_pb2": "anabranch.proto.step_stats_pb2",
    "core.framework.function_pb2": "anabranch.proto.graph_pb2",
    "core.framework.graph_pb2": "anabranch.proto.graph_pb2",
    "core.framework.node_def_pb2": "anabranch.proto.graph_pb2",
    "core.framework.op_def_pb2": "anabranch.proto.graph_pb2",
    "core.framework.step_stats_pb2": "anabranch.proto.step_stats_pb2",
    "core.framework.summary_pb2": "anabranch.proto.summary_pb2",
    "core.framework.tensor_pb2": "anabranch.proto.graph_pb2",
    "core.framework.tensor_shape_pb2": "anabranch.proto.graph_pb2",
    "core.framework.types_pb2": "anabranch.proto.graph_pb2",
    "core.framework.variable_pb2": "anabranch.proto.saved_object_pb2 anabranch.proto.training_pb2",
    "core.framework.versions_pb2": "anabranch.proto.graph_pb2",
    "core.lib.core.error_codes_pb2": "anabranch.proto.error_code_pb2",
    "core.protobuf.config_pb2": "anabranch.proto.config_pb2",
    "core.protobuf.meta_graph_pb2": "anabranch.proto.training_pb2",
    "core.protobuf.queue_runner_pb2": "anabranch.proto.training_pb2",
    "core.protobuf.rewriter_config_pb2": "anabranch.proto.config_pb2",
    "core.protobuf.saved_model_pb2": "anabranch.proto.training_pb2",
    "core.protobuf.saver_pb2": "anabranch.proto.training_pb2",
    "core.protobuf.struct_pb2": "anabranch.proto.saved_object_pb2",
    "core.protobuf.tensorflow_server_pb2": "anabranch.proto.config_pb2",
    "core.profiler.tfprof_log_pb2": "anabranch.proto.tfprof_pb2",
    "core.util.event_pb2": "anabranch.proto.summary_pb2",
    "core.util.test_log_pb2": "anabranch.proto.test_log_pb2",
    **PRIVATE_CONTRIB_MODULES,
}
PRIVATE_MODULES.update(
    {path: entry for path, entry in further_modules(PRIVATE_MODULES).items() if path not in PRIVATE_MODULES}
)
