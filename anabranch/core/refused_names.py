"""Public names of TensorFlow 1.15 that are not here on purpose: families of them, each with its reason and a way out.

docs/differences.md has a row for each family; `anabranch check --interface` counts its names apart from names that are
simply missing.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class RefusedFamily(NamedTuple):
    """A family of names.

    Attributes:
        family: how docs/differences.md calls it.
        pattern: a regular expression that the whole path of a name below `tf` matches.
        reason: why there is none here.
        instead: what to use.
    """

    family: str
    pattern: str
    reason: str
    instead: str


ONE_GRAPH: Final = (
    "tf.train.replica_device_setter spreads variables over tasks, tf.train.SyncReplicasOptimizer trains replicas in "
    "step, tf.device and placement policies (docs/devices.md) let one graph use several devices"
)
ANY_DEVICE: Final = (
    "the same graph runs in tf.Session, tf.train.MonitoredTrainingSession or tf.estimator.tpu.TPUEstimator with "
    "use_tpu=False on what devices JAX finds"
)
OTHER_RUNTIME: Final = "write the graph with tf.io.write_graph and convert it where TensorFlow is"
_VERSION_1: Final = "this is version 1 of the API"
RUN_GRAPHS: Final = "build operations and run them with tf.Session"
_SHARES: Final = "a session shares with the cluster that its target names; tf.train.Server makes a task"

REFUSALS: Final = (
    RefusedFamily(
        "tf.raw_ops of TPUs",
        r"raw_ops\.(\w*TPU\w*|(In|Out)feed\w*|Prelinearize\w*|AllToAll|CollectivePermute|CrossReplicaSum|WorkerHeartbeat)",
        "TensorFlow 1.15 itself has no kernel of it for CPUs or GPUs: it is a TPU's",
        "build the graph of one replica, which runs on what devices JAX finds",
    ),
    RefusedFamily(
        "tf.raw_ops.Nccl*",
        r"raw_ops\.Nccl\w+",
        "it is a call of NVIDIA's library for the devices of one machine",
        "tf.add_n with tf.device, or tf.raw_ops.CollectiveReduce",
    ),
    RefusedFamily(
        "tf.tpu",
        r"((contrib|estimator)\.)?tpu\.(?!CrossShardOptimizer|bfloat16_scope|cross_replica_sum|outside_compilation$).+",
        "its functions rewrite graphs for TPUs",
        ANY_DEVICE,
    ),
    RefusedFamily(
        "tf.keras",
        r"keras(\..+)?",
        "the package keras 2.3.1 is what serves it (docs/decisions/0048)",
        "`anabranch run` brings it where the package is installed; tf.layers, tf.losses and tf.train build and train "
        "networks",
    ),
    RefusedFamily(
        "tf.lite",
        r"(contrib\.)?lite(\..+)?",
        "it converts graphs for another runtime, whose compiler is TensorFlow's",
        OTHER_RUNTIME,
    ),
    RefusedFamily(
        "tf.distribute.*Strategy and what belongs to them",
        r"distribute\.(?!Server|cluster_resolver|get_(strategy|replica_context)|has_|in_)(\w+|experimental\.\w+)"
        r"|contrib\.distribute(\.\w+)?",
        "no strategy runs a program for each replica: one graph describes them all",
        ONE_GRAPH,
    ),
    RefusedFamily(
        "tf.distribute.cluster_resolver of clouds",
        r"distribute\.cluster_resolver\.\w+|contrib\.cluster_resolver\.TPUClusterResolver",
        "no service of a cloud or a scheduler is asked for addresses",
        "tf.distribute.cluster_resolver.SimpleClusterResolver takes a cluster that the program finds out, "
        "TFConfigClusterResolver one from the environment",
    ),
    RefusedFamily(
        "tf.enable_eager_execution", "enable_eager_execution", "graphs are what this system runs", RUN_GRAPHS
    ),
    RefusedFamily("tf.enable_v2_behavior", "enable_v2_behavior", _VERSION_1, RUN_GRAPHS),
    RefusedFamily(
        "tf.enable_tensor_equality",
        "enable_tensor_equality",
        _VERSION_1,
        "tensors compare by identity; tf.equal compares values",
    ),
    RefusedFamily(
        "tf.enable_v2_tensorshape",
        "enable_v2_tensorshape",
        _VERSION_1,
        "dimensions are tf.Dimension objects; use .value or tf.dimension_value",
    ),
    RefusedFamily(
        "tf.load_op_library and its like",
        r"load_\w*library|pywrap_tensorflow",
        "compiled code of TensorFlow needs TensorFlow",
        "tf.py_func calls Python, tf.register_kernel adds a kernel",
    ),
    RefusedFamily("tf.wrap_function", "wrap_function", "it exists for eager execution", "tf.function makes functions"),
    RefusedFamily(
        "tf.saved_model.save, load_v2, tf.saved_model.experimental",
        r"saved_model\.(save|load_v2|experimental(\..+)?)",
        "it saves and loads objects, and TensorFlow 1.15, too, does that in eager execution only",
        "tf.saved_model.Builder and tf.saved_model.simple_save write a session's model, tf.saved_model.load reads one",
    ),
    RefusedFamily(
        "tf.train.do_quantize_training_on_graphdef",
        r"train\.do_quantize_training_on_graphdef",
        "no graph is rewritten for training with quantised numbers",
        "tf.quantization has fake quantisation for training, tf.graph_util.quantize_graph rewrites a trained graph",
    ),
    RefusedFamily(
        "tf.config.experimental_connect_to_cluster, experimental_connect_to_host",
        r"config\.experimental_connect_to_\w+",
        "it connects eager execution",
        _SHARES,
    ),
)
_PATTERNS: Final = tuple((re.compile(refusal.pattern), refusal) for refusal in REFUSALS)


def refusal_of(path: str) -> RefusedFamily | None:
    """The family of a name, such as "lite.Interpreter"; None where it is not refused."""
    return next((refusal for pattern, refusal in _PATTERNS if pattern.fullmatch(path)), None)
