"""What to say of a public name of TensorFlow 1.15 that is not here, instead of letting Python guess another name.

`tensorflow_names.txt` lists these names, one module to a line.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
from collections.abc import Iterable
from importlib import resources
from typing import Final

from anabranch.core import former_names, refused_names

_LISTED: Final = "tensorflow_names.txt"
_COLUMNS: Final = (
    "tf.feature_column has the columns, linear_model, shared_embedding_columns and make_parse_example_spec"
)
#: what is said of a module of `tf.contrib` in Python alone, which a program may bring along
_COPY: Final = (
    "it is written in Python on names that are here: copy the folder tensorflow/contrib/{} of TensorFlow 1's sources "
    "into your program, and let its imports lead there"
)
#: modules of `tf.contrib` that are so
_IN_PYTHON: Final = ("constrained_optimization", "grid_rnn", "kernel_methods", "labeled_tensor", "testing")
_SERVICES: Final = "tf.data.Dataset.from_generator reads by that service's own package for Python"
#: by the longest beginning of a name of `tf.contrib`, which never had a list: a way out
_WAYS_OUT: Final[dict[str, str]] = {
    "contrib": "dir(tf.{module}) lists what is there; copy the rest from TensorFlow's sources into your program",
    **{f"contrib.{module}": _COPY.format(module) for module in _IN_PYTHON},
    **{f"contrib.{service}": _SERVICES for service in ("bigtable", "hadoop", "ignite", "kafka", "kinesis")},
    "contrib.batching": "tf.nondifferentiable_batch_function batches the calls of a function",
    "contrib.bayesflow": "the package tensorflow-probability 0.8 has its methods, and runs under `anabranch run`",
    "contrib.boosted_trees": "tf.estimator.BoostedTreesClassifier and BoostedTreesRegressor learn trees",
    "contrib.cloud": "files at gs:// need the extra: pip install 'anabranch[remote]'",
    "contrib.decision_trees": "tf.estimator.BoostedTreesClassifier and BoostedTreesRegressor learn trees",
    "contrib.distributions": "the package tensorflow-probability 0.8 has further distributions and bijectors, and runs "
    "under `anabranch run`",
    "contrib.eager": refused_names.RUN_GRAPHS,
    "contrib.factorization": "scikit-learn factorizes matrices and mixes Gaussians, whose results are arrays to feed",
    "contrib.estimator": "tf.estimator has what became of this module",
    "contrib.ffmpeg": "tf.audio.decode_wav reads WAV; a package for Python reads others in a tf.py_func",
    "contrib.fused_conv": "XLA fuses tf.nn.conv2d, tf.nn.bias_add and tf.nn.relu by itself",
    "contrib.input_pipeline": "tf.data reads and repeats lists of files",
    "contrib.keras": "under `anabranch run` it is tf.keras, which the package keras 2.3.1 serves",
    "contrib.layers.scattered_embedding_column": _COLUMNS,
    "contrib.learn": "tf.estimator has what became of the estimators of this module",
    "contrib.learn.DynamicRnnEstimator": "tf.contrib.estimator.RNNEstimator is a network over steps with a head",
    "contrib.learn.StateSavingRnnEstimator": "tf.contrib.estimator.RNNEstimator is a network over steps with a head",
    "contrib.libsvm": "scikit-learn's load_svmlight_file reads such files, tf.data.Dataset.from_tensor_slices arrays",
    "contrib.linear_optimizer": "tf.estimator.experimental.LinearSDCA trains linear models so",
    "contrib.meta_graph_transform": "tf.graph_util changes graphs for inference",
    "contrib.nearest_neighbor": "tf.raw_ops.NearestNeighbors finds neighbours",
    "contrib.optimizer_v2": "tf.train has the optimizers by the same names",
    "contrib.periodic_resample": "tf.reshape, tf.depth_to_space and tf.transpose order elements anew",
    "contrib.quantization": "tf.quantization has these functions, and tf.raw_ops the operation types",
    "contrib.receptive_field": "its authors carry it on as a package of that name",
    "contrib.remote_fused_graph": "every step is compiled by XLA already: run the graph as it is",
    "contrib.rpc": "tf.py_func calls a package for Python that speaks to the server",
    "contrib.saved_model": "under `anabranch run` it is there, where the package keras 2.3.1 is installed",
    "contrib.session_bundle": "tf.saved_model reads and writes models for serving",
    "contrib.stat_summarizer": "tf.RunMetadata and tf.profiler tell what a step took",
    "contrib.tensor_forest": "scikit-learn has random forests, whose predictions tf.py_func brings into a graph",
    "contrib.timeseries": "the package tensorflow-probability 0.8 has models of time series (tfp.sts)",
    "contrib.tensorrt": "every step is compiled by XLA already: run the graph as it is",
}

#: by the beginning of a name: what serves the names, its module, and the extra that brings it
_PACKAGES: Final = {
    f"contrib.{module}": ("tf-slim", "tf_slim", "contrib")
    for module in ("framework", "layers", "losses", "metrics", "slim", "training")
}


def is_tensorflows(module: str, name: str) -> bool:
    """Whether TensorFlow 1.15 has a public name, or another of its versions has one that is known here.

    Args:
        module: the public module, such as "nn.rnn_cell"; "" for the package.
        name: the name in it.
    """
    path = f"{module}.{name}" if module else name
    known = name in names().get(module, ()) or former_names.instead_of(path) is not None
    return module.split(".")[0] == "contrib" or known


def absence(module: str, name: str, present: Iterable[str] = ()) -> str:
    """A message that says that there is no such name, with a way out.

    Args:
        module, name: as for `is_tensorflows`.
        present: the names that the module has here, among which a similar one may serve.
    """
    path = f"{module}.{name}" if module else name
    if package := _package_to_install(path):
        distribution, _, extra = package
        return f"tf.{path} needs the package {distribution}, which is not installed: pip install 'anabranch[{extra}]'"
    if (refusal := refused_names.refusal_of(path)) is not None:
        return f"anabranch has no tf.{path}; {refusal.reason}; {refusal.instead}"
    if (instead := former_names.instead_of(path)) is not None:
        return f"anabranch has no tf.{path}; instead: {instead}"
    beginnings = [beginning for beginning in _WAYS_OUT if f"{path}.".startswith(f"{beginning}.")]
    if beginnings:
        way_out = _WAYS_OUT[max(beginnings, key=len)].format(module=module)
    elif close := difflib.get_close_matches(name, present, n=1, cutoff=0.85):
        way_out = f"tf.{f'{module}.' if module else ''}{close[0]} is there"
    else:
        way_out = f"dir(tf{f'.{module}' if module else ''}) lists what is there, dir(tf.raw_ops) the operation types"
    return f"anabranch has no tf.{path}; {way_out}"


@functools.cache
def names() -> dict[str, frozenset[str]]:
    """The public names of TensorFlow 1.15, by public module; "" is the package itself."""
    text = resources.files(__package__).joinpath(_LISTED).read_text(encoding="utf-8")
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {module: frozenset(names.split()) for module, _, names in lines}


def _package_to_install(path: str) -> tuple[str, str, str] | None:
    """The package that may serve a name and is not installed."""
    for beginning, package in _PACKAGES.items():
        if f"{path}.".startswith(f"{beginning}.") and importlib.util.find_spec(package[1]) is None:
            return package
    return None
