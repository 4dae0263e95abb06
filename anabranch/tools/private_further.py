"""More private modules of TensorFlow, each of which has names of a public one, as `private_modules` lists others."""

from __future__ import annotations

from typing import Final

#: by the package of private modules: where their names are, and which modules there are
_FOLDERS: Final[dict[str, tuple[str, str]]] = {
    "data.experimental.ops": (
        "tf.data.experimental tf.contrib.data",
        """batching cardinality counter distribute_options enumerate_ops error_ops get_single_element grouping
        interleave_ops iterator_ops optimization_options parsing_ops prefetching_ops random_ops readers resampling
        scan_ops shuffle_ops stats_aggregator stats_ops stats_options take_while_ops threading_options unique
        writers""",
    ),
    "estimator.canned": ("tf.estimator", "baseline boosted_trees dnn dnn_linear_combined linear parsing_utils"),
    "estimator.inputs": ("tf.estimator.inputs", "inputs pandas_io"),
    "estimator": ("tf.estimator", "estimator_lib exporter training"),
    "ops.linalg": ("tf.linalg", "linalg linalg_impl"),
    "ops.losses": ("tf.losses", "loss_reduction util"),
    "ops.parallel_for": ("tf", "control_flow_ops"),
    "ops.ragged": (
        "tf.ragged tf",
        """ragged_array_ops ragged_concat_ops ragged_conversion_ops ragged_factory_ops ragged_functional_ops
        ragged_map_ops ragged_math_ops ragged_string_ops ragged_tensor ragged_tensor_value""",
    ),
    "ops.signal": (
        "tf.signal",
        "dct_ops fft_ops mel_ops mfcc_ops reconstruction_ops shape_ops signal spectral_ops window_ops",
    ),
    "platform": ("tf.sysconfig", "sysconfig"),
    "profiler": ("tf.profiler", "model_analyzer option_builder profiler tfprof_logger"),
    "training.experimental": ("tf.train.experimental", "loss_scale loss_scale_optimizer mixed_precision"),
    "training": (
        "tf.train",
        """adadelta adagrad_da basic_loops checkpoint_ops proximal_adagrad proximal_gradient_descent server_lib
        warm_starting_util""",
    ),
}

#: modules of gradients, which programs import so that they are registered, as they are here from the start
_GRADIENTS: Final = "array control_flow cudnn_rnn data_flow image linalg math nn random rnn sparse state tensor_array"

#: modules that were elsewhere before 1.15, by their place now
_MOVED: Final = {
    "training.checkpointable.base": "training.tracking.base",
    "training.checkpointable.data_structures": "training.tracking.data_structures",
    "training.checkpointable.tracking": "training.tracking.tracking",
    "training.checkpointable.util": "training.tracking.util",
    "training.saveable_object": "training.saving.saveable_object",
}


def further_modules(known: dict[str, str]) -> dict[str, str]:
    """The entries of `PRIVATE_MODULES` that these modules are.

    Args:
        known: the others, among which the present places of moved modules are.
    """
    found = {
        f"python.{folder}.{name}": sources for folder, (sources, names) in _FOLDERS.items() for name in names.split()
    }
    found |= {f"python.{former}": known[f"python.{now}"] for former, now in _MOVED.items()}
    found |= {f"python.ops.{kind}_grad": "tf" for kind in _GRADIENTS.split()}
    return found | {
        "core.framework.resource_handle_pb2": "anabranch.proto.graph_pb2",
        "core.protobuf.checkpointable_object_graph_pb2": (
            "anabranch.proto.saved_object_pb2 CheckpointableObjectGraph=TrackableObjectGraph"
        ),
        "core.protobuf.cluster_pb2": "anabranch.proto.config_pb2",
        "core.protobuf.saved_object_graph_pb2": "anabranch.proto.saved_object_pb2",
        "core.protobuf.trackable_object_graph_pb2": "anabranch.proto.saved_object_pb2",
        "core.protobuf.tensor_bundle_pb2": "anabranch.proto.training_pb2",
        "python.data.ops.optional_ops": "tf.data.experimental",
        "python.distribute.distribution_strategy_context": "tf.distribute",
        "python.distribute.reduce_util": "tf.distribute",
        "python.eager.def_function": "tf",
        "python.eager.function": "tf defun=function",
        "python.feature_column.sequence_feature_column": "tf.contrib.feature_column tf.feature_column",
        "python.framework.indexed_slices": "tf",
        "python.framework.load_library": "tf",
        "python.framework.tensor_conversion_registry": "tf",
        "python.lib.io.python_io": "tf.python_io",
        "python.module.module": "tf",
        "python.ops.batch_ops": "tf",
        "python.ops.bitwise_ops": "tf.bitwise generated",
        "python.ops.clustering_ops": "anabranch.estimator.kmeans KMeans=KMeansGraph",
        "python.ops.cond_v2": "tf cond_v2=cond",
        "python.ops.init_ops_v2": "tf.compat.v2.initializers tf.initializers",
        "python.ops.manip_ops": "tf.manip tf",
        "python.ops.proto_ops": "tf.io",
        "python.ops.session_ops": "tf",
        "python.ops.sets": "tf.sets",
        "python.ops.sets_impl": "tf.sets",
        "python.ops.sort_ops": "tf",
        "python.ops.spectral_ops": "tf.spectral tf.signal tf",
        "python.ops.stateful_random_ops": "tf.random.experimental",
        "python.ops.stateless_random_ops": "tf.random",
        "python.ops.user_ops": "tf.user_ops",
        "python.summary.writer.event_file_writer": "anabranch.compat.private.event_writer tf.summary",
        "python.training.distribute": "tf.distribute",
        "python.training.distribution_strategy_context": "tf.distribute",
        "python.user_ops.user_ops": "tf.user_ops",
    }
